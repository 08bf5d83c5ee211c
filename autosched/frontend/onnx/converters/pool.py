"""Pooling."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np

from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr

MOST_PLACES = 64  # of a window whose elements are compared one after the other


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
def max_pool(node: Node) -> Expr | tuple[Expr, Expr]:
    largest = _pooled(node, node.input(0), op.nn.max_pool2d)
    if node.num_outputs < 2:
        return largest
    largest = node.emit(largest)
    return largest, _places(node, largest)


def _places(node: Node, largest: Expr) -> Expr:
    """Where the largest of each window lies, counted over the whole input: the first of equal ones."""
    x, info, results = node.input(0), node.info(0), info_of(largest)
    kernel = list(node.attr("kernel_shape"))
    rank = len(kernel)
    if not info.is_static or math.prod(kernel) > MOST_PLACES:
        raise node.no_kernel(f"places of the largest in windows of {kernel}")
    strides, dilations = list(node.attr("strides", [1] * rank)), list(node.attr("dilations", [1] * rank))
    before = window_padding(node, info.dims[2:], kernel, strides, dilations)[:rank]
    lead, size, count = info.static_shape[:2], info.static_shape[2:], results.static_shape[2:]
    firsts = [np.arange(n) * s - b for n, s, b in zip(count, strides, before, strict=True)]
    # as far as the last window reaches; what is beyond the input is never the largest, or as small as all that is
    ends = [
        max(0, int(f[-1]) + (k - 1) * d + 1 - n) for f, k, d, n in zip(firsts, kernel, dilations, size, strict=True)
    ]
    least = np.iinfo(info.dtype).min if info.dtype.startswith(("int", "uint")) else -math.inf
    widths = [0] * 4 + [n for pair in zip(before, ends, strict=True) for n in pair]
    wide = node.emit(op.nn.pad(x, pad_width=tuple(widths), pad_value=least)) if any(widths) else x
    steps = [math.prod(size[a + 1 :]) for a in range(rank)]
    if node.attr("storage_order", 0):
        steps = [math.prod(size[:a]) for a in range(rank)]
    best: Expr | None = None
    place: Expr | None = None
    for window in itertools.product(*map(range, kernel)):
        moved = [w * d for w, d in zip(window, dilations, strict=True)]
        ends_at = [m + (n - 1) * s + 1 for m, n, s in zip(moved, count, strides, strict=True)]
        value = node.emit(
            op.strided_slice(wide, axes=tuple(range(2, rank + 2)), begin=moved, end=ends_at, strides=strides)
        )
        axes = [np.clip(f + m, 0, n - 1) * s for f, m, n, s in zip(firsts, moved, size, steps, strict=True)]
        at = Constant(functools.reduce(np.add.outer, axes).astype(np.int64))
        if best is None or place is None:
            best, place = value, node.emit(op.broadcast_to(at, ShapeExpr(results.dims)))
            continue
        is_more = node.emit(op.greater(value, best))
        best, place = (node.emit(op.where(is_more, a, b)) for a, b in ((value, best), (at, place)))
    assert place is not None, "a window has an element"
    images = np.arange(math.prod(lead)).reshape(*lead, *[1] * rank) * math.prod(size)
    return op.add(place, Constant(images.astype(np.int64)))


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
