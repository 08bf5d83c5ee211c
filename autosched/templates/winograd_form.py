"""What templates of Winograd's algorithm share: the convolution that they replace, its tiles, how they read its data.

The output is [N, channels, OH, OW], with blocks of channels behind that where a layout has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autosched import te
from autosched.ir.node import FrozenDict
from autosched.te import Tensor
from autosched.templates.classify import blocks_of
from autosched.templates.winograd_transform import AnyFilter
from autosched.tir import (
    LT,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    PrimExpr,
    PrimFunc,
    Var,
    all_of,
    const,
    floordiv,
    floormod,
    if_then_else,
    make_root,
    seq,
)  # fmt: skip
from autosched.tir.expr import compare
from autosched.tir.functor import replace_buffers, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import SeqStmt, Stmt

Read = Callable[..., PrimExpr]


@dataclass(frozen=True)
class Convolution:
    """What the stages need to know of a convolution in its function.

    data      the array with its borders, [N, channels, OH + 2, OW + 2, …]; `source` is the block that makes it, if any
    weight    natural, [O, I, 3, 3]; or [O, I, 2, 2], on CPUs
    result    the block of the convolution
    stride    in both directions; with 2 the data have about twice as many rows and columns
    dilation  in both directions, of stride 1
    groups    of whole blocks of channels, on CPUs
    """

    data: Buffer
    source: Block | None
    weight: Buffer
    result: Block
    stride: int = 1
    dilation: int = 1
    groups: int = 1

    @property
    def taps(self) -> int:
        """Of the window in each direction."""
        return self.weight.const_shape()[2]

    @property
    def out(self) -> Buffer:
        return self.result.writes[0].buffer

    @property
    def given(self) -> Buffer:
        """The array without its borders."""
        if self.source is None:
            return self.data
        assert isinstance(self.source.body, BufferStore), "an element-wise block is one store"
        return _guarded_load(self.source.body.value).buffer


@dataclass(frozen=True)
class Tiling:
    """How the output [N, channels, OH, OW, …] is cut into tiles of m x m, and the tiles into blocks of `block`.

    Several blocks are of one size: the last one is filled up with tiles that nobody asks for.
    With a dilation d a tile has every d-th row and column, and d tiles follow each other at neighbouring ones.
    """

    filter: AnyFilter
    shape: tuple[int, ...]
    block: int
    dilation: int = 1

    @property
    def rows(self) -> int:
        return tiles_along(self.shape[2], self.filter.outputs, self.dilation)

    @property
    def columns(self) -> int:
        return tiles_along(self.shape[3], self.filter.outputs, self.dilation)

    @property
    def tiles(self) -> int:
        return self.shape[0] * self.rows * self.columns

    @property
    def filled(self) -> int:
        """The tiles with those that fill up the last block."""
        return self.tiles if self.tiles <= self.block else -(-self.tiles // self.block) * self.block

    def place(self, p: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """(image, first row, first column) of a tile's inputs."""
        row = floordiv(p, self.columns)
        return floordiv(row, self.rows), self._first(floormod(row, self.rows)), self._first(floormod(p, self.columns))

    def tile_of(self, n: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        """The tile of an output."""
        return (n * self.rows + self._at(y)) * self.columns + self._at(x)

    def in_tile(self, y: PrimExpr) -> PrimExpr:
        """Which row, or column, of its tile an output's one is."""
        return floormod(floordiv(y, self.dilation) if self.dilation > 1 else y, self.filter.outputs)

    def _first(self, tile: PrimExpr) -> PrimExpr:
        m, d = self.filter.outputs * self.filter.stride, self.dilation
        return floordiv(tile, d) * (m * d) + floormod(tile, d) if d > 1 else tile * m

    def _at(self, y: PrimExpr) -> PrimExpr:
        m, d = self.filter.outputs, self.dilation
        return floordiv(y, m * d) * d + floormod(y, d) if d > 1 else floordiv(y, m)


def tiles_along(size: int, outputs: int, dilation: int) -> int:
    """Tiles of so many outputs along an axis of the image: as many for each of the `dilation` images interleaved."""
    return -(-size // (outputs * dilation)) * dilation


def is_sum(index: PrimExpr, terms: Mapping[Var, int]) -> bool:
    """Whether an index is the sum of these multiples of variables; those of extent 1 may have been left out."""
    linear = Analyzer().linear(index)
    found = {atom: c for c, atom in linear.terms.values()}
    return linear.const == 0 and found.keys() <= terms.keys() and all(terms[v] == c for v, c in found.items())  # type: ignore[index]


def factor_of(index: PrimExpr, v: Var) -> int:
    """What a variable is multiplied with in an index; 0 where it does not occur in a sum."""
    return next((c for c, atom in Analyzer().linear(index).terms.values() if atom is v), 0)


def is_padding(block: Block) -> bool:
    """Whether an element-wise block copies a parameter's elements, zero where a condition does not hold."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    if isinstance(value, Call) and value.op == "if_then_else":
        return isinstance(value.args[1], BufferLoad) and getattr(value.args[2], "value", None) == 0
    return isinstance(value, BufferLoad)


def _guarded_load(value: PrimExpr) -> BufferLoad:
    load = value.args[1] if isinstance(value, Call) else value
    assert isinstance(load, BufferLoad), "the match has seen that padding copies"
    return load


def padded_reader(conv: Convolution, tiling: Tiling, data: Tensor) -> Read:
    """How to read the padded data [n, channel, y, x, …] at any place: zero where the padding or nothing is."""
    sizes = tuple(conv.data.const_shape()[d] for d in (0, 2, 3))
    step = tiling.filter.outputs * tiling.filter.stride
    border = (tiling.filter.inputs - step) * tiling.dilation
    reaches = (
        tiling.filled > tiling.tiles,
        tiling.rows * step + border > sizes[1],
        tiling.columns * step + border > sizes[2],
    )
    return reader_beyond(conv, reaches, data)


def reader_beyond(conv: Convolution, reaches: tuple[bool, bool, bool], data: Tensor) -> Read:
    """`padded_reader` by whether images, rows and columns are read that the padded data do not have."""
    sizes = tuple(conv.data.const_shape()[d] for d in (0, 2, 3))

    def read(*indices: PrimExpr) -> PrimExpr:
        places = (indices[0], indices[2], indices[3])
        conditions = [compare(LT, at, size) for at, size, beyond in zip(places, sizes, reaches, strict=True) if beyond]
        if conv.source is not None:
            assert isinstance(conv.source.body, BufferStore), "an element-wise block is one store"
            value = conv.source.body.value
            at = dict(zip((iv.var for iv in conv.source.iter_vars), indices, strict=True))
            if isinstance(value, Call):
                conditions.append(substitute(value.args[0], at))
            indices = tuple(substitute(i, at) for i in _guarded_load(value).indices)
        loaded: PrimExpr = data[indices].as_expr()
        return if_then_else(all_of(*conditions), loaded, const(0, data.dtype)) if conditions else loaded

    return read


def with_stages(func: PrimFunc, conv: Convolution, data: Tensor, weight: Tensor, out: Tensor) -> PrimFunc:
    """`func` with the convolution, and what makes its padded data, replaced by what computes `out`.

    data, weight  tensors that stand for the data without its borders and for the packed weight, which comes in place
                  of the natural one
    """
    stages = te.create_prim_func([data, weight, out], "int64")
    data_buffer, packed, out_buffer = stages.buffers
    body = replace_buffers(stages.root.body, {data_buffer: conv.given, out_buffer: conv.out})
    gone = {conv.data} if conv.source is not None else set()
    kept = tuple(b for b in func.root.alloc_buffers if b not in gone)
    nests = _nests_after(func, conv.result)
    root = make_root(seq(body, *nests), (*kept, *stages.root.alloc_buffers), func.root.annotations)
    buffers = {p: packed if b is conv.weight else b for p, b in func.buffer_map.items()}
    return dataclasses.replace(func, buffer_map=FrozenDict(buffers), body=root)


def _nests_after(func: PrimFunc, block: Block) -> tuple[Stmt, ...]:
    """The loop nests behind the one of a block."""
    body = func.root.body
    nests = body.seq if isinstance(body, SeqStmt) else (body,)
    at = next(i for i, b in enumerate(blocks_of(func)) if b is block)
    return tuple(nests[at + 1 :])
