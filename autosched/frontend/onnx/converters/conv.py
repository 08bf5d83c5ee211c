"""Convolutions over one and two dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.frontend.onnx.node import Node, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr


def window_padding(
    node: Node, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Padding, all begins then all ends, from `pads` or worked out for `auto_pad`."""
    rank, mode = len(kernel), node.attr("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return list(node.attr("pads", [0] * 2 * rank))
    if mode == "VALID":
        return [0] * 2 * rank
    begins, ends = [], []
    for s, k, stride, d in zip(size, kernel, strides, dilations, strict=True):
        total = max(0, (-(-s // stride) - 1) * stride + (k - 1) * d + 1 - s)
        small = total // 2
        begins.append(total - small if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else total - small)
    return begins + ends


@converter("Conv")
def conv(node: Node) -> Expr:
    """Convolution and bias; one dimension is computed as two, the first of size 1."""
    data, weight = node.input(0), node.input(1)
    shape, rank = node.shape(1), len(node.shape(1)) - 2
    if rank not in (1, 2) or node.info(0).ndim != rank + 2:
        raise node.fail(f"convolution over {rank} dimensions is not supported")
    kernel = list(node.attr("kernel_shape", shape[2:]))
    strides, dilations = list(node.attr("strides", [1] * rank)), list(node.attr("dilations", [1] * rank))
    pads = window_padding(node, node.shape(0)[2:], kernel, strides, dilations)
    if rank == 1:
        data, weight = node.emit(op.expand_dims(data, axis=2)), node.emit(op.expand_dims(weight, axis=2))
        strides, dilations, pads = [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]]
    out = node.emit(
        op.nn.conv2d(data, weight, strides=strides, padding=pads, dilation=dilations, groups=node.attr("group", 1))
    )
    if node.has(2):
        bias = node.emit(op.reshape(node.input(2), ShapeExpr((1, shape[0], 1, 1))))
        out = node.emit(op.add(out, bias))
    return op.squeeze(out, axis=(2,)) if rank == 1 else out


def require_images(node: Node) -> tuple[int, ...]:
    """The shape of the first input, which must be [N, C, H, W]."""
    shape = info_of(node.input(0)).static_shape
    if len(shape) != 4:
        raise node.fail(f"only images [N, C, H, W] are supported, got {len(shape)} dimensions")
    return shape
