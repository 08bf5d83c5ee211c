"""Deformable convolutions: elements at the places that another input moves a window to, then one matrix product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from autosched.frontend.onnx.converters.conv import window_padding
from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.op.col2im import windows_along
from autosched.topi.indexing import weighted_rows


@converter("DeformConv")
def deform_conv(node: Node) -> Expr:
    """Over one to three dimensions: weighted sums of rows of neighbouring channels, times the window's weights."""
    return _Deformed(node).result()


class _Deformed:
    """One such convolution.

    A block is the largest run of channels that share offsets and weights. `blocks` of `width` channels each make an
    image, `own` of them a group.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        (self.n, self.channels, *self.size), (self.results, self.per_group, *self.kernel) = node.shape(0), node.shape(1)
        rank = self.rank = len(self.size)
        groups, self.offset_groups = node.attr("group", 1), node.attr("offset_group", 1)
        self.strides, self.dilations = (list(node.attr(name, [1] * rank)) for name in ("strides", "dilations"))
        if rank not in (1, 2, 3) or list(node.attr("kernel_shape", self.kernel)) != self.kernel or 0 in node.shape(1):
            raise node.no_kernel(f"a window of {self.kernel} over {list(node.shape(0))}")
        self.pads = window_padding(node, self.size, self.kernel, self.strides, self.dilations)
        both = [before + after for before, after in zip(self.pads[:rank], self.pads[rank:], strict=True)]
        self.found = [*map(windows_along, self.size, self.kernel, self.strides, both, self.dilations)]
        self.taps, self.places = math.prod(self.kernel), math.prod(self.found)
        self._check(groups)
        self.dtype = node.info(0).dtype
        self.inner = self.dtype if self.dtype in ("float32", "float64") else "float32"
        self.is_depthwise = self.per_group == 1 and self.results == groups
        self.groups = 1 if self.is_depthwise else groups  # sums over taps, of channels side by side
        self.blocks = math.lcm(self.groups, self.offset_groups)
        self.own, self.width = self.blocks // self.groups, self.channels // self.blocks
        self.rows = math.prod(self.size) + 1  # of a block; see `table`
        self.index = "int32" if self.n * self.blocks * self.rows < 2**31 else "int64"

    def _check(self, groups: int) -> None:
        node, offset_groups = self.node, self.offset_groups
        n, channels, results = self.n, self.channels, self.results
        if channels != self.per_group * groups or results % groups or channels % offset_groups or min(self.found) < 1:
            found = f"{channels} channels in {groups} and {offset_groups} groups, weights {list(node.shape(1))}"
            raise node.fail(found)
        offsets, masks = ((n, offset_groups * self.taps * k, *self.found) for k in (self.rank, 1))
        for i, shape in {2: offsets, 3: (results,), 4: masks}.items():
            if (i == 2 or node.has(i)) and node.shape(i) != shape:
                raise node.fail(f"input {i} has shape {list(node.shape(i))} instead of {list(shape)}")
        if 0 in node.shape(0):
            raise node.no_kernel("no elements")

    def result(self) -> Expr:
        """[n, results, *found]: the products of windows and weights, and the bias."""
        node, n, groups, per_group = self.node, self.n, self.groups, self.per_group
        taps, places, results = self.taps, self.places, self.results
        at, weights = zip(*map(self.corner, itertools.product(*map(self.neighbours, range(self.rank)))), strict=True)
        rows = self.of_blocks(at, (np.arange(n * self.blocks) * self.rows).astype(self.index))
        windows = node.emit(node.call_te(weighted_rows, self.table(), rows, self.of_blocks(weights)))
        if self.is_depthwise:
            shares = self.cast(self.turned(self.reshaped(node.input(1), results, taps), 1, 0), self.inner)
            parts = node.emit(op.multiply(self.reshaped(windows, n, 1, places, taps, results), shares))
            product = self.cast(node.emit(op.sum(parts, axis=(3,))), self.dtype)
        else:
            columns = self.cast(self.reshaped(windows, n, groups, places, taps * per_group), self.dtype)
            shares = self.turned(self.reshaped(node.input(1), groups, results // groups, per_group, taps), 0, 3, 2, 1)
            matrix = self.reshaped(shares, groups, taps * per_group, results // groups)
            product = node.emit(op.matmul(columns, matrix))
        out = self.reshaped(self.turned(product, 0, 1, 3, 2), n, results, *self.found)
        bias = (1, results, *[1] * self.rank)
        return op.add(out, self.reshaped(node.input(3), *bias)) if node.has(3) else out

    def table(self) -> Expr:
        """[n * blocks * rows, width]: the elements of each block, behind them zeros for every place outside."""
        blocked = self.reshaped(self.node.input(0), self.n, self.blocks, self.width, self.rows - 1)
        padded = op.nn.pad(self.turned(blocked, 0, 1, 3, 2), pad_width=(0, 0, 0, 0, 0, 1, 0, 0))
        table = self.reshaped(self.node.emit(padded), self.n * self.blocks * self.rows, self.width)
        return self.cast(table, self.inner)

    def corner(self, sides: Sequence[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        """(rows of a block, weights): one of the neighbours of each place, given along each dimension."""
        node, inner = self.node, self.inner
        weight = self.cast(self.reshaped(node.input(4), *self.grid), inner) if node.has(4) else None
        inside, place = None, None
        for size, (at, share) in zip(self.size, sides, strict=True):
            last = constant(size - 1, inner)
            fits = op.logical_and(op.greater_equal(at, constant(0, inner)), op.less_equal(at, last))
            index = op.astype(op.clip(at, 0.0, size - 1.0), self.index)
            inside = fits if inside is None else op.logical_and(inside, fits)
            place = index if place is None else op.add(op.multiply(place, constant(size, self.index)), index)
            weight = share if weight is None else op.multiply(weight, share)
        assert inside is not None and place is not None and weight is not None, "there is a dimension"
        return node.emit(op.where(inside, place, constant(self.rows - 1, self.index))), node.emit(weight)

    def neighbours(self, d: int) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        """The element before and that behind each place along a dimension, and the weight of each."""
        at, one = self.along(d), constant(1, self.inner)
        low = self.node.emit(op.floor(at))
        share = self.node.emit(op.subtract(at, low))
        before = low, self.node.emit(op.subtract(one, share))
        return before, (self.node.emit(op.add(low, one)), share)

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of what is known of each tap of each place."""
        return self.n, self.offset_groups, self.taps, self.places

    def along(self, d: int) -> Expr:
        """Where every tap of every place lies along a dimension, counted in elements."""
        moved = self.reshaped(self.node.input(2), self.n, self.offset_groups, self.taps, self.rank, self.places)
        cut = self.node.emit(op.strided_slice(moved, axes=(3,), begin=(d,), end=(d + 1,), strides=(1,)))
        tap, place = np.indices(self.kernel)[d].reshape(-1, 1), np.indices(self.found)[d].reshape(1, -1)
        usual = tap * self.dilations[d] + place * self.strides[d] - self.pads[d]
        offset = self.cast(self.reshaped(cut, *self.grid), self.inner)
        return self.node.emit(op.add(offset, constant(usual, self.inner)))

    def of_blocks(self, corners: tuple[Expr, ...], first: np.ndarray | None = None) -> Expr:
        """[n, groups, places, taps, own, corners] of what offset groups have; `first` is added for each block."""
        inside, count = (self.taps, self.places, len(corners)), self.blocks // self.offset_groups
        stacked = self.node.emit(op.stack(corners, axis=4))
        wide = self.reshaped(stacked, self.n, self.offset_groups, 1, *inside)
        if first is not None:
            by_block = Constant(first.reshape(self.n, self.offset_groups, count, 1, 1, 1))
            wide = self.node.emit(op.add(wide, by_block))
        elif count > 1:
            wide = self.node.emit(op.broadcast_to(wide, ShapeExpr((self.n, self.offset_groups, count, *inside))))
        return self.turned(self.reshaped(wide, self.n, self.groups, self.own, *inside), 0, 1, 4, 3, 2, 5)

    def cast(self, x: Expr, dtype: str) -> Expr:
        return self.node.emit(op.astype(x, dtype))

    def reshaped(self, x: Expr, *shape: int) -> Expr:
        return self.node.emit(op.reshape(x, ShapeExpr(shape)))

    def turned(self, x: Expr, *axes: int) -> Expr:
        return x if axes == (*range(len(axes)),) else self.node.emit(op.permute_dims(x, axes=axes))
