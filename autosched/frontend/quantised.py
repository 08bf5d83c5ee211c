"""Quantised tensors as importers write them: integers with a scale and a zero point for all, each channel or block.

    quantised = clip(round(x / scale) + zero, limits)          halves to the even neighbour
    x         = (quantised - zero) * scale

The passes of the graph level know these forms; ONNX's QDQ models and PyTorch's exports come to the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.tir.expr import as_int

WHOLE = ("int8", "uint8", "int16", "uint16", "int32")
Emit = Callable[[Expr], Expr]  # binds a value


def _info(x: Expr) -> TensorStructInfo:
    (info,) = tensor_infos(x.struct_info)
    return info


def along(emit: Emit, x: Expr, value: Expr, axis: int, block: int = 0) -> Expr:
    """A scale or zero point in a shape that broadcasts against x: one for all, one a channel, or one a block."""
    shape, own = _info(x).dims, _info(value).static_shape
    if math.prod(own) == 1 and len(own) <= 1:
        return emit(op.reshape(value, ShapeExpr(())))
    axis = axis % len(shape)
    if len(own) == 1:
        wide = tuple(own[0] if i == axis else 1 for i in range(len(shape)))
        return emit(op.reshape(value, ShapeExpr(wide)))
    if not block:
        return value
    spread = emit(op.repeat(value, block, axis=axis))
    return emit(op.strided_slice(spread, axes=(axis,), begin=(0,), end=(as_int(shape[axis]),), strides=(1,)))


def dequantized(emit: Emit, x: Expr, scale: Expr, zero: Expr | None, axis: int, block: int = 0) -> Expr:
    """(x - zero) * scale in the scale's dtype."""
    whole = emit(op.astype(x, "int32"))
    if zero is not None:
        whole = op.subtract(whole, op.astype(along(emit, x, zero, axis, block), "int32"))
    return emit(op.multiply(op.astype(whole, _info(scale).dtype), along(emit, x, scale, axis, block)))


def quantized(
    emit: Emit,
    x: Expr,
    scale: Expr,
    zero: Expr | None,
    dtype: str,
    axis: int,
    block: int = 0,
    limits: tuple[int, int] | None = None,
    zero_first: bool = False,
) -> Expr:
    """round(x / scale) + zero within the limits, those of the dtype where none are given.

    zero_first  round(x / scale + zero), which is another number halfway where the zero point is odd
    """
    low, high = limits or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    kind = _info(x).dtype
    value = op.divide(x, op.astype(along(emit, x, scale, axis, block), kind))
    value = value if zero_first else op.round(value)
    if zero is not None:
        value = op.add(value, op.astype(along(emit, x, zero, axis, block), kind))
    value = op.round(value) if zero_first else value
    return emit(op.astype(op.clip(value, float(low), float(high)), dtype))


def fault(scale: object, zero: object, dtype: str) -> str | None:
    """What is wrong with a scale or zero point that is known: a number, an array or a constant; None: nothing.

    A scale is a positive finite number; a zero point is a value of the quantised dtype.
    """
    scales, zeros = (_array(v) for v in (scale, zero))
    if scales is not None:
        wide = scales.astype(np.float64)
        bad = wide[~(np.isfinite(wide) & (wide > 0))]
        if bad.size:
            return f"a scale of {bad.reshape(-1)[0]:g}: a positive finite number is needed"
    if zeros is not None and dtype in WHOLE:
        limits, whole = np.iinfo(dtype), zeros.astype(np.float64)
        out = whole[~((whole >= limits.min) & (whole <= limits.max))]
        if out.size:
            return f"a zero point of {out.reshape(-1)[0]:g} is no {dtype}"
    return None


def _array(value: object) -> np.ndarray | None:
    if isinstance(value, Constant):
        return value.data
    return None if value is None or isinstance(value, Expr) else np.asarray(value)


__all__ = ["WHOLE", "along", "dequantized", "fault", "quantized"]
