"""Winograd convolution F(2x2, 3x3) and F(4x4, 3x3) of images whose sizes come with the call: see `winograd`.

    for block of tiles in parallel:
        V = transformed inputs of the block's tiles                     # tests for borders in tiles at borders alone
        for chunk of output channels:
            for x, y: for panel: for register tile of rows:             # a matrix product each
                M[x, y, tiles, panel] = V[x, y] @ weight_packed[chunk, x, y, panel]
            out = epilogue(transformed M)                               # outputs beyond the image are left out

How many tiles there are, in how many blocks, is known when the kernel is called. A block has up to `Form.tiles` of
them, in register tiles of as equal numbers of rows as can be: the kernel has a body for each number. Where the weights
are more than the second-level cache holds and all tiles are one block, inputs are transformed in a phase of their own
and the chunks are what threads divide. There a few tiles read taps instead and transform these, as in `winograd_taps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autosched.ir.node import FrozenDict
from autosched.target import Target
from autosched.te import ceildiv
from autosched.templates.accuracy import is_strict
from autosched.templates.base import Applied
from autosched.templates.classify import extents, reduced, spatial
from autosched.templates.core_nests import load, one_of, store
from autosched.templates.cpu.conv_blocks import SizedConv, find_conv
from autosched.templates.cpu.open_channels import open_channels
from autosched.templates.cpu.register_tile import FLOAT_BYTES, adds_apart, is_cold
from autosched.templates.cpu.sized import sized
from autosched.templates.cpu.task_order import LEAST_THREADS
from autosched.templates.cpu.winograd import LEAST_CHANNELS
from autosched.templates.cpu.winograd_cost import L2_SHARE, LEAST_TASKS, MOST_ROWS
from autosched.templates.cpu.winograd_taps import OUTPUTS, SUMS
from autosched.templates.nests import lanes, loop, nested, unrolled, value_at
from autosched.templates.pack import packed_params
from autosched.templates.winograd_form import factor_of, is_padding, is_sum
from autosched.templates.winograd_pack import BothPacks, TapPack, WinogradPack
from autosched.templates.winograd_transform import (
    TAPS,
    filter_of,
    transform_inputs,
    transform_outputs,
    transform_taps,
)
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var, all_of, as_int, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import free_vars, substitute
from autosched.tir.prefetch import request
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import Block, BufferStore, IfThenElse, LetStmt, LoopKind, Stmt, seq

VECTORS = 2  # of a register tile
NEAR = 5 / 8  # of the second-level cache, for weights that each block reads again
STEPS = 32, 64, 16  # input channels whose taps, inputs and sums the first-level cache holds
FEW_ROWS = 1, 2, 4  # tiles that share weights transformed where they are read, as in `winograd_taps`
# Tiles that are fewer, by stride: 10x10x512, 9 tiles, takes .78 of the time of weights transformed before, 14x14x256
# 1.06; with stride 2 4x4x512 takes .72, 5x5x512 1.13 (Emerald Rapids).
MOST_FEW = {1: 12, 2: 4}
MOST_WEIGHT_BYTES = 16 << 20  # transformed: small images take longer to meet more of them than a direct convolution
# Of a block, and products of all its tiles for a channel: with 93 tiles, which the second-level cache holds, 56x56x64
# takes 1.16 of the time, 56x56x128 with 409 1.25 (Emerald Rapids).
MOST_TILES, MOST_PRODUCTS = 28, 1152
STREAMS = 2  # in which far weights are asked for: 14x14x256 takes .93 of the time with one, 28x28x128 .92
LINE = 16  # floats of a cache line
# Tiles of a dilated convolution have the pixels of every d-th row and column. More than two leave many tiles of small
# images half empty: of 33 x 33 and a dilation of 4 tiles have 48 x 48 pixels.
MOST_DILATION = 2
INDEX = "int64"
At = Callable[..., PrimExpr]


@dataclass(frozen=True)
class Form:
    """The numbers of a kernel: F(m, 3), its stride, most rows and vectors of a register tile, panels of a chunk.

    tiles    of a block at most
    threads  that blocks are divided among
    is_far   whether the weights are more than the second-level cache holds beside other data
    prefetch  whether the next panel of weights is asked for ahead
    few      tiles up to which weights are transformed where they are read; 0 for none
    step     input channels that are added up in registers there
    by_sums  whether twice a weight is a sum there
    """

    m: int
    stride: int
    rows: int
    vectors: int
    panels: int
    tiles: int
    threads: int
    is_far: bool
    prefetch: bool
    few: int
    step: int
    by_sums: bool

    @property
    def points(self) -> int:
        """Products of a tile."""
        return filter_of(self.m, self.stride).inputs ** 2

    @property
    def weights(self) -> int:
        """Transformed weights for each input and output channel."""
        return filter_of(self.m, self.stride).rows ** 2

    def chunk(self, lanes: int) -> int:
        """Output channels of a chunk, for so many floats in a vector."""
        return self.vectors * lanes * self.panels


def schedule_winograd(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a convolution over symbols by Winograd's algorithm; None for what it does not suit."""
    conv = find_conv(func)
    if conv is None or not _suits(conv):
        return None
    weight = conv.weight.buffer
    outputs, channels = weight.const_shape()[:2]
    block = extents(spatial(conv.chain.anchor)[4:])[0]
    form = choose_form(outputs, channels, block, _stride(conv), is_strict(func), target)
    is_few_enough = FLOAT_BYTES * form.weights * outputs * channels <= MOST_WEIGHT_BYTES
    if not is_few_enough and not (form.few and form.stride == 1):
        return None
    width = target.lanes("float32")
    transformed = WinogradPack(weight.const_shape(), form.m, form.vectors * width, form.panels, stride=form.stride)
    pack = BothPacks(transformed, TapPack(weight.const_shape(), form.m, width)) if form.few else transformed
    packs = packed_params(func, weight, pack)  # type: ignore[arg-type]
    per_chunk, in_block = form.chunk(width) // block, extents(reduced(conv.chain.anchor))[3]
    func, conv = open_channels(func, conv, max(form.step // in_block, 1), per_chunk) or (func, conv)
    writer = _Writer(conv, form, pack, width)
    body = writer.body()
    buffers = FrozenDict({p: writer.packed if b is conv.weight.buffer else b for p, b in func.buffer_map.items()})
    made = replace(func, buffer_map=buffers, body=make_root(body, tuple(writer.buffers)))
    return Applied(sized(func, made).func, packs)


def _suits(conv: SizedConv) -> bool:
    """Whether a convolution is 3x3 of stride 1 or 2 without groups, of blocked float32, padded by one block at most.

    Its dilation is `MOST_DILATION` at most, and 1 where the stride is 2.
    """
    anchor, data, weight = conv.chain.anchor, conv.data, conv.weight
    loops, before = reduced(anchor), conv.chain.before
    if len(loops) != 4 or len(data.indices) != 5 or extents(loops)[1:3] != (TAPS, TAPS):
        return False
    if any(b.dtype != "float32" for b in (data.buffer, weight.buffer, anchor.writes[0].buffer)):
        return False
    if len(before) > 1 or any(b.writes[0].buffer is not data.buffer or not _pads(b) for b in before):
        return False
    (n, ob, oh, ow, oi), (ic, kh, kw, ci) = (iv.var for iv in spatial(anchor)), (iv.var for iv in loops)
    (out_block,), (blocks, _, _, block) = extents(spatial(anchor)[4:]), extents(loops)
    (dy, dx), stride = _dilation(conv), _stride(conv)
    if not (1 <= dy <= MOST_DILATION and 1 <= dx <= MOST_DILATION):
        return False
    if stride not in (1, 2) or (stride == 2 and (dy, dx) != (1, 1)):
        return False
    wanted: tuple[tuple[PrimExpr, Mapping[Var, int]], ...] = (
        *zip(data.indices, ({n: 1}, {ic: 1}, {oh: stride, kh: dy}, {ow: stride, kw: dx}, {ci: 1}), strict=True),
        *zip(weight.indices, ({ob: out_block, oi: 1}, {ic: block, ci: 1}, {kh: 1}, {kw: 1}), strict=True),
    )
    if not all(is_sum(index, terms) for index, terms in wanted):
        return False
    return weight.buffer.const_shape()[1] == blocks * block >= LEAST_CHANNELS


def _dilation(conv: SizedConv) -> tuple[int, int]:
    """Rows and columns from one tap to the next."""
    _, kh, kw, _ = (iv.var for iv in reduced(conv.chain.anchor))
    return factor_of(conv.data.indices[2], kh), factor_of(conv.data.indices[3], kw)


def _stride(conv: SizedConv) -> int:
    """Rows of the data from one row of results to the next."""
    return factor_of(conv.data.indices[2], spatial(conv.chain.anchor)[2].var)


def _pads(block: Block) -> bool:
    """Whether a block copies with a border, under conditions that speak of one axis each."""
    if not is_padding(block):
        return False
    axes = {iv.var for iv in block.iter_vars}
    return all(len(free_vars(c) & axes) <= 1 for c in split_conditions(_guard(block)))


def _guard(block: Block) -> PrimExpr:
    """Where a padding block copies."""
    assert isinstance(block.body, BufferStore), "an element-wise block is one store"
    value = block.body.value
    return value.args[0] if isinstance(value, E.Call) else E.const(1, "bool")


def _ends(condition: PrimExpr, axis: Var) -> bool:
    """Whether a condition says that a variable is less than something."""
    if isinstance(condition, E.LT | E.LE):
        return axis in free_vars(condition.a)
    return isinstance(condition, E.GT | E.GE) and axis in free_vars(condition.b)


def choose_form(outputs: int, channels: int, block: int, stride: int, strict: bool, target: Target) -> Form:
    """Register tiles of two vectors, and blocks whose inputs and products the second-level cache holds.

    Weights that are far belong to layers of small images as a rule. With stride 2 these get F(2): it has 25 products
    for 4 results and reads less than half as many weights; F(4) has 81 for 16, and 14 x 14 results leave much of it
    unused.
    """
    m, lanes, caches = 2 if strict else 4, target.lanes("float32"), target.cache
    near = NEAR * caches.l2_bytes / FLOAT_BYTES
    if stride > 1 and filter_of(m, stride).rows ** 2 * channels * outputs > near:
        m = 2
    vectors = min(VECTORS, -(-outputs // lanes))
    rows = min(MOST_ROWS, (target.num_registers - vectors - 1) // vectors)
    panels = next(n for n in range(1, block + 1) if vectors * lanes * n % block == 0)
    f, chunk = filter_of(m, stride), vectors * lanes * panels
    points, weights = f.inputs**2, f.rows**2 * channels * outputs
    tile_floats = points * (channels + chunk)
    room = L2_SHARE * caches.l2_bytes / FLOAT_BYTES
    is_far = weights > near
    most = min(MOST_TILES, MOST_PRODUCTS // points)
    tiles = most if is_far else max(min(int((room - weights) / tile_floats), most), 1)
    threads = min(max(target.num_cores, LEAST_THREADS), LEAST_TASKS)
    prefetch = is_cold(FLOAT_BYTES * weights // 2, caches)  # as those of `winograd`
    step = next((n for n in STEPS if channels % n == 0), 0)
    has_few = is_far and step > 0 and m == (OUTPUTS if stride == 1 else 2) and lanes % block == 0
    has_few = has_few and tiles >= MOST_FEW[stride] and f.inputs * FEW_ROWS[-1] + SUMS <= target.num_registers
    few = MOST_FEW[stride] if has_few else 0
    return Form(
        m, stride, min(rows, tiles), vectors, panels, tiles, threads, is_far, prefetch, few, step, adds_apart(target)
    )


@dataclass(frozen=True)
class Split:
    """A block's tiles as n register tiles of rows: the first `more` ones have one more than `even`."""

    count: Var
    n: Var
    even: Var
    more: Var

    def tiles_of(self, rows: int) -> tuple[PrimExpr, PrimExpr]:
        """(the number of the first, how many) of the register tiles of so many rows."""
        zero, is_even = E.const(0, INDEX), E.compare(E.EQ, self.even, rows)
        has_more = E.compare(E.EQ, self.even, rows - 1)
        times = E.Select(is_even, E.sub(self.n, self.more), E.Select(has_more, self.more, zero))
        return E.Select(is_even, self.more, zero), times


class _Writer:
    """The statements of one function."""

    def __init__(self, conv: SizedConv, form: Form, pack: WinogradPack | BothPacks, lanes: int):
        self.form, self.pack, self.chain, self.lanes = form, pack, conv.chain, lanes
        self.transformed = pack.transformed if isinstance(pack, BothPacks) else pack
        anchor = conv.chain.anchor
        self.images, self.out_blocks, self.height, self.width, _ = (iv.dom.extent for iv in spatial(anchor))
        self.block = extents(spatial(anchor)[4:])[0]
        self.dilation = _dilation(conv)
        self.data_blocks, *_, data_block = (iv.dom.extent for iv in reduced(anchor))
        self.data_block = as_int(data_block)
        self.channels = E.mul(self.data_blocks, self.data_block)
        self.padded, self.source = conv.data.buffer, conv.chain.before[0] if conv.chain.before else None
        self.sums = anchor.writes[0].buffer
        self.out = conv.chain.after[-1].writes[0].buffer if conv.chain.after else self.sums
        self.makers = {b.writes[0].buffer: b for b in (*conv.chain.before, *conv.chain.after)}
        self.filter = filter_of(form.m, form.stride)
        self.size, self.chunk = self.filter.inputs, form.chunk(lanes)
        outputs, simplify = E.mul(self.out_blocks, self.block), Analyzer().simplify
        self.chunks, panels = (simplify(ceildiv(outputs, n)) for n in (self.chunk, lanes))
        _, *inner, _, width = (E.const(n, INDEX) for n in self.transformed.packed_shape)
        self.weights_shape = shape = self.chunks, *inner, self.channels, width
        if isinstance(pack, BothPacks):
            self.taps_shape = panels, self.channels, *(E.const(n, INDEX) for n in pack.taps.packed_shape[2:])
            shape = (E.add(_product(self.weights_shape), _product(self.taps_shape)),)
        weight = conv.weight.buffer
        self.packed = Buffer(f"{weight.name}_packed", shape, weight.dtype)
        points = form.points
        self.block_tiles, self.product_row = form.tiles + form.tiles % 2, _odd_lines(self.chunk)
        row = E.add(E.mul(self.channels, self.block_tiles), LINE)  # no power of two: points meet in no cache set
        self.inputs = one_of("inputs", "float32", points, row, scope="global")
        self.products = one_of("products", "float32", points, _odd_lines(form.tiles * self.product_row), scope="global")
        self.columns = one_of("columns", "float32", self.size, self.size, self.data_block)
        self.half = one_of("half", "float32", form.m, self.size, self.block)
        self.few = one_of("few_products", "float32", points, FEW_ROWS[-1] * lanes, scope="global")
        self.buffers = [self.few, self.inputs, self.products, self.columns, self.half]

    def input_at(self, tile: PrimExpr, block: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """Where a point's input of a tile lies: a block's tiles are side by side, however many blocks there are."""
        row = E.add(E.mul(block, self.block_tiles), tile)
        return E.add(E.mul(row, self.data_block), lane)

    def body(self) -> Stmt:
        """The phases of the kernel, some of which have no pieces for a call's sizes."""
        form, m = self.form, self.form.m
        self.rows, self.row_tiles = (
            E.mul(ceildiv(size, m * d), d) for size, d in zip((self.height, self.width), self.dilation, strict=True)
        )
        tiles = E.mul(self.images, E.mul(self.rows, self.row_tiles))
        least = E.minimum(ceildiv(tiles, form.rows), form.threads)  # a block for each of so many threads
        blocks = E.maximum(ceildiv(tiles, form.tiles), least)

        def block(b: Var) -> Stmt:
            first, total, parts = (Var(name, INDEX) for name in ("first", "tiles", "blocks"))
            end = E.floordiv(E.mul(E.add(b, 1), total), parts)

            def work(split: Split) -> Stmt:
                transformed = loop("p", split.count, lambda p: self.inputs_at(E.add(first, p), p, self.inputs))
                chunks = loop("chunk", self.chunks, lambda c: self.chunk_of(c, first, split, self.inputs))
                return seq(transformed, chunks)

            body = LetStmt(first, E.floordiv(E.mul(b, total), parts), self.split(E.sub(end, first), work))
            return LetStmt(total, tiles, LetStmt(parts, blocks, body))

        if not form.is_far:
            return loop("block", blocks, block, LoopKind.PARALLEL)
        common = one_of("common_inputs", "float32", *self.inputs.shape, scope="global")
        self.buffers.append(common)
        is_one = E.minimum(E.maximum(E.sub(form.tiles + 1, tiles), 0), 1)  # 1 where all tiles are one block, else 0
        first = E.const(0, INDEX)

        def tile(p: Var, is_scaled: bool = False) -> Stmt:
            at = Var("tile", INDEX)
            return LetStmt(at, E.minimum(p, form.tiles - 1), self.inputs_at(at, at, common, is_scaled))

        def chunk(c: Var) -> Stmt:
            return self.split(tiles, lambda split: self.chunk_of(c, first, split, common))

        few: list[Stmt] = []
        if isinstance(self.pack, BothPacks):
            is_few = E.minimum(E.maximum(E.sub(form.few + 1, tiles), 0), 1)
            is_one, panels = E.mul(is_one, E.sub(1, is_few)), E.mul(is_few, self.taps_shape[0])
            few = [
                loop("tile", E.mul(is_few, tiles), lambda p: tile(p, is_scaled=True), LoopKind.PARALLEL),
                loop("panel", panels, lambda c: self.few_tiles(c, tiles, common), LoopKind.PARALLEL),
            ]
        are_more = E.minimum(E.maximum(E.sub(tiles, form.tiles), 0), 1)
        return seq(
            *few,
            loop("tile", E.mul(is_one, tiles), tile, LoopKind.PARALLEL),
            loop("chunk", E.mul(is_one, self.chunks), chunk, LoopKind.PARALLEL),
            loop("block", E.mul(are_more, blocks), block, LoopKind.PARALLEL),
        )

    def few_tiles(self, panel: Var, tiles: PrimExpr, inputs: Buffer) -> Stmt:
        """The results of a vector of output channels, whose weights are transformed for each few tiles."""
        total = Var("tiles", INDEX)

        def group(g: Var) -> Stmt:
            first = Var("first", INDEX)
            count = E.sub(total, first)
            stmts = [self.few_products(panel, first, n, inputs) for n in FEW_ROWS]
            stmt = stmts[-1]
            for n, smaller in reversed(list(zip(FEW_ROWS[:-1], stmts, strict=False))):
                stmt = IfThenElse(E.compare(E.LE, count, n), smaller, stmt)
            per_panel = self.lanes // self.block
            held = E.minimum(count, FEW_ROWS[-1])
            results = self.results(E.mul(panel, per_panel), per_panel, first, held, self.few)
            place = E.minimum(E.mul(g, FEW_ROWS[-1]), self.form.few - FEW_ROWS[-1])  # says that it is inside
            return LetStmt(first, place, seq(stmt, results))

        return LetStmt(total, tiles, loop("group", ceildiv(total, FEW_ROWS[-1]), group))

    def few_products(self, panel: Var, first: Var, rows: int, inputs: Buffer) -> Stmt:
        """The products of `rows` tiles: for each row of points and block of input channels in a register tile."""
        assert isinstance(self.pack, BothPacks), "others have no taps"
        size, step, begin = self.size, self.form.step, _product(self.weights_shape)
        parts = one_of(f"parts_{rows}", "float32", size, rows, self.lanes)
        weights = one_of(f"weights_{rows}", "float32", self.filter.rows, self.lanes)
        columns = one_of(f"taps_{rows}", "float32", TAPS, self.lanes)
        self.buffers += [parts, weights, columns]

        def over(body: Callable[[Var, Var, PrimExpr], Stmt]) -> Stmt:
            return unrolled("y r", (size, rows), lambda y, r: lanes(self.lanes, lambda v: body(y, r, v)))

        def place(x: int, y: Var, r: Var, v: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
            at = E.add(E.mul(E.cast(INDEX, r), self.lanes), E.cast(INDEX, v))
            return E.add(E.cast(INDEX, y), x * size), at

        def row(b: Var, x: int) -> Stmt:
            def tap(c: PrimExpr, i: int, k: int, v: PrimExpr) -> BufferLoad:
                at = (panel, c, E.const(i, INDEX), E.const(k, INDEX), E.cast(INDEX, v))
                return BufferLoad(self.packed, (E.add(row_major(at, self.taps_shape), begin),))

            row_of_weights = min(x, self.filter.rows - 1)

            def channel(i: Var, lane: Var) -> Stmt:
                c = E.add(E.mul(i, self.data_block), lane)
                block = E.add(E.mul(b, step // self.data_block), i)
                at = E.add(E.mul(b, step), c)

                def column(v: PrimExpr, k: int) -> Stmt:
                    taps = [tap(at, i, k, v) for i in range(TAPS)]
                    return store(columns, self.weights_of(taps)[row_of_weights], k, v)

                def weight(v: PrimExpr, y: int) -> Stmt:
                    taps = [load(columns, k, v) for k in range(TAPS)]
                    return store(weights, self.weights_of(taps)[y], y, v)

                def added(y: Var, r: Var, v: PrimExpr) -> Stmt:
                    tile = E.add(first, E.cast(INDEX, r))
                    point = E.add(E.cast(INDEX, y), x * size)
                    value = BufferLoad(inputs, (point, self.input_at(tile, block, lane)))
                    weight = load(weights, self.weight_rows(y, y)[0], v)
                    total = E.add(load(parts, y, r, v), E.mul(value, weight))
                    return store(parts, total, y, r, v)

                made = [lanes(self.lanes, partial(column, k=k)) for k in range(TAPS)]
                made += [lanes(self.lanes, partial(weight, y=y)) for y in range(self.filter.rows)]
                return seq(*self.taps_ahead(panel, b, x, c, tap), *made, over(added))

            def kept(y: Var, r: Var, v: PrimExpr) -> Stmt:
                at = place(x, y, r, v)
                return BufferStore(self.few, E.add(BufferLoad(self.few, at), load(parts, y, r, v)), at)

            return seq(
                over(lambda y, r, v: store(parts, E.const(0.0, "float32"), y, r, v)),
                nested("i c", [E.const(n, INDEX) for n in (step // self.data_block, self.data_block)], channel),
                over(kept),
            )

        def start(x: int) -> Stmt:
            return over(lambda y, r, v: BufferStore(self.few, E.const(0.0, "float32"), place(x, y, r, v)))

        blocks = E.floordiv(self.channels, step)
        return seq(*map(start, range(size)), loop("b", blocks, lambda b: seq(*(row(b, x) for x in range(size)))))

    def weights_of(self, taps: Sequence[PrimExpr]) -> list[PrimExpr]:
        """What taps along an axis become."""
        return transform_taps(self.filter, taps, self.form.by_sums)

    def taps_ahead(self, panel: Var, b: Var, x: int, c: PrimExpr, tap: Callable[..., BufferLoad]) -> list[Stmt]:
        """Requests for a step's share of the next block of taps, in all rows of points but the last ones."""
        lines, step = self.lanes // LINE or 1, self.form.step
        share = -(-TAPS * TAPS * lines // (self.size - 1))
        if x * share >= TAPS * TAPS * lines:
            return []
        zero = E.const(0, INDEX)
        start = E.add(E.mul(E.add(b, 1), step * TAPS**2 * self.lanes), E.mul(E.add(c, x * step), share * LINE))
        return [request(tap(zero, 0, 0, start), ((n,) for n in range(0, share * LINE, LINE)), is_far=True)]

    def split(self, count: PrimExpr, body: Callable[[Split], Stmt]) -> Stmt:
        """What is done for so many tiles, which are a block at most."""
        held, n, even, more = (Var(name, INDEX) for name in ("count", "n", "even", "more"))
        values = (
            (held, E.minimum(count, self.form.tiles)), (n, ceildiv(held, self.form.rows)),
            (even, E.floordiv(held, n)), (more, E.floormod(held, n)),
        )  # fmt: skip
        stmt = body(Split(held, n, even, more))
        for var, value in reversed(values):
            stmt = LetStmt(var, value, stmt)
        return stmt

    def at_tile(self, tile: PrimExpr, body: Callable[[Var, Var, Var], Stmt]) -> Stmt:
        """What is done for a tile: its image, and the first row and column of its outputs."""
        n, y, x, line = (Var(name, INDEX) for name in ("n", "y", "x", "line"))
        row = E.floormod(line, self.rows)
        column = E.floormod(tile, self.row_tiles)
        inner = LetStmt(y, self.begin(row, self.dilation[0]), body(n, y, x))
        inner = LetStmt(n, _kept_below(E.floordiv(line, self.rows), self.images), inner)
        inner = LetStmt(x, self.begin(column, self.dilation[1]), inner)
        return LetStmt(line, E.floordiv(tile, self.row_tiles), inner)

    def begin(self, at: PrimExpr, dilation: int) -> PrimExpr:
        """The first row of a row of tiles, or column: those that begin at 0, 1, … below the dilation, then the next."""
        if dilation == 1:
            return E.mul(at, self.form.m)
        return E.add(E.mul(E.floordiv(at, dilation), self.form.m * dilation), E.floormod(at, dilation))

    def inputs_at(self, tile: PrimExpr, p: Var, into: Buffer, is_scaled: bool = False) -> Stmt:
        """The inputs of a tile, as row p of `into`; scaled ones are of few tiles, most of which are at borders."""

        def placed(n: Var, row: Var, column: Var) -> Stmt:
            y, x = (E.mul(at, self.form.stride) for at in (row, column))
            last = (E.add(v, (self.size - 1) * d) for v, d in zip((y, x), self.dilation, strict=True))
            inside = all_of(*self.held(n, y, x), *self.held(n, *last))

            def blocks(guarded: bool) -> Stmt:
                return loop("cb", self.data_blocks, lambda cb: self.inputs_of(p, n, cb, y, x, guarded, into, is_scaled))

            return blocks(True) if is_scaled else IfThenElse(inside, blocks(False), blocks(True))

        return self.at_tile(tile, placed)

    def held(self, n: PrimExpr, y: PrimExpr, x: PrimExpr) -> list[PrimExpr]:
        """The conditions on which there is an element of the data at a place of the padded ones."""
        ends = {2: E.compare(E.LT, y, self.padded.shape[2]), 3: E.compare(E.LT, x, self.padded.shape[3])}
        if self.source is None:
            return [*ends.values()]
        guards, axes = [*split_conditions(_guard(self.source))], [iv.var for iv in self.source.iter_vars]
        zero = E.const(0, INDEX)
        values = {v: E.cast(v.dtype, i) for v, i in zip(axes, (n, zero, y, x, zero), strict=True)}
        open_ended = [end for axis, end in ends.items() if not any(_ends(g, axes[axis]) for g in guards)]
        return [*open_ended, *(substitute(g, values) for g in guards)]

    def inputs_of(
        self, p: Var, n: Var, cb: Var, y: PrimExpr, x: PrimExpr, guarded: bool, into: Buffer, is_scaled: bool
    ) -> Stmt:
        """A tile's inputs of a block of channels, transformed; guarded: some of them may be beyond the data."""
        size, transform = self.size, partial(transform_inputs, self.filter, is_scaled=is_scaled)

        dy, dx = self.dilation

        def read(i: int, j: PrimExpr, lane: PrimExpr) -> PrimExpr:
            at = (E.add(y, i * dy), E.add(x, E.mul(E.cast(INDEX, j), dx)))
            place = (n, cb, *at, E.cast(INDEX, lane))
            if self.source is None:
                value: PrimExpr = BufferLoad(self.padded, place)
            else:
                value = value_at(self.makers, self.padded, place, {})
                value = value.args[1] if isinstance(value, E.Call) else value
            if not guarded:
                return value
            return E.if_then_else(all_of(*self.held(n, *at)), value, E.const(0.0, "float32"))

        own = one_of("read", "float32", size, self.data_block)
        self.buffers.append(own)

        def column(j: Var) -> Stmt:
            def kept(v: PrimExpr, i: int) -> Stmt:
                return store(own, read(i, j, v), i, v)

            def element(v: PrimExpr, k: int) -> Stmt:
                terms = [load(own, i, v) for i in range(size)]
                return store(self.columns, transform(terms)[k], k, j, v)

            found = [lanes(self.data_block, partial(kept, i=i)) for i in range(size)]
            return seq(*found, *(lanes(self.data_block, partial(element, k=k)) for k in range(size)))

        def row(i: Var) -> Stmt:
            def point(v: PrimExpr, k: int) -> Stmt:
                terms = transform([load(self.columns, i, j, v) for j in range(size)])
                at = self.input_at(p, cb, E.cast(INDEX, v))
                return BufferStore(into, terms[k], (E.add(E.mul(E.cast(INDEX, i), size), k), at))

            return seq(*(lanes(self.data_block, partial(point, k=k)) for k in range(size)))

        return seq(unrolled("j", (size,), column), unrolled("i", (size,), row))

    def chunk_of(self, chunk: Var, first: PrimExpr, split: Split, inputs: Buffer) -> Stmt:
        """The results of a chunk of output channels, of the tiles from `first` on."""
        per_chunk = self.chunk // self.block
        results = self.results(E.mul(chunk, per_chunk), per_chunk, first, split.count, self.products)
        return seq(self.multiplied(chunk, split, inputs), results)

    def multiplied(self, chunk: Var, split: Split, inputs: Buffer) -> Stmt:
        """All products of a chunk."""

        def panel(i: Var, k: Var, panel: Var) -> Stmt:
            parts = []
            for rows in range(self.form.rows, 0, -1):
                number, times = split.tiles_of(rows)
                tile = partial(self.product, inputs, chunk, i, k, panel, number, rows, split.n)
                parts.append(loop("t", times, tile))
            return seq(*parts)

        sizes = [E.const(x, INDEX) for x in (self.size, self.size, self.form.panels)]
        return nested("x y panel", sizes, panel)

    def product(
        self, inputs: Buffer, chunk: Var, i: Var, k: Var, panel: Var, number: PrimExpr, rows: int, n: Var, t: Var
    ) -> Stmt:  # fmt: skip
        """A register tile of rows over all input channels: the one behind `number` and t others, of n."""
        width = self.transformed.width
        sums = one_of(f"sums_{rows}", "float32", rows, width)
        self.buffers.append(sums)
        first, point = Var("first_row", INDEX), E.add(E.mul(i, self.size), k)
        start = E.add(E.mul(number, rows + 1), E.mul(t, rows))
        place = E.maximum(E.minimum(start, self.form.tiles - rows), 0)  # says that it is inside

        def over(body: Callable[[Var, PrimExpr], Stmt]) -> Stmt:
            return loop("r", rows, lambda r: lanes(width, lambda v: body(r, v)), LoopKind.UNROLLED)

        def step(cb: Var, lane: Var) -> Stmt:
            c = E.add(E.mul(cb, self.data_block), lane)

            def added(r: Var, v: PrimExpr) -> Stmt:
                value = BufferLoad(inputs, (point, self.input_at(E.add(first, E.cast(INDEX, r)), cb, lane)))
                weight = self.weight_at(chunk, *self.weight_rows(i, k), panel, c, E.cast(INDEX, v))
                return store(sums, E.add(load(sums, r, v), E.mul(value, weight)), r, v)

            row = E.add(first, E.floordiv(E.mul(lane, rows), self.data_block))
            next_inputs = request(BufferLoad(inputs, (point, self.input_at(row, E.add(cb, 1), E.const(0, INDEX)))))
            return seq(next_inputs, *self.asked_ahead(chunk, i, k, panel, E.add(number, t), n, cb, lane), over(added))

        def kept(r: Var, v: PrimExpr) -> Stmt:
            row = E.mul(E.add(first, E.cast(INDEX, r)), self.product_row)
            at = E.add(row, E.add(E.mul(panel, width), E.cast(INDEX, v)))
            return BufferStore(self.products, load(sums, r, v), (point, at))

        start_values = over(lambda r, v: store(sums, E.const(0.0, "float32"), r, v))
        steps = nested("cb c", [self.data_blocks, E.const(self.data_block, INDEX)], step)
        return LetStmt(first, place, seq(start_values, steps, over(kept)))

    def weight_rows(self, i: PrimExpr, k: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """Where the weights of a point's products are: those of inputs between two of a stride share theirs."""
        if self.form.stride == 1:
            return i, k
        last = self.filter.rows - 1
        return E.minimum(i, last), E.minimum(k, last)

    def weight_at(self, *indices: PrimExpr) -> BufferLoad:
        """A transformed weight."""
        if not isinstance(self.pack, BothPacks):
            return BufferLoad(self.packed, indices)
        return BufferLoad(self.packed, (row_major(indices, self.weights_shape),))

    def asked_ahead(
        self, chunk: Var, i: Var, k: Var, panel: Var, t: PrimExpr, n: Var, cb: Var, lane: Var
    ) -> list[Stmt]:  # fmt: skip
        """Requests for a step's share of the next panel: of n register tiles each asks for a part of it in turn.

        What is far is asked for in streams side by side: a core fetches pages ahead, each at its own pace.
        """
        if not self.form.prefetch:
            return []
        width = self.transformed.width
        panel_floats, lines = E.mul(self.channels, width), width // LINE or 1
        at = E.add(E.mul(cb, self.data_block), lane)
        if self.form.is_far:
            streams = math.gcd(STREAMS, self.data_block)
            begin = E.mul(E.floormod(lane, streams), E.mul(self.data_blocks, self.data_block // streams))
            at = E.add(begin, E.add(E.mul(cb, self.data_block // streams), E.floordiv(lane, streams)))
        share = E.add(E.mul(E.floormod(t, lines), self.channels), at)
        place = (chunk, *self.weight_rows(i, k), panel, E.const(0, INDEX))

        start = E.add(E.mul(share, min(width, LINE)), panel_floats)
        ahead = [E.add(start, E.mul(self.channels, k * LINE)) for k in range(lines)]
        first, *others = (request(self.weight_at(*place, at), is_far=self.form.is_far) for at in ahead)
        return [first, *([IfThenElse(E.compare(E.EQ, n, 1), seq(*others))] if others else [])]

    def results(self, begin: PrimExpr, per_chunk: int, first: PrimExpr, count: PrimExpr, products: Buffer) -> Stmt:
        """The results of `per_chunk` blocks of channels from `begin` on, of the tiles from `first` on."""
        is_ragged = (const_int(self.out_blocks) or 0) % per_chunk
        ahead = [(self.form.m - 1) * d + 1 for d in self.dilation]

        def blocks(p: Var, n: Var, y: Var, x: Var, guarded: bool) -> Stmt:
            # A test of each block would give the last chunk, products and all, code of its own.
            held = E.minimum(E.const(per_chunk, INDEX), E.sub(self.out_blocks, begin))
            count = held if is_ragged else E.const(per_chunk, INDEX)

            def block(ob: Var) -> Stmt:
                channels = Var("out_block", INDEX)
                stmt = self.outputs_of(p, n, channels, ob, y, x, products, guarded)
                return LetStmt(channels, _kept_below(E.add(begin, ob), self.out_blocks), stmt)

            return loop("ob", count, block)

        def tile(p: Var) -> Stmt:
            def placed(n: Var, y: Var, x: Var) -> Stmt:
                ends = (E.add(y, ahead[0]), self.height), (E.add(x, ahead[1]), self.width)
                inside = all_of(*(E.compare(E.LE, end, size) for end, size in ends))
                part = blocks(p, n, y, x, True)
                return part if products is self.few else IfThenElse(inside, blocks(p, n, y, x, False), part)

            return self.at_tile(E.add(first, p), placed)

        return loop("p", count, tile)

    def outputs_of(
        self, p: Var, n: Var, channels: Var, ob: Var, y: Var, x: Var, products: Buffer, guarded: bool
    ) -> Stmt:  # fmt: skip
        """A tile's results of block `channels`, the chunk's `ob`; guarded: some of them may be beyond the image."""
        size, m, (dy, dx) = self.size, self.form.m, self.dilation

        def column(k: Var) -> Stmt:
            def half(v: PrimExpr, i: int) -> Stmt:
                lane = E.add(E.mul(ob, self.block), E.cast(INDEX, v))
                row = self.product_row if products is self.products else self.lanes
                at = E.add(E.mul(p, row), lane)
                terms = [BufferLoad(products, (E.add(E.cast(INDEX, k), j * size), at)) for j in range(size)]
                return store(self.half, transform_outputs(self.filter, terms)[i], i, k, v)

            return seq(*(lanes(self.block, partial(half, i=i)) for i in range(m)))

        def row(i: Var) -> Stmt:
            line = E.add(y, E.mul(E.cast(INDEX, i), dy))

            def result(v: PrimExpr, k: int) -> Stmt:
                terms = [load(self.half, i, j, v) for j in range(size)]
                total = transform_outputs(self.filter, terms)[k]
                place = (n, channels, line, E.add(x, k * dx), E.cast(INDEX, v))
                value = value_at(self.makers, self.out, place, {self.sums: lambda _: total})
                return BufferStore(self.out, value, place)

            parts = [lanes(self.block, partial(result, k=k)) for k in range(m)]
            if guarded:
                ends = (E.compare(E.LT, E.add(x, k * dx), self.width) for k in range(m))
                parts = [IfThenElse(end, part) for end, part in zip(ends, parts, strict=True)]
                return IfThenElse(E.compare(E.LT, line, self.height), seq(*parts))
            return seq(*parts)

        return seq(unrolled("k", (size,), column), unrolled("i", (m,), row))


def row_major(indices: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    """The row-major number of indices."""
    total: PrimExpr = E.const(0, INDEX)
    for i, size in zip(indices, shape, strict=True):
        total = E.add(E.mul(total, size), i)
    return total


def _product(sizes: Sequence[PrimExpr]) -> PrimExpr:
    total: PrimExpr = E.const(1, INDEX)
    for size in sizes:
        total = E.mul(total, size)
    return total


def _kept_below(value: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """A value that is inside of an extent, so that it is seen where the extent is a number."""
    known = const_int(extent)
    return value if known is None else E.maximum(E.minimum(value, known - 1), 0)


def _odd_lines(n: int) -> int:
    """At least n floats that are an odd number of cache lines."""
    lines = -(-n // LINE)
    return (lines | 1) * LINE
