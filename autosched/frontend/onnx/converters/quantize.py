"""Quantised tensors: integers with a scale and a zero point for the tensor, each channel, or each block."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autosched.frontend import quantised
from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Held, Node, info_of
from autosched.frontend.onnx.packed import packed_weight
from autosched.frontend.onnx.registry import converter
from autosched.frontend.quantised import WHOLE, along, fault
from autosched.frontend.size_arithmetic import is_empty
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.tir.expr import const_int

MIXED = "a zero point of {} for values of {}: both have one type"


def _along(node: Node, x: Expr, value: Expr, axis: int | None) -> Expr:
    """A scale or zero point of a factor: one for all, one for each channel, or, [..., M, 1] and [..., 1, N], of each
    row (axis -2) or column (axis -1) of each of several products.
    """
    dims, own = info_of(x).dims, info_of(value).static_shape
    if axis is None or axis >= 0 or len(own) < 2:
        check_count(node, x, value, axis)
    elif len(own) != len(dims) or own[-3 - axis] != 1 or not all(map(_spreads, own, dims)):
        raise node.fail(f"scales or zero points of shape {own} for a factor of shape {_text(dims)}")
    return along(node.emit, x, value, axis or 0)


def _spreads(own: int, dim: object) -> bool:
    return own in (1, const_int(dim))


def _text(dims: Sequence[object]) -> str:
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"


def check_count(node: Node, x: Expr, value: Expr, axis: int | None, block: int = 0) -> None:
    """Raises ImportModelError for a scale or zero point that is neither one for all nor one for each channel or block.

    axis  that of the channels; None: there is one for all
    """
    dims, own = info_of(x).dims, info_of(value).static_shape
    if math.prod(own) == 1 and len(own) <= 1:
        return
    if axis is None:
        raise node.fail(f"a scale or zero point of shape {own}, where one for all is needed")
    if not -len(dims) <= axis < len(dims):
        raise node.fail(f"scales or zero points along axis {axis} of {len(dims)} dimensions")
    wanted = [const_int(d) for d in (dims if block else (dims[axis],))]
    if block and (whole := wanted[axis]) is not None:
        wanted[axis] = -(-whole // block)
    if len(wanted) != len(own) or any(w not in (None, n) for w, n in zip(wanted, own, strict=True)):
        raise node.fail(f"scales or zero points of shape {own}, where {_text(wanted)} is needed")


def check_scale(node: Node, scale: Expr, zero: Expr | None, dtype: str) -> None:
    """Raises ImportModelError for what stands for no numbers of a quantised dtype."""
    if dtype not in WHOLE:
        raise node.no_kernel(f"quantised {dtype} is not supported; there are {', '.join(WHOLE)}")
    if zero is not None and info_of(zero).dtype != dtype:
        raise node.fail(MIXED.format(info_of(zero).dtype, dtype))
    if (wrong := fault(scale, zero, dtype)) is not None:
        raise node.fail(wrong)


def _check(node: Node, x: Expr, scale: Expr, zero: Expr | None, dtype: str, axis: int | None, block: int) -> None:
    check_scale(node, scale, zero, dtype)
    if block < 0:
        raise node.fail(f"blocks of {block}")
    for value in (scale, zero):
        if value is not None:
            check_count(node, x, value, axis, block)


def dequantized(node: Node, x: Expr, scale: Expr, zero: Expr | None, axis: int | None, block: int = 0) -> Expr:
    """(x - zero) * scale in the scale's dtype; axis: that of the channels, None where one scale is for all."""
    _check(node, x, scale, zero, info_of(x).dtype, axis, block)
    return quantised.dequantized(node.emit, x, scale, zero, axis or 0, block)


def quantized(
    node: Node, x: Expr, scale: Expr, zero: Expr | None, dtype: str, axis: int | None, block: int = 0
) -> Expr:
    """round(x / scale) + zero within the limits of the dtype; halves to the even neighbour."""
    _check(node, x, scale, zero, dtype, axis, block)
    return quantised.quantized(node.emit, x, scale, zero, dtype, axis or 0, block)


def _dtype(node: Node, index: int) -> str:
    """The dtype that a result is asked in: that of the zero point, or an attribute's."""
    from onnx import helper

    kind = node.attr("output_dtype", 0)
    asked = str(np.dtype(helper.tensor_dtype_to_np_dtype(kind))) if kind else ""
    return asked or (node.info(index).dtype if node.has(index) else "uint8")


def _optional(node: Node, index: int) -> Expr | None:
    return node.input(index) if node.has(index) else None


@converter("QuantizeLinear")
def quantize_linear(node: Node) -> Expr:
    x, zero = node.input(0), _optional(node, 2)
    if not info_of(x).dtype.startswith("float"):
        x = node.emit(op.astype(x, "float32"))
    return quantized(node, x, node.input(1), zero, _dtype(node, 2), node.attr("axis", 1), node.attr("block_size", 0))


def by_range(node: Node, x: Expr) -> tuple[Expr, Expr, Expr]:
    """(x as uint8, its scale, its zero point) by its least and largest value, 0 among them.

    A range of nothing gives the scale 1, as in ONNX Runtime; NaN gives a scale of NaN.
    """
    if is_empty(x):
        x = node.emit(op.astype(x, "uint8"))
        return x, Constant(np.array(1, np.float32)), Constant(np.array(0, np.uint8))
    none, one = (Constant(np.array(v, np.float32)) for v in (0, 1))
    low = node.emit(op.minimum(node.emit(op.min(x, keep_nan=True)), none))
    high = node.emit(op.maximum(node.emit(op.max(x, keep_nan=True)), none))
    step = node.emit(op.divide(op.subtract(high, low), Constant(np.array(255, np.float32))))
    scale = node.emit(op.where(op.equal(step, none), one, step))
    zero = node.emit(op.astype(op.clip(op.round(op.divide(op.negative(low), scale)), 0.0, 255.0), "uint8"))
    return quantized(node, x, scale, zero, "uint8", None), scale, zero


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> tuple[Expr, Expr, Expr]:
    return by_range(node, node.input(0))


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> Expr | Held:
    if (packed := _packed(node)) is not None:
        return packed
    zero = _optional(node, 2)
    return dequantized(node, node.input(0), node.input(1), zero, node.attr("axis", 1), node.attr("block_size", 0))


def _packed(node: Node) -> Held | None:
    """A known matrix of integers of 4 bits, which stays packed; None for all others."""
    held = [node.inputs[0], node.inputs[2] if node.has(2) else None]
    values, zeros = (x.value if isinstance(x, Held) and x.is_known else None for x in held)
    scale = node.inputs[1]
    if not isinstance(values, np.ndarray) or not isinstance(scale, Constant) or node.attr("output_dtype", 0):
        return None
    if held[1] is not None and not isinstance(zeros, np.ndarray):
        return None
    return packed_weight(values, scale.data, zeros, node.attr("axis", 1), node.attr("block_size", 0))


def _bytes(node: Node, index: int) -> Expr:
    x = node.input(index)
    if (given := info_of(x).dtype) not in ("int8", "uint8"):
        raise node.fail(f"input {index} is {given}, where int8 or uint8 is multiplied")
    return x


def _centred(node: Node, index: int, zero_index: int, axis: int | None) -> Expr:
    """An integer input less its zero point, as int32."""
    x = _bytes(node, index)
    whole = op.astype(x, "int32")
    if not node.has(zero_index):
        return node.emit(whole)
    if (kind := node.info(zero_index).dtype) != info_of(x).dtype:
        raise node.fail(MIXED.format(kind, info_of(x).dtype))
    return node.emit(op.subtract(whole, op.astype(_along(node, x, node.input(zero_index), axis), "int32")))


@converter("MatMulInteger")
def matmul_integer(node: Node) -> Expr:
    return op.matmul(_centred(node, 0, 2, -2), _centred(node, 1, 3, -1))


def _window(node: Node, images: tuple[Dim, ...], kernel: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    if len(images) != 4:
        raise node.fail(f"only images [N, C, H, W] are supported, got {len(images)} dimensions")
    strides, dilations = list(node.attr("strides", [1, 1])), list(node.attr("dilations", [1, 1]))
    padding = window_padding(node, images[2:], list(kernel), strides, dilations)
    return {"strides": strides, "padding": padding, "dilation": dilations, "groups": node.attr("group", 1)}


@converter("ConvInteger")
def conv_integer(node: Node) -> Expr:
    window = _window(node, node.info(0).dims, node.shape(1)[2:])
    return op.nn.conv2d(_centred(node, 0, 2, None), _centred(node, 1, 3, 0), **window)


def _quantised(node: Node) -> list[Expr]:
    """The factors, a scale and a zero point behind each of them, then those of the result."""
    return [_bytes(node, i) if i in (0, 3) else node.input(i) for i in range(8)]


@converter("QLinearMatMul")
def qlinear_matmul(node: Node) -> Expr:
    """Exact in int32; the scales are multiplied in float32."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = _quantised(node)
    check_scale(node, a_scale, a_zero, info_of(a).dtype)
    check_scale(node, b_scale, b_zero, info_of(b).dtype)
    whole = [
        node.emit(op.subtract(op.astype(x, "int32"), op.astype(_along(node, x, z, axis), "int32")))
        for x, z, axis in ((a, a_zero, -2), (b, b_zero, -1))
    ]
    total = node.emit(op.astype(op.matmul(*whole), "float32"))
    for x, scale, axis in ((a, a_scale, -2), (b, b_scale, -1)):
        total = node.emit(op.multiply(total, op.astype(_along(node, x, scale, axis), "float32")))
    return quantized(node, total, y_scale, y_zero, info_of(y_zero).dtype, -1)


@converter("QLinearConv")
def qlinear_conv(node: Node) -> Expr:
    """Exact in int32, the bias with it; the scales are multiplied in float32."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = _quantised(node)
    check_scale(node, x_scale, x_zero, info_of(x).dtype)
    check_scale(node, w_scale, w_zero, info_of(w).dtype)
    check_count(node, x, x_scale, None)
    check_count(node, w, w_scale, 0)
    window = _window(node, info_of(x).dims, info_of(w).static_shape[2:])
    whole = [
        node.emit(op.subtract(op.astype(v, "int32"), op.astype(_along(node, v, z, axis), "int32")))
        for v, z, axis in ((x, x_zero, None), (w, w_zero, 0))
    ]
    total = node.emit(op.nn.conv2d(*whole, **window))
    channels = (1, info_of(w).static_shape[0], 1, 1)
    if node.has(8):
        total = node.emit(op.add(total, op.reshape(node.input(8), ShapeExpr(channels))))
    scale = op.multiply(x_scale, w_scale)
    if math.prod(info_of(w_scale).static_shape) > 1:
        scale = op.reshape(node.emit(scale), ShapeExpr(channels))
    real = node.emit(op.multiply(op.astype(total, "float32"), node.emit(scale)))
    return quantized(node, real, y_scale, y_zero, info_of(y_zero).dtype, None)
