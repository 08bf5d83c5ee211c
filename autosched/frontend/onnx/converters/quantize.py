"""Quantised tensors: integers with a scale and a zero point for the tensor, each channel, or each block."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend import quantised
from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Node, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.quantised import WHOLE, along, fault
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr

MIXED = "a zero point of {} for values of {}: both have one type"


def _along(node: Node, x: Expr, value: Expr, axis: int) -> Expr:
    return along(node.emit, x, value, axis)


def check_scale(node: Node, scale: Expr, zero: Expr | None, dtype: str) -> None:
    """Raises ImportModelError for what stands for no numbers of a quantised dtype."""
    if dtype not in WHOLE:
        raise node.no_kernel(f"quantised {dtype} is not supported; there are {', '.join(WHOLE)}")
    if zero is not None and info_of(zero).dtype != dtype:
        raise node.fail(MIXED.format(info_of(zero).dtype, dtype))
    if (wrong := fault(scale, zero, dtype)) is not None:
        raise node.fail(wrong)


def dequantized(node: Node, x: Expr, scale: Expr, zero: Expr | None, axis: int, block: int = 0) -> Expr:
    """(x - zero) * scale in the scale's dtype."""
    check_scale(node, scale, zero, info_of(x).dtype)
    return quantised.dequantized(node.emit, x, scale, zero, axis, block)


def quantized(node: Node, x: Expr, scale: Expr, zero: Expr | None, dtype: str, axis: int, block: int = 0) -> Expr:
    """round(x / scale) + zero within the limits of the dtype; halves to the even neighbour."""
    check_scale(node, scale, zero, dtype)
    return quantised.quantized(node.emit, x, scale, zero, dtype, axis, block)


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


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> Expr:
    zero = _optional(node, 2)
    return dequantized(node, node.input(0), node.input(1), zero, node.attr("axis", 1), node.attr("block_size", 0))


def _centred(node: Node, index: int, zero_index: int, axis: int) -> Expr:
    """An integer input less its zero point, as int32."""
    x = node.input(index)
    if (given := info_of(x).dtype) not in ("int8", "uint8"):
        raise node.fail(f"input {index} is {given}, where int8 or uint8 is multiplied")
    whole = op.astype(x, "int32")
    if not node.has(zero_index):
        return node.emit(whole)
    if (kind := node.info(zero_index).dtype) != info_of(x).dtype:
        raise node.fail(MIXED.format(kind, info_of(x).dtype))
    return node.emit(op.subtract(whole, op.astype(_along(node, x, node.input(zero_index), axis), "int32")))


@converter("MatMulInteger")
def matmul_integer(node: Node) -> Expr:
    return op.matmul(_centred(node, 0, 2, -2), _centred(node, 1, 3, -1))


def _window(node: Node, images: tuple[int, ...], kernel: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    if len(images) != 4:
        raise node.fail(f"only images [N, C, H, W] are supported, got {len(images)} dimensions")
    strides, dilations = list(node.attr("strides", [1, 1])), list(node.attr("dilations", [1, 1]))
    padding = window_padding(node, images[2:], list(kernel), strides, dilations)
    return {"strides": strides, "padding": padding, "dilation": dilations, "groups": node.attr("group", 1)}


@converter("ConvInteger")
def conv_integer(node: Node) -> Expr:
    window = _window(node, node.shape(0), node.shape(1)[2:])
    return op.nn.conv2d(_centred(node, 0, 2, 1), _centred(node, 1, 3, 0), **window)


@converter("QLinearMatMul")
def qlinear_matmul(node: Node) -> Expr:
    """Exact in int32; the scales are multiplied in float32."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.input(i) for i in range(8))
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
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.input(i) for i in range(8))
    check_scale(node, x_scale, x_zero, info_of(x).dtype)
    check_scale(node, w_scale, w_zero, info_of(w).dtype)
    window = _window(node, info_of(x).static_shape, info_of(w).static_shape[2:])
    whole = [
        node.emit(op.subtract(op.astype(v, "int32"), op.astype(_along(node, v, z, axis), "int32")))
        for v, z, axis in ((x, x_zero, 1), (w, w_zero, 0))
    ]
    total = node.emit(op.nn.conv2d(*whole, **window))
    channels = (1, info_of(w).static_shape[0], 1, 1)
    if node.has(8):
        total = node.emit(op.add(total, op.reshape(node.input(8), ShapeExpr(channels))))
    scale = op.multiply(x_scale, w_scale)
    if math.prod(info_of(w_scale).static_shape) > 1:
        scale = op.reshape(node.emit(scale), ShapeExpr(channels))
    real = node.emit(op.multiply(op.astype(total, "float32"), node.emit(scale)))
    return quantized(node, real, y_scale, y_zero, info_of(y_zero).dtype, 1)
