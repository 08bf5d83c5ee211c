"""Sorting, the k best, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autosched import topi
from autosched.errors import InvalidValueError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axis_index, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, to_dim
from autosched.te import Tensor
from autosched.topi.shapes import int_shape
from autosched.topi.sort import argsort as te_argsort
from autosched.topi.sort import cumprod as te_cumprod
from autosched.topi.sort import cumsum as te_cumsum
from autosched.topi.sort import take_along


def _order(x: Array, axis: int, descending: bool) -> Array:
    """Positions in order, equals as they stand; NaN is greater than all numbers."""
    if x.dtype.kind not in "fV":  # V: bfloat16
        return np.argsort(-x.astype(np.int64) if descending else x, axis=axis, kind="stable")
    wide = x.astype(np.float64)
    by_value = np.where(np.isnan(wide), 0, -wide if descending else wide)
    by_nan = ~np.isnan(wide) if descending else np.isnan(wide)
    return np.lexsort((by_value, by_nan), axis=axis)


def _same_type(x: StructInfo, axis: int, descending: bool, dtype: str | None = None) -> TensorStructInfo:
    t = tensor(x)
    axis_index(axis, t.ndim)
    return TensorStructInfo(t.dims, dtype or t.dtype)


_SAMPLES = [sample((3, 7), axis=-1), sample((4, 3), axis=0, descending=True), sample(((9,), "int32"), low=0, high=4)]


def _sort(x: Tensor, axis: int, descending: bool) -> Tensor:
    axis %= x.ndim
    return take_along(x, te_argsort(x, axis, descending, "int32"), axis)


sort = define_op(
    "sort",
    attributes={"axis": -1, "descending": False},
    infer_type=_same_type,
    compute=_sort,
    reference=lambda x, axis, descending: np.take_along_axis(x, _order(x, axis, descending), axis),
    samples=_SAMPLES,
)
argsort = define_op(
    "argsort",
    attributes={"axis": -1, "descending": False, "dtype": "int32"},
    infer_type=_same_type,
    compute=lambda x, axis, descending, dtype: te_argsort(x, axis % x.ndim, descending, dtype),
    reference=lambda x, axis, descending, dtype: _order(x, axis, descending).astype(dtype),
    samples=_SAMPLES,
)


def _topk_type(x: StructInfo, k: int, axis: int, ret_type: str, largest: bool, dtype: str) -> StructInfo:
    t = tensor(x)
    a = axis_index(axis, t.ndim)
    size = t.dims[a]
    if ret_type not in ("both", "values", "indices"):
        raise InvalidValueError(f"ret_type '{ret_type}'", hint="'both', 'values' or 'indices'")
    if isinstance(size, int) and k > size:
        raise InvalidValueError(f"the {k} best of {size}")
    shape = (*t.dims[:a], size if k < 1 else k, *t.dims[a + 1 :])
    values, indices = TensorStructInfo(shape, t.dtype), TensorStructInfo(shape, dtype)
    both = TupleStructInfo((values, indices))
    return both if ret_type == "both" else values if ret_type == "values" else indices


def _topk(x: Tensor, k: int, axis: int, ret_type: str, largest: bool, dtype: str) -> Tensor | tuple[Tensor, Tensor]:
    axis %= x.ndim
    indices = te_argsort(x, axis, largest, dtype, k if k >= 1 else None)
    if ret_type == "indices":
        return indices
    values = take_along(x, indices, axis)
    return (values, indices) if ret_type == "both" else values


def _topk_reference(
    x: Array, k: int, axis: int, ret_type: str, largest: bool, dtype: str
) -> Array | tuple[Array, Array]:
    order = _order(x, axis, largest)
    indices = np.take(order, np.arange(k if k >= 1 else x.shape[axis]), axis)
    values = np.take_along_axis(x, indices, axis)
    found = indices.astype(dtype)
    return (values, found) if ret_type == "both" else values if ret_type == "values" else found


topk = define_op(
    "topk",
    inputs=("data",),
    attributes={"k": 1, "axis": -1, "ret_type": "both", "largest": True, "dtype": "int32"},
    infer_type=_topk_type,
    limits=lambda x, k, axis, **_: [(to_dim(tensor(x).dims[axis_index(axis, tensor(x).ndim)]), k, None)],
    compute=_topk,
    reference=_topk_reference,
    samples=[
        sample((3, 9), k=4),
        sample((5, 2), k=2, axis=0, largest=False, dtype="int64"),
        sample((2, 6), k=3, ret_type="values"),
        sample((2, 6), k=0, ret_type="indices"),
    ],
)


def _running_type(
    data: StructInfo, axis: int | None, dtype: str | None, exclusive: bool, reverse: bool
) -> TensorStructInfo:
    t = tensor(data)
    if axis is None:
        return TensorStructInfo((math.prod(t.static_shape),), dtype or t.dtype)
    axis_index(axis, t.ndim)
    return TensorStructInfo(t.dims, dtype or t.dtype)


def _running(make: Callable[[Tensor, int, bool, bool], Tensor]) -> Callable[..., Tensor]:
    def compute(data: Tensor, axis: int | None, dtype: str | None, exclusive: bool, reverse: bool) -> Tensor:
        x = data if dtype is None else topi.cast(data, dtype)
        if axis is None:
            x, axis = topi.reshape(x, (math.prod(int_shape(x)),)), 0
        return make(x, axis % x.ndim, bool(exclusive), bool(reverse))

    return compute


def _running_reference(scan: Callable[..., Array], identity: int) -> Callable[..., Array]:
    def reference(data: Array, axis: int | None, dtype: str | None, exclusive: bool, reverse: bool) -> Array:
        wide = data.astype(np.float64) if data.dtype.kind == "f" else data
        if axis is None:
            wide, axis = wide.reshape(-1), 0
        wide = np.flip(wide, axis) if reverse else wide
        if exclusive:
            first = np.full_like(np.take(wide, range(1), axis), identity)
            wide = np.concatenate([first, np.delete(wide, -1, axis)], axis)
        result = scan(wide, axis)
        return (np.flip(result, axis) if reverse else result).astype(dtype or data.dtype)

    return reference


_RUNNING_SAMPLES = [
    sample((3, 5), axis=1), sample((4, 2), axis=0, exclusive=True), sample(((2, 3), "int32"), low=0, high=9),
    sample((3, 5), axis=1, exclusive=True, reverse=True), sample((4, 2), axis=0, reverse=True),
]  # fmt: skip
_RUNNING = {"axis": None, "dtype": None, "exclusive": False, "reverse": False}

cumsum = define_op(
    "cumsum", inputs=("data",), attributes=_RUNNING, infer_type=_running_type, compute=_running(te_cumsum),
    reference=_running_reference(np.cumsum, 0), samples=_RUNNING_SAMPLES,
)  # fmt: skip

cumprod = define_op(
    "cumprod", inputs=("data",), attributes=_RUNNING, infer_type=_running_type, compute=_running(te_cumprod),
    reference=_running_reference(np.cumprod, 1), samples=_RUNNING_SAMPLES,
)  # fmt: skip
