"""Reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched import topi
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import axes_tuple, axis_index, float_same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.topi import reduction
from autosched.topi.reduction import reduced_shape
from autosched.topi.shapes import int_shape

SAMPLES = [
    sample((3, 5), axis=None, keepdims=False), sample((2, 3, 4), axis=(1,), keepdims=True),
    sample((2, 3, 4), axis=(-1, 0), keepdims=False),
]  # fmt: skip


def _type(x: StructInfo, axis: int | Sequence[int] | None, keepdims: bool) -> TensorStructInfo:
    t = tensor(x)
    return TensorStructInfo(reduced_shape(t.dims, axes_tuple(axis, t.ndim), keepdims), t.dtype)


def _float_type(x: StructInfo, axis: int | Sequence[int] | None, keepdims: bool) -> TensorStructInfo:
    return _type(float_same(x), axis, keepdims)


def _reduction(
    name: str,
    compute: Callable[..., Tensor],
    reference: Callable[..., Array],
    infer: Callable[..., StructInfo] = _type,
    of_one: Callable[[Tensor], Tensor] = topi.identity,
) -> OpDef:
    """`of_one`: what it makes of one element, where there is no axis to reduce."""

    def over(x: Tensor, axis: int | Sequence[int] | None, keepdims: bool) -> Tensor:
        axes = axes_tuple(axis, x.ndim)
        return compute(x, axes, keepdims) if axes else of_one(x)

    def in_numpy(x: Array, axis: int | Sequence[int] | None, keepdims: bool) -> Array:
        return reference(x, axis=axes_tuple(axis, x.ndim), keepdims=keepdims).astype(x.dtype)

    return define_op(
        name, attributes={"axis": None, "keepdims": False}, infer_type=infer, compute=over, reference=in_numpy,
        samples=SAMPLES,
    )  # fmt: skip


def _extremum(name: str, compute: Callable[..., Tensor], reference: Callable[..., Array]) -> OpDef:
    """`keep_nan`: whether a NaN is the result where there is one, or is passed over."""

    def over(x: Tensor, axis: int | Sequence[int] | None, keepdims: bool, keep_nan: bool) -> Tensor:
        axes = axes_tuple(axis, x.ndim)
        return compute(x, axes, keepdims, keep_nan) if axes else topi.identity(x)

    def in_numpy(x: Array, axis: int | Sequence[int] | None, keepdims: bool, keep_nan: bool) -> Array:
        return reference(x, axis=axes_tuple(axis, x.ndim), keepdims=keepdims).astype(x.dtype)

    return define_op(
        name, attributes={"axis": None, "keepdims": False, "keep_nan": False}, compute=over, reference=in_numpy,
        infer_type=lambda x, axis, keepdims, keep_nan: _type(x, axis, keepdims),
        samples=[*SAMPLES, sample((3, 5), axis=1, keepdims=False, keep_nan=True)],
    )  # fmt: skip


sum = _reduction("sum", topi.sum, np.sum)  # noqa: A001
sum_abs = _reduction(
    "sum_abs", topi.sum_abs, lambda x, **over: np.sum(np.abs(x), **over), of_one=topi.abs,
)  # fmt: skip
sum_squares = _reduction(
    "sum_squares", topi.sum_squares, lambda x, **over: np.sum(x * x, **over), of_one=lambda x: topi.multiply(x, x),
)  # fmt: skip
mean = _reduction("mean", topi.mean, np.mean, _float_type)
max = _extremum("max", topi.max, np.max)  # noqa: A001
min = _extremum("min", topi.min, np.min)  # noqa: A001
prod = _reduction("prod", topi.prod, np.prod)
variance = _reduction("variance", topi.variance, np.var, _float_type)
std = _reduction("std", lambda x, axes, keep: topi.sqrt(topi.variance(x, axes, keep)), np.std, _float_type)


def _arg_type(x: StructInfo, axis: int | None, keepdims: bool) -> TensorStructInfo:
    t = tensor(x)
    axes = axes_tuple(axis, t.ndim)
    return TensorStructInfo(reduced_shape(t.dims, axes, keepdims), "int64")


def _argument(name: str, compute: Callable[..., Tensor], reference: Callable[..., Array]) -> OpDef:
    def over(x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
        if axis is None:
            total = int(np.prod(int_shape(x)))
            return compute(topi.reshape(x, (total,) + (1,) * (x.ndim - 1) * keepdims), 0, keepdims)
        return compute(x, axis_index(axis, x.ndim), keepdims)

    return define_op(
        name, attributes={"axis": None, "keepdims": False}, infer_type=_arg_type, compute=over,
        reference=lambda x, axis, keepdims: reference(x, axis=axis, keepdims=keepdims),
        samples=[sample((3, 5), axis=1), sample((2, 4), axis=-2, keepdims=True), sample((7,), axis=None)],
    )  # fmt: skip


argmax = _argument("argmax", reduction.argmax, np.argmax)
argmin = _argument("argmin", reduction.argmin, np.argmin)
