"""Deformable convolutions of ONNX."""

from __future__ import annotations

import math

from autosched.frontend.deformable import DeformableConv
from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax.expr import Expr
from autosched.relax.op.col2im import windows_along


@converter("DeformConv")
def deform_conv(node: Node) -> Expr:
    """A convolution over one to three dimensions whose taps are moved by an input."""
    (n, channels, *size), (results, per_group, *kernel) = node.shape(0), node.shape(1)
    rank, groups, offset_groups = len(size), node.attr("group", 1), node.attr("offset_group", 1)
    strides, dilations = (list(node.attr(name, [1] * rank)) for name in ("strides", "dilations"))
    if rank not in (1, 2, 3) or list(node.attr("kernel_shape", kernel)) != kernel or 0 in node.shape(1):
        raise node.no_kernel(f"a window of {kernel} over {list(node.shape(0))}")
    pads = window_padding(node, size, kernel, strides, dilations)
    both = [before + after for before, after in zip(pads[:rank], pads[rank:], strict=True)]
    found = [*map(windows_along, size, kernel, strides, both, dilations)]
    taps = math.prod(kernel)
    if channels != per_group * groups or results % groups or channels % offset_groups or min(found) < 1:
        raise node.fail(f"{channels} channels in {groups} and {offset_groups} groups, weights {list(node.shape(1))}")
    shapes = {2: (n, offset_groups * taps * rank, *found), 3: (results,), 4: (n, offset_groups * taps, *found)}
    for i, shape in shapes.items():
        if (i == 2 or node.has(i)) and node.shape(i) != shape:
            raise node.fail(f"input {i} has shape {list(node.shape(i))} instead of {list(shape)}")
    if 0 in node.shape(0):
        raise node.no_kernel("no elements")
    bias, mask = (node.input(i) if node.has(i) else None for i in (3, 4))
    convolution = DeformableConv(
        node.emit, node.call_te, node.input(0), node.input(1), node.input(2), bias, mask, strides=strides, pads=pads,
        dilations=dilations, groups=groups, offset_groups=offset_groups,
    )  # fmt: skip
    return convolution.result()
