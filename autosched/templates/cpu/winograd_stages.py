"""A stride-1 3x3 convolution written anew as the stages of Winograd's algorithm, with everything around it kept.

With tiles p = (n, th, tw) of m x m outputs, read from (m + 2) x (m + 2) inputs:

    T[p, cb, x, j, ci]      = Bᵀ of the tile's columns              (winograd_columns)
    V[x, y, p, c]           = B of its rows                         (winograd_inputs)
    M[x, y, p, o]           = sum over c of V * U                   (winograd_products: (m + 2)² matrix products)
    Z[p, ob, i, y, oi]      = Aᵀ of the products                    (winograd_half)
    out[n, ob, oh, ow, oi]  = A of these, at (oh % m, ow % m)       (named as the convolution was)

Padding is part of how T reads its inputs; a tile that reaches beyond the data reads zeros there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autosched import te
from autosched.ir.node import FrozenDict
from autosched.templates.classify import blocks_of
from autosched.templates.cpu.winograd_pack import WinogradPack
from autosched.templates.cpu.winograd_transform import Filter, make_filter, pick, transform_inputs, transform_outputs
from autosched.tir import (
    LT,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    PrimExpr,
    PrimFunc,
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
from autosched.tir.stmt import SeqStmt, Stmt

COLUMNS, INPUTS, PRODUCTS, HALF = "winograd_columns", "winograd_inputs", "winograd_products", "winograd_half"

Read = Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr, PrimExpr], PrimExpr]


@dataclass(frozen=True)
class Convolution:
    """What the stages need to know of a convolution in its function.

    data     the array with its borders, [N, CB, OH + 2, OW + 2, ci]; `source` is the block that makes it, if any
    weight   natural, [O, I, 3, 3]
    result   the block of the convolution
    """

    data: Buffer
    source: Block | None
    weight: Buffer
    result: Block

    @property
    def out(self) -> Buffer:
        return self.result.writes[0].buffer


@dataclass(frozen=True)
class Tiling:
    """How the output [N, OB, OH, OW, oi] is cut into tiles of m x m, and the tiles into blocks of `block`.

    Several blocks are of one size: the last one is filled up with tiles that nobody asks for.
    """

    filter: Filter
    shape: tuple[int, ...]
    block: int

    @property
    def rows(self) -> int:
        return -(-self.shape[2] // self.filter.outputs)

    @property
    def columns(self) -> int:
        return -(-self.shape[3] // self.filter.outputs)

    @property
    def tiles(self) -> int:
        return self.shape[0] * self.rows * self.columns

    @property
    def filled(self) -> int:
        """The tiles with those that fill up the last block."""
        return self.tiles if self.tiles <= self.block else -(-self.tiles // self.block) * self.block

    def place(self, p: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """(image, first output row, first output column) of a tile."""
        m = self.filter.outputs
        row = floordiv(p, self.columns)
        return floordiv(row, self.rows), floormod(row, self.rows) * m, floormod(p, self.columns) * m

    def tile_of(self, n: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        """The tile of an output."""
        m = self.filter.outputs
        return (n * self.rows + floordiv(y, m)) * self.columns + floordiv(x, m)


@lru_cache(maxsize=32)
def winograd_func(func: PrimFunc, conv: Convolution, pack: WinogradPack, block: int) -> PrimFunc:
    """`func` with the convolution, and what makes its padded data, replaced by the stages; the weight comes packed.

    block  tiles that are worked on together
    Remembered, as it takes more than half of a candidate's scheduling: neighbours in a search often share it.
    """
    tiling = Tiling(make_filter(pack.outputs), conv.out.const_shape(), block)
    dtype = conv.out.dtype
    given = conv.data if conv.source is None else _source_buffer(conv.source)
    data = te.placeholder(given.const_shape(), dtype, name=given.name)
    weight = te.placeholder(pack.packed_shape, dtype, name=f"{conv.weight.name}_packed")
    read = _reader(conv, tiling, data)
    out = _stages(tiling, conv.data.const_shape(), read, weight, pack, conv.result.name_hint)
    stages = te.create_prim_func([data, weight, out], "int64")
    data_buffer, packed, out_buffer = stages.buffers
    body = replace_buffers(stages.root.body, {data_buffer: given, out_buffer: conv.out})
    gone = {conv.data} if conv.source is not None else set()
    kept = tuple(b for b in func.root.alloc_buffers if b not in gone)
    nests = _nests_after(func, conv.result)
    root = make_root(seq(body, *nests), (*kept, *stages.root.alloc_buffers), func.root.annotations)
    buffers = {p: packed if b is conv.weight else b for p, b in func.buffer_map.items()}
    return dataclasses.replace(func, buffer_map=FrozenDict(buffers), body=root)


def _stages(tiling: Tiling, data_shape: tuple[int, ...], read: Read, weight: Any, pack: WinogradPack, name: str) -> Any:
    f, tiles = tiling.filter, tiling.filled
    size, m, out_block = f.inputs, f.outputs, tiling.shape[4]
    data_blocks, data_block = data_shape[1], data_shape[4]
    channels, outputs = data_blocks * data_block, tiling.shape[1] * out_block
    chunk = pack.width * pack.panels
    outputs = outputs if outputs <= chunk else -(-outputs // chunk) * chunk

    def columns(p: Any, cb: Any, x: Any, j: Any, ci: Any) -> Any:
        n, y0, x0 = tiling.place(p)
        return pick(x, transform_inputs(f, [read(n, cb, y0 + i, x0 + j, ci) for i in range(size)]))

    def inputs(x: Any, y: Any, p: Any, c: Any) -> Any:
        block, lane = floordiv(c, data_block), floormod(c, data_block)
        return pick(y, transform_inputs(f, [t[p, block, x, j, lane].as_expr() for j in range(size)]))

    def half(p: Any, ob: Any, i: Any, y: Any, oi: Any) -> Any:
        terms = [products[x, y, p, ob * out_block + oi].as_expr() for x in range(size)]
        return pick(i, transform_outputs(f, terms))

    def result(n: Any, ob: Any, oh: Any, ow: Any, oi: Any) -> Any:
        p = tiling.tile_of(n, oh, ow)
        terms = [z[p, ob, floormod(oh, m), y, oi].as_expr() for y in range(size)]
        return pick(floormod(ow, m), transform_outputs(f, terms))

    t = te.compute((tiles, data_blocks, size, size, data_block), columns, name=COLUMNS)
    v = te.compute((size, size, tiles, channels), inputs, name=INPUTS)
    c = te.reduce_axis((0, channels), "c")
    products = te.compute(
        (size, size, tiles, outputs),
        lambda x, y, p, o: te.sum(v[x, y, p, c] * weight[pack.index(o, c.var, x, y)], axis=c),
        name=PRODUCTS,
    )
    z = te.compute((tiles, tiling.shape[1], m, size, out_block), half, name=HALF)
    return te.compute(tiling.shape, result, name=name)


def is_padding(block: Block) -> bool:
    """Whether an element-wise block copies a parameter's elements, zero where a condition does not hold."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    if isinstance(value, Call) and value.op == "if_then_else":
        return isinstance(value.args[1], BufferLoad) and getattr(value.args[2], "value", None) == 0
    return isinstance(value, BufferLoad)


def _source_buffer(source: Block) -> Buffer:
    assert isinstance(source.body, BufferStore), "an element-wise block is one store"
    return _guarded_load(source.body.value).buffer


def _guarded_load(value: PrimExpr) -> BufferLoad:
    load = value.args[1] if isinstance(value, Call) else value
    assert isinstance(load, BufferLoad), "the match has seen that padding copies"
    return load


def _reader(conv: Convolution, tiling: Tiling, data: Any) -> Read:
    """How to read the padded data at any place: zero where the padding or nothing is."""
    sizes = tuple(conv.data.const_shape()[d] for d in (0, 2, 3))
    m = tiling.filter.outputs
    reaches = (tiling.filled > tiling.tiles, tiling.rows * m + 2 > sizes[1], tiling.columns * m + 2 > sizes[2])

    def read(n: PrimExpr, cb: PrimExpr, y: PrimExpr, x: PrimExpr, ci: PrimExpr) -> PrimExpr:
        conditions = [
            compare(LT, at, size) for at, size, beyond in zip((n, y, x), sizes, reaches, strict=True) if beyond
        ]
        indices: tuple[PrimExpr, ...] = (n, cb, y, x, ci)
        if conv.source is not None:
            assert isinstance(conv.source.body, BufferStore), "an element-wise block is one store"
            value = conv.source.body.value
            at = dict(zip((iv.var for iv in conv.source.iter_vars), indices, strict=True))
            if isinstance(value, Call):
                conditions.append(substitute(value.args[0], at))
            indices = tuple(substitute(i, at) for i in _guarded_load(value).indices)
        loaded = data[indices].as_expr()
        return if_then_else(all_of(*conditions), loaded, const(0, conv.out.dtype)) if conditions else loaded

    return read


def _nests_after(func: PrimFunc, block: Block) -> tuple[Stmt, ...]:
    """The loop nests behind the one of a block."""
    body = func.root.body
    nests = body.seq if isinstance(body, SeqStmt) else (body,)
    at = next(i for i, b in enumerate(blocks_of(func)) if b is block)
    return tuple(nests[at + 1 :])


__all__ = ["COLUMNS", "HALF", "INPUTS", "PRODUCTS", "Convolution", "Tiling", "winograd_func"]
