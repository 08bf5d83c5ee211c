"""Values of few bits from floats and back, by a scale and a zero point for all or for each element along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import te
from autosched.errors import InvalidTypeError, ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axis_index, float_same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo, same_dims
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr
from autosched.topi.shapes import axis_names, dims


def _check(t: TensorStructInfo, scale: StructInfo, zero: StructInfo, axis: int) -> None:
    own = t.dims[axis_index(axis, t.ndim)] if t.ndim else 1
    for what, p in (("scale", tensor(scale)), ("zero_point", tensor(zero))):
        if p.ndim > 1 or (p.ndim == 1 and not same_dims(p.dims, (own,)) and not same_dims(p.dims, (1,))):
            raise ShapeError(f"{what} is {p!r}, dimension {axis} of {t!r}")


def _at(x: Tensor, i: Sequence[PrimExpr], axis: int) -> PrimExpr:
    return x() if x.ndim == 0 else x(0 if E.const_int(x.shape[0]) == 1 else i[axis])


def _shaped(x: Array, ndim: int, axis: int) -> Array:
    return x.reshape([-1 if a == axis % ndim else 1 for a in range(ndim)]) if x.ndim and ndim else x


def _quantize_type(x: StructInfo, scale: StructInfo, zero: StructInfo, axis: int, out_dtype: str) -> TensorStructInfo:
    t = float_same(x)
    _check(t, scale, zero, axis)
    return TensorStructInfo(t.dims, out_dtype)


def _quantize(x: Tensor, scale: Tensor, zero: Tensor, axis: int, out_dtype: str) -> Tensor:
    kind = x.dtype if is_float(out_dtype) else "float32"
    if is_float(out_dtype):
        raise InvalidTypeError(f"quantize to {out_dtype}", hint="an integer type")
    low, high = (float(v.value) for v in (te.min_value(out_dtype), te.max_value(out_dtype)))  # type: ignore[attr-defined]

    def element(*i: PrimExpr) -> PrimExpr:
        a = axis % x.ndim if x.ndim else 0
        whole = te.round(E.cast(kind, x(*i)) / E.cast(kind, _at(scale, i, a))) + E.cast(kind, _at(zero, i, a))
        return E.cast(out_dtype, E.maximum(E.minimum(whole, E.const(high, kind)), E.const(low, kind)))

    return te.compute(dims(x.shape), element, name="quantized", varargs_names=axis_names(x.ndim))


def _quantize_reference(x: Array, scale: Array, zero: Array, axis: int, out_dtype: str) -> Array:
    kind, limits = np.float32, np.iinfo(out_dtype)
    s, z = (_shaped(v, x.ndim, axis).astype(kind) for v in (scale, zero))
    return np.clip(np.round(x.astype(kind) / s) + z, limits.min, limits.max).astype(out_dtype)


quantize = define_op(
    "quantize", inputs=("data", "scale", "zero_point"), attributes={"axis": -1, "out_dtype": "int8"},
    infer_type=_quantize_type, compute=_quantize, reference=_quantize_reference,
    samples=[
        sample((2, 5), (5,), ((5,), "int8"), low=0.5, high=99), sample((3, 4), (), ((), "int32"), out_dtype="uint8"),
        sample((2, 3), (2,), ((2,), "int8"), axis=0, low=0.02, high=9),
    ],
)  # fmt: skip


def _dequantize_type(x: StructInfo, scale: StructInfo, zero: StructInfo, axis: int, out_dtype: str) -> TensorStructInfo:
    t = tensor(x)
    _check(t, scale, zero, axis)
    if is_float(t.dtype) or not is_float(out_dtype):
        raise InvalidTypeError(f"dequantize of {t.dtype} to {out_dtype}")
    return TensorStructInfo(t.dims, out_dtype)


def _dequantize(x: Tensor, scale: Tensor, zero: Tensor, axis: int, out_dtype: str) -> Tensor:
    def element(*i: PrimExpr) -> PrimExpr:
        a = axis % x.ndim if x.ndim else 0
        centred = E.cast("int32", x(*i)) - E.cast("int32", _at(zero, i, a))
        return E.cast(out_dtype, E.cast("float32", centred) * E.cast("float32", _at(scale, i, a)))

    return te.compute(dims(x.shape), element, name="dequantized", varargs_names=axis_names(x.ndim))


def _dequantize_reference(x: Array, scale: Array, zero: Array, axis: int, out_dtype: str) -> Array:
    centred = x.astype(np.int32) - _shaped(zero, x.ndim, axis).astype(np.int32)
    return (centred.astype(np.float32) * _shaped(scale, x.ndim, axis).astype(np.float32)).astype(out_dtype)


dequantize = define_op(
    "dequantize", inputs=("data", "scale", "zero_point"), attributes={"axis": -1, "out_dtype": "float32"},
    infer_type=_dequantize_type, compute=_dequantize, reference=_dequantize_reference,
    samples=[
        sample(((2, 5), "int8"), (5,), ((5,), "int8"), low=-9, high=9),
        sample(((3, 4), "uint8"), (), ((), "int32"), low=0, high=9),
    ],
)  # fmt: skip
