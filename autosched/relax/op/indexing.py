"""Elements chosen by a tensor of positions.

The attribute `mode` says what becomes of positions that are negative or out of range: see
`tir.checked_index.position`. Constant positions out of range are refused when the call is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.ir.node import Attrs
from autosched.relax.expr import Constant
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import Limit, Validate, define_op, sample
from autosched.relax.op.types import axis_index, tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo, same_dim, same_dims, to_dim
from autosched.tir.checked_index import MODES, out_of_range
from autosched.tir.dtypes import is_float
from autosched.tir.expr import as_int
from autosched.topi import indexing

REPORTING = ("raise", "fast", "positive")  # modes in which a position out of range is an error


def positions_type(t: StructInfo) -> TensorStructInfo:
    """The type of a tensor of positions. Raises TypeError unless they are integers."""
    info = tensor(t, "indices")
    if not info.dtype.startswith(("int", "uint")):
        raise InvalidTypeError(f"positions must be integers, got {info.dtype}")
    return info


def check_mode(mode: str, sizes: Sequence[int | None] = (), count: int | None = 1) -> None:
    """Raise InvalidValueError for an unknown mode, ShapeError where positions are to lie in an empty dimension."""
    if mode not in MODES:
        raise InvalidValueError(f"mode '{mode}'", hint=f"use one of {', '.join(MODES)}")
    if 0 in sizes and count != 0:
        raise ShapeError("positions in a dimension of size 0")


def resolve(indices: object, size: int, mode: str) -> Array:
    """The positions in [0, size) that an array of them means, in NumPy. Raises IndexOutOfRangeError."""
    found = np.asarray(indices).astype(np.int64)
    if mode in ("clip", "nearest"):
        found = np.where(found < 0, found + size, found) if mode == "nearest" else found
        return np.clip(found, 0, size - 1)
    if mode == "wrap":
        return found % size
    low = 0 if mode == "positive" else -size
    wrong = (found < low) | (found >= size)
    if wrong.any():
        raise out_of_range(int(found[wrong].flat[0]), low, size, "positions")
    return np.where(found < 0, found + size, found)


def refuse_constants(axis_of: Callable[[int, Attrs], int | None]) -> Validate:
    """A `validate` of operators (data, indices, …): constant positions along `axis_of(ndim, attrs)` are in range."""

    def validate(args: Sequence[Expr], attrs: Attrs) -> None:
        data, indices = args[0].struct_info, args[1]
        if not isinstance(indices, Constant) or not isinstance(data, TensorStructInfo) or not data.is_static:
            return
        axis = axis_of(data.ndim, attrs)
        columns = (
            list(enumerate(np.moveaxis(indices.data, -1, 0), attrs.get("batch_dims", 0)))
            if axis is None
            else [(axis, indices.data)]
        )
        for dimension, values in columns:
            if attrs.get("mode", "raise") in REPORTING:
                resolve(values, data.static_shape[dimension], attrs.get("mode", "raise"))

    return validate


def along_axis(ndim: int, attrs: Attrs) -> int:
    """The dimension that the attribute `axis` names; the only one where it names none."""
    return axis_index(attrs["axis"] or 0, ndim)


def _count(indices: TensorStructInfo) -> int | None:
    return int(np.prod(indices.static_shape, dtype=np.int64)) if indices.is_static else None


def _take_type(x: StructInfo, indices: StructInfo, axis: int | None, mode: str) -> TensorStructInfo:
    t, i = tensor(x), positions_type(indices)
    if axis is None and t.ndim != 1:
        raise InvalidValueError(f"an axis is needed for a tensor of {t.ndim} dimensions")
    a = axis_index(axis or 0, t.ndim)
    if mode == "nan" and not is_float(t.dtype):
        raise InvalidTypeError(f"mode 'nan' of {t.dtype}", hint="a float type")
    check_mode("clip" if mode == "nan" else mode, t.static_shape[a : a + 1] if t.is_static else (), _count(i))
    return TensorStructInfo((*t.dims[:a], *i.dims, *t.dims[a + 1 :]), t.dtype)


def _take(x: Array, indices: Array, axis: int | None, mode: str) -> Array:
    axis = axis or 0
    if mode != "nan":
        found: Array = np.take(x, resolve(indices, x.shape[axis], mode), axis)
        return found
    outside = (indices < 0) | (indices >= x.shape[axis])
    lead = axis % x.ndim
    shape = [1] * lead + list(indices.shape) + [1] * (x.ndim - lead - 1)
    found = np.take(x, resolve(indices, x.shape[axis], "clip"), axis)
    return np.where(outside.reshape(shape), np.asarray(np.nan, x.dtype), found)


take = define_op(
    "take",
    inputs=("x", "indices"),
    attributes={"axis": None, "mode": "raise"},
    infer_type=_take_type,
    compute=lambda x, indices, axis, mode: indexing.take(x, indices, (axis or 0) % x.ndim, mode),
    reference=_take,
    validate=refuse_constants(along_axis),
    samples=[
        sample((4, 3), ((5,), "int64"), axis=0, mode="nan", low=-3, high=7),
        sample((4, 3), ((2,), "int64"), axis=0),
        sample((3, 4, 2), ((2, 2), "int32"), axis=1),
        sample((4,), ((), "int64")),
        sample((2, 4), ((3,), "int64"), axis=-1),
        sample((4, 3), ((5,), "int64"), axis=0, mode="clip", low=-9, high=9),
        sample((4, 3), ((5,), "int64"), axis=0, mode="wrap", low=-9, high=9),
    ],
)


def _gather_type(data: StructInfo, indices: StructInfo, axis: int, mode: str) -> TensorStructInfo:
    t, i = tensor(data), positions_type(indices)
    a = axis_index(axis, t.ndim)
    if t.ndim != i.ndim:
        raise ShapeError(f"data of {t.ndim} dimensions, indices of {i.ndim}")
    if t.is_static and i.is_static:
        check_mode(mode, t.static_shape[a : a + 1], _count(i))
        others = [(n, m) for d, (n, m) in enumerate(zip(i.static_shape, t.static_shape, strict=True)) if d != a]
        if any(n > m for n, m in others):
            raise ShapeError(f"positions of shape {i.static_shape} reach over data of shape {t.static_shape}")
    return TensorStructInfo(i.shape, t.dtype)


def _no_longer(data: StructInfo, indices: StructInfo, axis: int, mode: str) -> list[Limit]:
    """Indices reach over no other dimension of the data than the one that they choose from."""
    pairs = list(zip(tensor(data).dims, tensor(indices).dims, strict=True))
    pairs.pop(axis_index(axis, len(pairs)))
    return [(to_dim(n) - to_dim(m), 0, None) for n, m in pairs if not same_dim(n, m)]


def _gather_elements(x: Array, indices: Array, axis: int, mode: str) -> Array:
    inside = tuple(slice(None) if d == axis % x.ndim else slice(n) for d, n in enumerate(indices.shape))
    return np.take_along_axis(x[inside], resolve(indices, x.shape[axis], mode), axis)


gather_elements = define_op(
    "gather_elements",
    inputs=("data", "indices"),
    attributes={"axis": 0, "mode": "raise"},
    infer_type=_gather_type,
    limits=_no_longer,
    compute=lambda x, indices, axis, mode: indexing.gather(x, indices, axis % x.ndim, mode),
    reference=_gather_elements,
    validate=refuse_constants(along_axis),
    samples=[sample((3, 4), ((2, 4), "int64")), sample((3, 4), ((2, 3), "int64"), axis=1, mode="clip", low=-9, high=9)],
)


def _along_type(data: StructInfo, indices: StructInfo, axis: int, mode: str) -> TensorStructInfo:
    t, i = tensor(data), positions_type(indices)
    a = axis_index(axis, t.ndim)
    others = enumerate(zip(t.dims, i.dims, strict=t.ndim == i.ndim))
    if t.ndim != i.ndim or any(d != a and not same_dim(m, 1) and not same_dim(n, m) for d, (n, m) in others):
        raise ShapeError(f"positions of shape {list(i.dims)} along axis {a} of data {list(t.dims)}")
    check_mode(mode, t.static_shape[a : a + 1] if t.is_static else (), _count(i))
    return TensorStructInfo((*t.dims[:a], i.dims[a], *t.dims[a + 1 :]), t.dtype)


take_along_axis = define_op(
    "take_along_axis",
    inputs=("data", "indices"),
    attributes={"axis": 0, "mode": "raise"},
    infer_type=_along_type,
    compute=lambda x, indices, axis, mode: indexing.take_along_axis(x, indices, axis % x.ndim, mode),
    reference=lambda x, indices, axis, mode: np.take_along_axis(x, resolve(indices, x.shape[axis], mode), axis),
    validate=refuse_constants(along_axis),
    samples=[
        sample((3, 4, 5), ((3, 2, 1), "int64"), axis=1),
        sample((3, 4), ((1, 5), "int32"), axis=-1, mode="clip", low=-9, high=9),
        sample((3, 4), ((2, 4), "int64")),
    ],
)


def _gather_nd_type(data: StructInfo, indices: StructInfo, batch_dims: int, mode: str) -> TensorStructInfo:
    t, i = tensor(data), positions_type(indices)
    depth = as_int(i.dims[-1])
    if not 0 <= batch_dims < i.ndim or batch_dims + depth > t.ndim:
        raise ShapeError(f"index vectors of {depth} behind {batch_dims} dimensions for {t.ndim} dimensions")
    if not same_dims(t.dims[:batch_dims], i.dims[:batch_dims]):
        raise ShapeError(f"data of shape {t.dims} and positions of {i.dims} have not the same first dimensions")
    check_mode(mode, t.static_shape[batch_dims : batch_dims + depth] if t.is_static else (), _count(i))
    return TensorStructInfo((*i.dims[:-1], *t.dims[batch_dims + depth :]), t.dtype)


def _gather_nd(x: Array, indices: Array, batch_dims: int, mode: str) -> Array:
    if batch_dims:
        return np.stack([_gather_nd(a, b, batch_dims - 1, mode) for a, b in zip(x, indices, strict=True)])
    found: Array = x[tuple(resolve(v, x.shape[d], mode) for d, v in enumerate(np.moveaxis(indices, -1, 0)))]
    return found


gather_nd = define_op(
    "gather_nd",
    inputs=("data", "indices"),
    attributes={"batch_dims": 0, "mode": "raise"},
    infer_type=_gather_nd_type,
    compute=lambda x, indices, batch_dims, mode: indexing.gather_nd(x, indices, mode, batch_dims),
    reference=_gather_nd,
    validate=refuse_constants(lambda ndim, attrs: None),
    samples=[
        sample((2, 3, 4), ((2, 5, 1), "int64"), batch_dims=1),
        sample((3, 4), ((5, 2), "int64")),
        sample((3, 4), ((2, 1), "int64")),
    ],
)
