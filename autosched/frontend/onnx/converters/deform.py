"""Deformable convolutions: elements at the places that another input moves a window to, then one matrix product."""

from __future__ import annotations

import itertools
import math

import numpy as np

from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.op.col2im import windows_along

Array = np.ndarray


@converter("DeformConv")
def deform_conv(node: Node) -> Expr:
    """Over one to three dimensions: rows of neighbouring channels are taken from [N, blocks, places, channels].

    A block is the largest run of channels that share offsets and weights; behind its rows lies one of zeros, which
    stands for every place outside.
    """
    (n, channels, *size), (results, per_group, *kernel) = node.shape(0), node.shape(1)
    rank, groups, offset_groups = len(size), node.attr("group", 1), node.attr("offset_group", 1)
    strides, dilations = (list(node.attr(name, [1] * rank)) for name in ("strides", "dilations"))
    if rank not in (1, 2, 3) or list(node.attr("kernel_shape", kernel)) != kernel or 0 in node.shape(1):
        raise node.no_kernel(f"a window of {kernel} over {list(node.shape(0))}")
    pads = window_padding(node, size, kernel, strides, dilations)
    both = [before + after for before, after in zip(pads[:rank], pads[rank:], strict=True)]
    found = [*map(windows_along, size, kernel, strides, both, dilations)]
    taps, places = math.prod(kernel), math.prod(found)
    if channels != per_group * groups or results % groups or channels % offset_groups or min(found) < 1:
        raise node.fail(f"{channels} channels in {groups} and {offset_groups} groups, weights {list(node.shape(1))}")
    shapes = {2: (n, offset_groups * taps * rank, *found), 3: (results,), 4: (n, offset_groups * taps, *found)}
    for i, shape in shapes.items():
        if (i == 2 or node.has(i)) and node.shape(i) != shape:
            raise node.fail(f"input {i} has shape {list(node.shape(i))} instead of {list(shape)}")
    if 0 in node.shape(0):
        raise node.no_kernel("no elements")
    dtype = node.info(0).dtype
    inner = dtype if dtype in ("float32", "float64") else "float32"

    def reshaped(x: Expr, *shape: int) -> Expr:
        return node.emit(op.reshape(x, ShapeExpr(shape)))

    def turned(x: Expr, *axes: int) -> Expr:
        return x if axes == (*range(len(axes)),) else node.emit(op.permute_dims(x, axes=axes))

    is_depthwise = per_group == 1 and results == groups
    if is_depthwise:  # sums over taps, of channels side by side
        groups = 1
    blocks = math.lcm(groups, offset_groups)
    own, width, rows = blocks // groups, channels // blocks, math.prod(size) + 1
    grid = (n, offset_groups, taps, places)
    moved = reshaped(node.input(2), n, offset_groups, taps, rank, places)
    usual = _usual_places(kernel, found, strides, pads, dilations)

    def along(d: int) -> Expr:
        """Where every tap of every place lies along a dimension."""
        cut = op.strided_slice(moved, axes=(3,), begin=(d,), end=(d + 1,), strides=(1,))
        offset = node.emit(op.astype(reshaped(node.emit(cut), *grid), inner))
        return node.emit(op.add(offset, constant(usual[d], inner)))

    def of_blocks(x: Expr, base: Array | None) -> Expr:
        """[n, groups, places, taps, own] of what offset groups have, `base` added for each image and block."""
        wide = reshaped(x, n, offset_groups, 1, taps, places)
        if base is not None:
            wide = node.emit(op.add(wide, Constant(base.reshape(n, offset_groups, -1, 1, 1))))
        elif blocks > offset_groups:
            shape = (n, offset_groups, blocks // offset_groups, taps, places)
            wide = node.emit(op.broadcast_to(wide, ShapeExpr(shape)))
        return turned(reshaped(wide, n, groups, own, taps, places), 0, 1, 4, 3, 2)

    at = [along(d) for d in range(rank)]
    low = [node.emit(op.floor(p)) for p in at]
    above = [node.emit(op.subtract(p, f)) for p, f in zip(at, low, strict=True)]
    below = [node.emit(op.subtract(constant(1, inner), a)) for a in above]
    high = [node.emit(op.add(f, constant(1, inner))) for f in low]
    mask = node.emit(op.astype(reshaped(node.input(4), *grid), inner)) if node.has(4) else None
    images = turned(reshaped(node.input(0), n, blocks, width, rows - 1), 0, 1, 3, 2)
    padded = node.emit(op.nn.pad(images, pad_width=(0, 0, 0, 0, 0, 1, 0, 0)))
    table = reshaped(padded, n * blocks * rows, width)
    kind = "int32" if n * blocks * rows < 2**31 else "int64"
    base = (np.arange(n * blocks) * rows).astype(kind)

    def corner(side: tuple[int, ...]) -> Expr:
        """[n, groups, places, taps, own, width]: one of the neighbours of each place, times its weight."""
        inside, place, weight = None, None, mask
        for d, s in enumerate(side):
            where, share = (high if s else low)[d], (above if s else below)[d]
            last = constant(size[d] - 1, inner)
            fits = op.logical_and(op.greater_equal(where, constant(0, inner)), op.less_equal(where, last))
            index = op.astype(op.clip(where, 0.0, size[d] - 1.0), kind)
            inside = fits if inside is None else op.logical_and(inside, fits)
            place = index if place is None else op.add(op.multiply(place, constant(size[d], kind)), index)
            weight = share if weight is None else op.multiply(weight, share)
        assert inside is not None and place is not None and weight is not None, "there is a dimension"
        row = of_blocks(node.emit(op.where(inside, place, constant(rows - 1, kind))), base)
        taken = node.emit(op.astype(op.take(table, row, axis=0, mode="clip"), inner))
        return node.emit(op.multiply(taken, op.expand_dims(of_blocks(node.emit(weight), None), axis=(5,))))

    total = corner((0,) * rank)
    for side in [*itertools.product((0, 1), repeat=rank)][1:]:
        total = node.emit(op.add(total, corner(side)))
    if is_depthwise:
        shares = node.emit(op.astype(turned(reshaped(node.input(1), channels, taps), 1, 0), inner))
        parts = node.emit(op.multiply(reshaped(total, n, 1, places, taps, channels), shares))
        product = node.emit(op.astype(node.emit(op.sum(parts, axis=(3,))), dtype))
    else:
        columns = node.emit(op.astype(reshaped(total, n, groups, places, taps * per_group), dtype))
        weights = turned(reshaped(node.input(1), groups, results // groups, per_group, taps), 0, 3, 2, 1)
        product = node.emit(op.matmul(columns, reshaped(weights, groups, taps * per_group, results // groups)))
    out = reshaped(turned(product, 0, 1, 3, 2), n, results, *found)
    return op.add(out, reshaped(node.input(3), 1, results, *[1] * rank)) if node.has(3) else out


def _usual_places(
    kernel: list[int], found: list[int], strides: list[int], pads: list[int], dilations: list[int]
) -> list[Array]:
    """[taps, places] for each dimension: where the taps lie that nothing moves, counted in elements."""
    taps, places = np.indices(kernel), np.indices(found)
    return [
        taps[d].reshape(-1, 1) * dilations[d] + places[d].reshape(1, -1) * strides[d] - pads[d]
        for d in range(len(kernel))
    ]
