"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr


def _pooled(node: Node, x: Expr, pool: Callable[..., Expr], **more: object) -> Expr:
    """Pool over one to three dimensions: a window of three is one over the last two, then one over the first."""
    info = info_of(x)
    rank = info.ndim - 2
    kernel = list(node.attr("kernel_shape"))
    if rank not in (1, 2, 3) or len(kernel) != rank:
        raise node.no_kernel(f"a window of {len(kernel)} dimensions over {rank}")
    strides, dilations = list(node.attr("strides", [1] * rank)), list(node.attr("dilations", [1] * rank))
    pads = window_padding(node, info.dims[2:], kernel, strides, dilations)
    more["ceil_mode"] = bool(node.attr("ceil_mode", 0))

    def over(value: Expr, axes: list[int]) -> Expr:
        """Pool over an image, whose dimensions are these of the window; None stands for one that is left alone."""
        found = [
            (kernel[a], strides[a], dilations[a], pads[a], pads[rank + a]) if a >= 0 else (1, 1, 1, 0, 0) for a in axes
        ]
        size, stride, dilation, before, after = map(list, zip(*found, strict=True))
        window = {"pool_size": size, "strides": stride, "dilation": dilation, "padding": [*before, *after]}
        return node.emit(pool(value, **window, **more))

    if rank < 3 and not isinstance(info.dims[1], int):  # channels by themselves, as a batch
        n, c, *size = info.dims
        single = node.emit(op.reshape(x, ShapeExpr((n * c, 1, *[1] * (2 - rank), *size))))
        pooled = over(single, [0, 1] if rank == 2 else [-1, 0])
        return op.reshape(pooled, ShapeExpr((n, c, *info_of(pooled).dims[4 - rank :])))
    if rank == 2:
        return over(x, [0, 1])
    if rank == 1:
        flat = over(node.emit(op.expand_dims(x, axis=(2,))), [-1, 0])
        return op.squeeze(flat, axis=(2,))
    n, c, d, h, w = info.image_shape
    planes = over(node.emit(op.reshape(x, ShapeExpr((n, c * d, h, w)))), [1, 2])
    *_, h, w = info_of(planes).dims
    stacks = over(node.emit(op.reshape(planes, ShapeExpr((n, c, d, h * w)))), [0, -1])
    return op.reshape(stacks, ShapeExpr((n, c, info_of(stacks).dims[2], h, w)))


@converter("MaxPool")
def max_pool(node: Node) -> Expr:
    return _pooled(node, node.input(0), op.nn.max_pool2d)


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    include = bool(node.attr("count_include_pad", 0))
    return _pooled(node, node.input(0), op.nn.avg_pool2d, count_include_pad=include)


@converter("LpPool")
def lp_pool(node: Node) -> Expr:
    """The p-th root of the sum of p-th powers of a window: of the mean, times its size."""
    p, size = node.attr("p", 2), math.prod(node.attr("kernel_shape"))
    powers = node.emit(_power(node.input(0), p))
    mean = node.emit(_pooled(node, powers, op.nn.avg_pool2d, count_include_pad=True))
    return _root(node, op.multiply(mean, constant(size, info_of(mean).dtype)), p)


@converter("GlobalLpPool")
def global_lp_pool(node: Node) -> Expr:
    p = node.attr("p", 2)
    axes = tuple(range(2, node.info(0).ndim))
    return _root(node, op.sum(node.emit(_power(node.input(0), p)), axis=axes, keepdims=True), p)


def _power(x: Expr, p: int) -> Expr:
    """|x| ** p"""
    return op.multiply(x, x) if p == 2 else op.power(op.abs(x), constant(p, info_of(x).dtype))


def _root(node: Node, x: Expr, p: int) -> Expr:
    value = node.emit(x)
    return op.sqrt(value) if p == 2 else op.power(value, constant(1 / p, info_of(value).dtype))


@converter("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    if node.info(0).ndim == 4 and isinstance(node.info(0).dims[1], int):
        return op.nn.adaptive_avg_pool2d(node.input(0), output_size=1)
    return op.mean(node.input(0), axis=tuple(range(2, node.info(0).ndim)), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    return op.max(node.input(0), axis=tuple(range(2, node.info(0).ndim)), keepdims=True)
