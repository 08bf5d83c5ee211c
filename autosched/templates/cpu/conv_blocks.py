"""Convolutions whose results are blocks of channels, as functions over symbols have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.ir.node import preorder
from autosched.templates.chain import Chain, chain_around
from autosched.templates.classify import extents, find_contraction, is_injective, is_parameter, reduced, spatial
from autosched.templates.winograd_form import is_sum
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.size_expr import same_extent
from autosched.tir.stmt import Block, BufferStore


@dataclass(frozen=True)
class SizedConv:
    """A convolution with a blocked output: its weight natural, [O, I, KH, KW], element-wise blocks around it."""

    weight: BufferLoad
    data: BufferLoad
    chain: Chain

    @property
    def group_blocks(self) -> int:
        """Blocks of output channels that read the same input channels: all of them, where there are no groups."""
        channels = spatial(self.chain.anchor)[1]
        n_blocks = extents((channels,))[0]
        if channels.var not in {v for i in self.data.indices for v in free_vars(i)}:
            return n_blocks
        steps, read = reduced(self.chain.anchor), const_int(self.data.buffer.shape[1])
        if len(steps) != 4 or read is None:
            return 1
        return max(n_blocks * extents(steps)[0] // read, 1)

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel is computed from what is in its place."""
        anchor = self.chain.anchor
        steps, axes = reduced(anchor), [iv.var for iv in spatial(anchor)[2:4]]
        if len(steps) != 4 or extents(steps[1:3]) != (1, 1) or self.chain.before:
            return False
        taps = [iv.var for iv in steps[1:3]]
        if not all(is_sum(i, {v: 1, k: 1}) for i, v, k in zip(self.data.indices[2:4], axes, taps, strict=True)):
            return False
        shape = anchor.writes[0].buffer.shape
        return has_pixels(self.data.buffer, shape) and all(_stays_in_place(b, shape) for b in self.chain.after)


def has_pixels(buffer: Buffer, shape: Sequence[PrimExpr]) -> bool:
    """Whether a buffer has blocks of channels of as many rows and columns as one of that shape."""
    return len(buffer.shape) == 5 and all(map(same_extent, buffer.shape[2:4], shape[2:4]))


def as_line(buffer: Buffer) -> Buffer:
    """A buffer of blocks of channels whose pixels are one line."""
    return Buffer(buffer.name, (*buffer.shape[:2], E.mul(*buffer.shape[2:4]), buffer.shape[4]), buffer.dtype)


def _stays_in_place(block: Block, shape: Sequence[PrimExpr]) -> bool:
    """Whether rows and columns of an element-wise block say only where images of a shape are read and written."""
    if len(block.iter_vars) != 5 or not isinstance(block.body, BufferStore):
        return False
    row, column = (iv.var for iv in block.iter_vars[2:4])
    accesses: list[BufferLoad | BufferStore] = [block.body, *loads(block.body.value)]
    in_place = [x for x in accesses if has_pixels(x.buffer, shape) and x.indices[2] is row and x.indices[3] is column]
    used = sum(x is row or x is column for x in preorder(block.body))
    return used == 2 * len(in_place) and all(x in in_place for x in accesses if has_pixels(x.buffer, shape))


def find_conv(func: PrimFunc) -> SizedConv | None:
    """The convolution of a function whose blocks are that and what is element-wise around it."""
    c = find_contraction(func)
    if c is None or len(spatial(c.block)) != 5:
        return None
    _, channels, *_, lane = spatial(c.block)
    sizes = [iv.dom.extent for iv in (channels, lane, *reduced(c.block))]
    if any(const_int(size) is None for size in sizes):
        return None
    chain = chain_around(func, c.block)
    if chain is None or not all(map(is_injective, chain.before)):
        return None
    for weight, data in ((c.a, c.b), (c.b, c.a)):
        if len(weight.indices) == 4 and lane.var in free_vars(weight.indices[0]) and is_parameter(func, weight):
            return SizedConv(weight, data, chain)
    return None
