"""Quantised tensors of PT2E exports: the operators of `quantized_decomposed`, in the form that ONNX's QDQ models have.

PyTorch multiplies by a scale's reciprocal where ONNX divides by the scale: a number that lies between two bytes, within
the rounding of that product, may become the other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.frontend import quantised
from autosched.frontend.quantised import WHOLE, fault
from autosched.frontend.torch.emitter import Emitter, constant, info_of, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr

SCALE, ZERO = "float32", "int32"


def _parts(
    t: Emitter, input: Expr, scale: object, zero: object, limits: tuple[object, object], dtype: object
) -> tuple[Expr, Expr | None, tuple[int, int], str]:
    """(scale, zero point, limits, dtype), checked as far as they are known. Raises ImportModelError."""
    low, high = (_number(t, n) for n in limits)
    kind = _bounded(t, low, high, dtype)
    if isinstance(zero, Expr) and not info_of(zero).dtype.startswith(("int", "uint")):
        raise t.fail(f"zero points of {info_of(zero).dtype} are not supported; integers are")
    if (wrong := fault(scale, zero, kind)) is not None:
        raise t.fail(wrong)
    scales, zeros = (None if v is None else _as(t, v, k) for v, k in ((scale, SCALE), (zero, ZERO)))
    if (wrong := fault(scales, None, kind)) is not None:
        raise t.fail(f"{wrong} (in {SCALE})")
    assert scales is not None, "the schema asks for one"
    if isinstance(zeros, Constant) and not zeros.data.any():
        zeros = None
    return scales, zeros, (low, high), kind


def _bounded(t: Emitter, low: int, high: int, dtype: object) -> str:
    """Our name of a quantised dtype, one of integers, which has both limits. Raises ImportModelError."""
    kind = t.dtype(dtype)
    if kind not in WHOLE:
        raise t.fail(f"quantised {kind} is not supported; there are {', '.join(WHOLE)}")
    whole = np.iinfo(kind)
    if not whole.min <= low < high <= whole.max:
        raise t.fail(f"limits {low} and {high} of {kind}")
    return kind


def _number(t: Emitter, value: Any) -> int:
    if isinstance(value, Constant):
        value = value.data.reshape(-1)[0]
    if isinstance(value, Expr):
        raise t.fail("limits that are computed at run time are not supported")
    return int(value)


def _as(t: Emitter, value: object, dtype: str) -> Expr:
    """A number, a constant or a tensor as a dtype."""
    if isinstance(value, Constant):
        return constant(value.data, dtype)
    return t.cast(value, dtype) if isinstance(value, Expr) else constant(value, dtype)  # type: ignore[no-any-return]


def _one(t: Emitter, *values: object) -> None:
    for v in values:
        if isinstance(v, Expr) and int(np.prod(t.shape(v))) != 1:
            raise t.fail(f"a scale or zero point of shape {t.shape(v)} for the whole tensor")


def _channels(t: Emitter, input: Expr, axis: int, *values: object) -> int:
    """The axis of the channels, of which each value has one element."""
    shape = t.shape(input)
    at = positive(axis, len(shape))
    if not 0 <= at < len(shape):
        raise t.fail(f"axis {axis} of {len(shape)} dimensions")
    for v in values:
        if isinstance(v, Expr) and t.shape(v) != (shape[at],):
            raise t.fail(f"scales or zero points of shape {t.shape(v)} for {shape[at]} channels")
    return at


def _quantized(
    t: Emitter,
    input: Expr,
    scale: object,
    zero: object,
    limits: tuple[object, object],
    dtype: object,
    axis: int,
    block: int = 0,
    zero_first: bool = False,
) -> Expr:
    scales, zeros, limits, kind = _parts(t, input, scale, zero, limits, dtype)
    zero_first = zero_first and zeros is not None
    x = t.cast(input, SCALE)
    return quantised.quantized(t, x, scales, zeros, kind, axis, block, limits, zero_first=zero_first)


def _dequantized(
    t: Emitter,
    input: Expr,
    scale: object,
    zero: object,
    limits: tuple[object, object],
    dtype: object,
    axis: int,
    out_dtype: object,
    block: int = 0,
) -> Expr:
    scales, zeros, _, kind = _parts(t, input, scale, zero, limits, dtype)
    if info_of(input).dtype != kind:
        raise t.fail(f"a tensor of {info_of(input).dtype} is taken for one of {kind}")
    result = quantised.dequantized(t, input, scales, zeros, axis, block)
    return result if out_dtype is None else t.cast(result, t.dtype(out_dtype))


@converter("quantize_per_tensor")
def quantize_per_tensor(
    t: Emitter, input: Expr, scale: object, zero_point: object, quant_min: object, quant_max: object, dtype: object
) -> Expr:
    _one(t, scale, zero_point)
    return _quantized(t, input, scale, zero_point, (quant_min, quant_max), dtype, 0)


@converter("dequantize_per_tensor")
def dequantize_per_tensor(
    t: Emitter,
    input: Expr,
    scale: object,
    zero_point: object,
    quant_min: object,
    quant_max: object,
    dtype: object,
    *,
    out_dtype: object = None,
) -> Expr:
    _one(t, scale, zero_point)
    return _dequantized(t, input, scale, zero_point, (quant_min, quant_max), dtype, 0, out_dtype)


@converter("quantize_per_channel")
def quantize_per_channel(
    t: Emitter,
    input: Expr,
    scales: object,
    zero_points: object,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: object,
) -> Expr:
    at = _channels(t, input, axis, scales, zero_points)
    return _quantized(t, input, scales, zero_points, (quant_min, quant_max), dtype, at)


@converter("dequantize_per_channel")
def dequantize_per_channel(
    t: Emitter,
    input: Expr,
    scales: object,
    zero_points: object,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: object,
    *,
    out_dtype: object = None,
) -> Expr:
    at = _channels(t, input, axis, scales, zero_points)
    return _dequantized(t, input, scales, zero_points, (quant_min, quant_max), dtype, at, out_dtype)


@converter("choose_qparams")
def choose_qparams(
    t: Emitter, input: Expr, quant_min: int, quant_max: int, eps: float, dtype: object
) -> tuple[Expr, Expr]:
    """(a scale in float64, a zero point in int64) by the least and the largest value, 0 among them."""
    return _qparams(t, input, quant_min, quant_max, eps, dtype)


@converter("choose_qparams_symmetric")
def choose_qparams_symmetric(
    t: Emitter, input: Expr, quant_min: int, quant_max: int, eps: float, dtype: object
) -> tuple[Expr, Expr]:
    """The same by the largest size; the zero point is 0, of unsigned bytes 128."""
    middle = 128 if t.dtype(dtype) == "uint8" else 0
    return _qparams(t, input, quant_min, quant_max, eps, dtype, middle)


def _qparams(
    t: Emitter, input: Expr, low: int, high: int, eps: float, dtype: object, middle: int | None = None
) -> tuple[Expr, Expr]:
    """(scale, zero point): `middle` with limits that lie symmetrically around it; None: by both ends."""
    _bounded(t, low, high, dtype)
    if not np.isfinite(eps) or eps < 0:
        raise t.fail(f"a least scale of {eps}: a finite number is needed, 0 or more")
    x, zero, one = t.cast(input, SCALE), constant(0, SCALE), ShapeExpr((1,))
    least = t(op.minimum(t(op.min(x, keep_nan=True)), zero))
    largest = t(op.maximum(t(op.max(x, keep_nan=True)), zero))
    if middle is not None:
        largest = t(op.maximum(t(op.negative(least)), largest))
        width, steps = largest, (high - low) / 2
    else:
        width, steps = t(op.subtract(largest, least)), float(high - low)
    scale = t(op.maximum(t(op.divide(width, constant(steps, SCALE))), constant(eps, SCALE)))
    if middle is not None:
        point: Expr = constant(middle, "int64")
    else:
        step = t.cast(t(op.round(t(op.divide(least, scale)))), "int64")
        point = t(op.clip(t(op.subtract(constant(low, "int64"), step)), low, high))
    return t.cast(t(op.reshape(scale, one)), "float64"), t(op.reshape(point, one))


def _tokens(t: Emitter, input: Expr, value: object) -> object:
    """A scale or zero point of each row of the last dimension, in a shape that broadcasts."""
    shape = (*t.shape(input)[:-1], 1)
    return _in_shape(t, value, shape, f"tokens of shape {shape[:-1]}")


def _in_shape(t: Emitter, value: object, shape: tuple[int, ...], of: str) -> object:
    if not isinstance(value, Expr) or t.shape(value) == shape:
        return value
    if np.prod(t.shape(value)) != np.prod(shape):
        raise t.fail(f"scales or zero points of shape {t.shape(value)} for {of}")
    if isinstance(value, Constant):
        return Constant(value.data.reshape(shape))
    return t(op.reshape(value, ShapeExpr(shape)))


@converter("quantize_per_token")
def quantize_per_token(
    t: Emitter, input: Expr, scales: object, zero_points: object, quant_min: int, quant_max: int, dtype: object
) -> Expr:
    scale, zero = (_tokens(t, input, v) for v in (scales, zero_points))
    return _quantized(t, input, scale, zero, (quant_min, quant_max), dtype, -1, zero_first=True)


@converter("dequantize_per_token")
def dequantize_per_token(
    t: Emitter,
    input: Expr,
    scales: object,
    zero_points: object,
    quant_min: int,
    quant_max: int,
    dtype: object,
    output_dtype: object,
) -> Expr:
    scale, zero = (_tokens(t, input, v) for v in (scales, zero_points))
    return _dequantized(t, input, scale, zero, (quant_min, quant_max), dtype, -1, output_dtype)


def _groups(t: Emitter, input: Expr, size: int, *values: object) -> tuple[int, list[object]]:
    """(elements in a group, each value as [rows, groups]); one group may be said to be longer than a row."""
    shape = t.shape(input)
    if len(shape) != 2:
        raise t.fail(f"groups of a tensor of {len(shape)} dimensions; they are of two")
    rows, columns = shape
    if size > columns and all(np.prod(t.shape(v)) == rows for v in values if isinstance(v, Expr)):
        size = columns
    if size <= 1 or columns % size:
        raise t.fail(f"groups of {size} in rows of {columns}")
    groups = columns // size
    return size, [_in_shape(t, v, (rows, groups), f"{rows} rows of {groups} groups") for v in values]


@converter("quantize_per_channel_group")
def quantize_per_channel_group(
    t: Emitter,
    input: Expr,
    scales: object,
    zero_points: object,
    quant_min: int,
    quant_max: int,
    dtype: object,
    group_size: int = 128,
) -> Expr:
    size, (scale, zero) = _groups(t, input, group_size, scales, zero_points)
    return _quantized(t, input, scale, zero, (quant_min, quant_max), dtype, 1, size, zero_first=True)


@converter("dequantize_per_channel_group")
def dequantize_per_channel_group(
    t: Emitter,
    input: Expr,
    scales: object,
    zero_points: object,
    quant_min: int,
    quant_max: int,
    dtype: object,
    group_size: int = 128,
    output_dtype: object = None,
) -> Expr:
    size, (scale, zero) = _groups(t, input, group_size, scales, zero_points)
    return _dequantized(t, input, scale, zero, (quant_min, quant_max), dtype, 1, output_dtype, size)


@converter("choose_qparams_per_token")
def choose_qparams_per_token(t: Emitter, input: Expr, dtype: object) -> tuple[Expr, Expr]:
    """(a scale in float64, 0 in int64) of each token, by its largest size."""
    x = _of_float32(t, input, dtype)
    largest = t(op.max(t(op.abs(x)), axis=-1, keepdims=True, keep_nan=True))
    scale = t(op.divide(t(op.maximum(largest, constant(1e-5, SCALE))), constant(127, SCALE)))
    return t.cast(scale, "float64"), constant(np.zeros((*t.shape(input)[:-1], 1)), "int64")


@converter("choose_qparams_per_token_asymmetric", "_choose_qparams_per_token_asymmetric_impl")
def choose_qparams_per_token_asymmetric(t: Emitter, input: Expr, dtype: object) -> tuple[Expr, Expr]:
    """(a scale in float64, a zero point in int64) of each token, by its least and largest value, 0 among them.

    The zero point, within -128 and 127, is reckoned from the end whose rounding error is the larger one, as in XNNPACK.
    """
    x, zero, low, high = (_of_float32(t, input, dtype), *(constant(n, SCALE) for n in (0, -128, 127)))
    least = t(op.minimum(t(op.min(x, axis=-1, keepdims=True, keep_nan=True)), zero))
    largest = t(op.maximum(t(op.max(x, axis=-1, keepdims=True, keep_nan=True)), zero))
    width = t(op.divide(t(op.subtract(largest, least)), constant(255, SCALE)))
    scale = t(op.maximum(width, constant(np.finfo("f4").eps, SCALE)))
    first, last = (t(op.divide(end, scale)) for end in (least, largest))
    error = t(op.add(t(op.add(low, first)), t(op.add(high, last))))
    point = t(op.where(t(op.greater(error, zero)), t(op.subtract(low, first)), t(op.subtract(high, last))))
    whole = t(op.round(t(op.clip(point, -128.0, 127.0))))
    return t.cast(scale, "float64"), t.cast(whole, "int64")


def _of_float32(t: Emitter, input: Expr, dtype: object) -> Expr:
    """`input`, of which scales of tokens are chosen; PyTorch takes int8's limits, whatever `dtype` says."""
    if t.dtype(dtype) != "int8":
        raise t.fail(f"tokens quantised to {t.dtype(dtype)}; PyTorch has int8")
    if info_of(input).dtype != SCALE:
        raise t.fail(f"scales of tokens of {info_of(input).dtype} are not supported; of {SCALE} they are")
    return input


@converter("_int_mm")
def int_mm(t: Emitter, input: Expr, mat2: Expr) -> Expr:
    """The exact product of two matrices of signed bytes, in int32."""
    return t(op.matmul(t.cast(input, "int32"), t.cast(mat2, "int32")))  # type: ignore[no-any-return]
