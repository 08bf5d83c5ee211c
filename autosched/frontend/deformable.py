"""Deformable convolutions: weighted sums of elements at the places that an input moves a window to, times weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from autosched.frontend.size_arithmetic import info_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.op.col2im import windows_along
from autosched.topi.indexing import weighted_rows

Emit = Callable[[Expr], Expr]  # binds a value


class DeformableConv:
    """A convolution over one to three dimensions; all sizes are known, and images have elements.

    images   [N, C, ...]
    weights  [results, C / groups, ...]
    offsets  [N, offset_groups * taps * rank, ...]: of each tap along each dimension, in elements
    bias     [results]
    mask     [N, offset_groups * taps, ...]: what each tap's elements are multiplied with
    pads     all begins, then all ends

    A block is the largest run of channels that share offsets and weights. `blocks` of `width` channels each make an
    image, `own` of them a group.
    """

    def __init__(
        self, emit: Emit, call_te: Callable[..., Expr], images: Expr, weights: Expr, offsets: Expr, bias: Expr | None,
        mask: Expr | None, *, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int,
        offset_groups: int,
    ) -> None:  # fmt: skip
        self.emit, self.call_te = emit, call_te
        self.images, self.weights, self.offsets, self.bias, self.mask = images, weights, offsets, bias, mask
        (self.n, self.channels, *self.size), (self.results, self.per_group, *self.kernel) = (
            info_of(x).static_shape for x in (images, weights)
        )
        rank, self.offset_groups = len(self.size), offset_groups
        self.rank, self.strides, self.pads, self.dilations = rank, strides, pads, dilations
        both = [before + after for before, after in zip(pads[:rank], pads[rank:], strict=True)]
        self.found = [*map(windows_along, self.size, self.kernel, strides, both, dilations)]
        self.taps, self.places = math.prod(self.kernel), math.prod(self.found)
        self.dtype = info_of(images).dtype
        self.inner = self.dtype if self.dtype in ("float32", "float64") else "float32"
        self.is_depthwise = self.per_group == 1 and self.results == groups
        self.groups = 1 if self.is_depthwise else groups  # sums over taps, of channels side by side
        self.blocks = math.lcm(self.groups, offset_groups)
        self.own, self.width = self.blocks // self.groups, self.channels // self.blocks
        self.rows = math.prod(self.size) + 1  # of a block; see `table`
        self.index = "int32" if self.n * self.blocks * self.rows < 2**31 else "int64"

    def result(self) -> Expr:
        """[n, results, *found]: the products of windows and weights, and the bias."""
        emit, n, groups, per_group = self.emit, self.n, self.groups, self.per_group
        taps, places, results = self.taps, self.places, self.results
        at, weights = zip(*map(self.corner, itertools.product(*map(self.neighbours, range(self.rank)))), strict=True)
        rows = self.of_blocks(at, (np.arange(n * self.blocks) * self.rows).astype(self.index))
        windows = emit(self.call_te(weighted_rows, self.table(), rows, self.of_blocks(weights)))
        if self.is_depthwise:
            shares = self.cast(self.turned(self.reshaped(self.weights, results, taps), 1, 0), self.inner)
            parts = emit(op.multiply(self.reshaped(windows, n, 1, places, taps, results), shares))
            product = self.cast(emit(op.sum(parts, axis=(3,))), self.dtype)
        else:
            columns = self.cast(self.reshaped(windows, n, groups, places, taps * per_group), self.dtype)
            shares = self.turned(self.reshaped(self.weights, groups, results // groups, per_group, taps), 0, 3, 2, 1)
            matrix = self.reshaped(shares, groups, taps * per_group, results // groups)
            product = emit(op.matmul(columns, matrix))
        out = self.reshaped(self.turned(product, 0, 1, 3, 2), n, results, *self.found)
        bias = self.bias
        return out if bias is None else op.add(out, self.reshaped(bias, 1, results, *[1] * self.rank))

    def table(self) -> Expr:
        """[n * blocks * rows, width]: the elements of each block, behind them zeros for every place outside."""
        blocked = self.reshaped(self.images, self.n, self.blocks, self.width, self.rows - 1)
        padded = op.nn.pad(self.turned(blocked, 0, 1, 3, 2), pad_width=(0, 0, 0, 0, 0, 1, 0, 0))
        table = self.reshaped(self.emit(padded), self.n * self.blocks * self.rows, self.width)
        return self.cast(table, self.inner)

    def corner(self, sides: Sequence[tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
        """(rows of a block, weights): one of the neighbours of each place, given along each dimension."""
        emit, inner = self.emit, self.inner
        weight = None if self.mask is None else self.cast(self.reshaped(self.mask, *self.grid), inner)
        inside, place = None, None
        for size, (at, share) in zip(self.size, sides, strict=True):
            last = _constant(size - 1, inner)
            fits = op.logical_and(op.greater_equal(at, _constant(0, inner)), op.less_equal(at, last))
            index = op.astype(op.clip(at, 0.0, size - 1.0), self.index)
            inside = fits if inside is None else op.logical_and(inside, fits)
            place = index if place is None else op.add(op.multiply(place, _constant(size, self.index)), index)
            weight = share if weight is None else op.multiply(weight, share)
        assert inside is not None and place is not None and weight is not None, "there is a dimension"
        return emit(op.where(inside, place, _constant(self.rows - 1, self.index))), emit(weight)

    def neighbours(self, d: int) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        """The element before and that behind each place along a dimension, and the weight of each."""
        at, one = self.along(d), _constant(1, self.inner)
        low = self.emit(op.floor(at))
        share = self.emit(op.subtract(at, low))
        before = low, self.emit(op.subtract(one, share))
        return before, (self.emit(op.add(low, one)), share)

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of what is known of each tap of each place."""
        return self.n, self.offset_groups, self.taps, self.places

    def along(self, d: int) -> Expr:
        """Where every tap of every place lies along a dimension, counted in elements."""
        moved = self.reshaped(self.offsets, self.n, self.offset_groups, self.taps, self.rank, self.places)
        cut = self.emit(op.strided_slice(moved, axes=(3,), begin=(d,), end=(d + 1,), strides=(1,)))
        tap, place = np.indices(self.kernel)[d].reshape(-1, 1), np.indices(self.found)[d].reshape(1, -1)
        usual = tap * self.dilations[d] + place * self.strides[d] - self.pads[d]
        offset = self.cast(self.reshaped(cut, *self.grid), self.inner)
        return self.emit(op.add(offset, _constant(usual, self.inner)))

    def of_blocks(self, corners: tuple[Expr, ...], first: np.ndarray | None = None) -> Expr:
        """[n, groups, places, taps, own, corners] of what offset groups have; `first` is added for each block."""
        inside, count = (self.taps, self.places, len(corners)), self.blocks // self.offset_groups
        stacked = self.emit(op.stack(corners, axis=4))
        wide = self.reshaped(stacked, self.n, self.offset_groups, 1, *inside)
        if first is not None:
            by_block = Constant(first.reshape(self.n, self.offset_groups, count, 1, 1, 1))
            wide = self.emit(op.add(wide, by_block))
        elif count > 1:
            wide = self.emit(op.broadcast_to(wide, ShapeExpr((self.n, self.offset_groups, count, *inside))))
        return self.turned(self.reshaped(wide, self.n, self.groups, self.own, *inside), 0, 1, 4, 3, 2, 5)

    def cast(self, x: Expr, dtype: str) -> Expr:
        return self.emit(op.astype(x, dtype))

    def reshaped(self, x: Expr, *shape: int) -> Expr:
        return self.emit(op.reshape(x, ShapeExpr(shape)))

    def turned(self, x: Expr, *axes: int) -> Expr:
        return x if axes == (*range(len(axes)),) else self.emit(op.permute_dims(x, axes=axes))


def _constant(value: object, dtype: str) -> Constant:
    return Constant(np.asarray(value, dtype))
