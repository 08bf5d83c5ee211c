"""Convolutions of images whose sizes come with the call: register tiles of pixels and blocks of output channels.

    padded[n, c, y, x, lane] = data, or zero                  # a phase of its own, where there is padding
    for (n, panel of channels, chunk of pixels) in parallel:  # or (n, chunk, panel)
        for tile of pixels:
            row, column of each pixel
            tile[blocks, pixels, lanes] = 0                   # stays in registers
            for ic, kh, kw, ib: tile += data[…] (broadcast) * weight_packed[panel, ic, kh, kw, ib, :]
            out = epilogue(tile)

An image is one line of OH * OW pixels: a tile goes across rows, so that only the last pixels of an image are not a
whole one. They get tiles of half as many pixels and fewer, the last of which computes some pixels again. Grouped
convolutions are computed so too.

Each pixel of such a tile has a pointer of its own, so that there are few. Where they lie side by side, tiles have more:
those of 1x1 convolutions, whose data are such lines too, and those in the rows of plain images, which are first layers.

A depthwise convolution has so little to compute that a padded image would take longest: its tasks are some rows of one
block of channels, whose windows leave out what they do not have. Pixels that meet the first or last columns are alone.
Where a block holds several groups, it is computed so too: a vector of the data, moved in registers for each channel of
a group, is multiplied for all taps of a row.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from autosched.codegen.cpu.cut import WHOLE_TILE
from autosched.ir.node import FrozenDict
from autosched.target import Target
from autosched.te import ceildiv
from autosched.templates.base import Applied
from autosched.templates.chain import chain_around
from autosched.templates.classify import extents, find_contraction, reduced, spatial
from autosched.templates.core_nests import load, one_of, store
from autosched.templates.cpu.conv_blocks import as_line, find_conv, has_pixels
from autosched.templates.cpu.open_channels import open_channels
from autosched.templates.cpu.register_tile import FLOAT_BYTES, LOAD_COST, cold_bytes, cycles, fits
from autosched.templates.cpu.sized import sized
from autosched.templates.nests import lanes, loop, value_at
from autosched.templates.pack import Pack, packed_params, repack
from autosched.templates.winograd_form import factor_of, is_sum
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.prefetch import LINE_BYTES, request
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import Block, BufferStore, IfThenElse, LetStmt, LoopKind, Stmt, seq

MOST_PIXELS = 8  # of a tile: each has a pointer of its own
MOST_PIXELS_IN_ROW = 16
MOST_BLOCKS = 4  # of output channels in a tile
MANY_PIXELS = 1 << 10  # of an image, for which tiles are chosen
CHUNK_PIXELS = 96  # of a piece of work
UNROLLED_TAPS = 9  # of a window without input channels
SQUARE = 9  # pixels of an image of 3x3: a smaller tile
TALL = 16  # pixels of an image of 4x4: a tile of one block after the other, which reads weights once
TASK_ROWS = 8  # of a depthwise convolution's results
NEAR = 1.03  # of the least time that is estimated for a tile
FEW_STEPS = 32  # of a tile, in which a request each takes 1.03 of the time, 1.05 with tiles of one block
INDEX, BITS = "int64", 64
Place = tuple[PrimExpr, PrimExpr]  # the row and the column of a pixel


@dataclass(frozen=True)
class Tile:
    """So many pixels, and blocks of output channels for each; in_row: pixels lie side by side in a row."""

    pixels: int
    blocks: int
    in_row: bool = False


def schedule_conv(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a convolution over symbols; None for another function."""
    conv = find_conv(func)
    if conv is None:
        return None
    _, channels, *_, lane = spatial(conv.chain.anchor)
    steps, (panels, block) = extents(reduced(conv.chain.anchor)), extents((channels, lane))
    weight = conv.weight.buffer
    shape = weight.const_shape()
    inner = steps[3] if len(steps) == 4 else 0
    in_row = conv.is_pointwise or len(conv.data.indices) == 4
    groups = conv.group_blocks
    tile = choose_tile(panels, block, math.prod(steps), groups, in_row, target, is_ragged=groups == panels)
    pack = Pack(shape, (tile.blocks * block, inner, 0, 0), (0, 2, 4, 5, 3, 1) if inner else (0, 2, 3, 4, 1))
    packs = packed_params(func, weight, pack)
    func, conv = open_channels(func, conv, 1, tile.blocks) or (func, conv)
    packed = repack(func, conv.weight.buffer, pack)
    is_flat = conv.is_pointwise
    writer = ConvWriter(packed, tile, is_flat, target, asks_ahead=is_flat and math.prod(steps) > FEW_STEPS)
    made = sized(func, writer.written())
    return Applied(made.func, packs)


def choose_tile(
    n_blocks: int, block: int, steps: int, group_blocks: int, in_row: bool, target: Target, is_ragged: bool = False
) -> Tile:  # fmt: skip
    """The tile of about the least estimated time for a large image: most layers have the same number of blocks.

    Panels are of one group, and the last is whole or ragged.
    """
    most = MOST_PIXELS_IN_ROW if in_row else MOST_PIXELS
    per_block = -(-block // target.lanes("float32"))
    times: dict[Tile, float] = {}
    for blocks in range(1, min(group_blocks, MOST_BLOCKS) + 1):
        vectors = blocks * per_block
        for pixels in range(1, most + 1):
            if (is_ragged or group_blocks % blocks == 0) and fits(pixels, vectors, target.num_registers):
                count, computed = MANY_PIXELS // pixels, -(-n_blocks // blocks) * vectors
                time = cycles([(pixels, count)], vectors, computed, steps, target) / (count * pixels)
                times[Tile(pixels, blocks, in_row)] = time * (1 + LOAD_COST * (pixels + vectors) / (pixels * vectors))
    best = min(times.values(), default=0.0)
    near = [tile for tile, time in times.items() if time <= NEAR * best]
    usual = 2 if in_row else MOST_BLOCKS
    order = {tile: (n_blocks % tile.blocks > 0, abs(tile.blocks - usual), times[tile]) for tile in near}
    return min(near, key=order.__getitem__, default=Tile(1, 1, in_row))


@dataclass(frozen=True)
class Padding:
    """What a block copies in the rows and columns between two limits, and what stands elsewhere."""

    block: Block
    inside: PrimExpr
    border: PrimExpr
    rows: tuple[PrimExpr, PrimExpr]
    columns: tuple[PrimExpr, PrimExpr]


@dataclass(frozen=True)
class Windows:
    """How a convolution reads its data, a block of channels for each of its own.

    pad      what makes the data, if anything
    strides  between rows and columns of results
    reaches  rows and columns from the first of a window to its last
    """

    data: BufferLoad
    pad: Padding | None
    strides: Sequence[int]
    reaches: Sequence[int]

    @property
    def limits(self) -> tuple[tuple[PrimExpr, PrimExpr], ...]:
        """The rows and the columns of what is read that are no border."""
        if self.pad is not None:
            return self.pad.rows, self.pad.columns
        return tuple((E.const(0, INDEX), extent) for extent in self.data.buffer.shape[2:4])


def padding_of(block: Block) -> Padding | None:
    """What a block pads, of images [n, c, y, x] or of blocks of channels; None for what is no padding."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    if not isinstance(value, E.Call) or value.op != "if_then_else" or len(block.iter_vars) not in (4, 5):
        return None
    condition, inside, border = value.args
    axes = {iv.var: iv.dom.extent for iv in block.iter_vars[2:4]}
    low: dict[Var, PrimExpr] = dict.fromkeys(axes, E.const(0, INDEX))
    high: dict[Var, PrimExpr] = dict(axes)
    for test in split_conditions(condition):
        match test:
            case E.GE(a=Var() as axis, b=end) | E.LE(a=end, b=Var() as axis) if axis in axes:
                low[axis] = end
            case E.LT(a=Var() as axis, b=end) | E.GT(a=end, b=Var() as axis) if axis in axes:
                high[axis] = end
            case _:
                return None
        if free_vars(end) & {iv.var for iv in block.iter_vars}:
            return None
    if not isinstance(border, E.FloatImm | E.IntImm):
        return None
    rows, columns = ((low[v], high[v]) for v in axes)
    return Padding(block, inside, border, rows, columns)


class ConvWriter:
    """The statements of one function, whose weight is packed."""

    def __init__(
        self, func: PrimFunc, tile: Tile, is_flat: bool, target: Target, name: str = "sums", asks_ahead: bool = False
    ):  # fmt: skip
        self.name = name  # of the sums in registers
        c = find_contraction(func)
        assert c is not None, "packing keeps the convolution"
        chain = chain_around(func, c.block)
        assert chain is not None and isinstance(c.block.body, BufferStore), "find_conv looked"
        self.func, self.tile, self.is_flat, self.width = func, tile, is_flat, target.lanes("float32")
        self.block, self.chain = c.block, chain
        self.images, self.channels, self.rows, self.columns, _ = (iv.dom.extent for iv in spatial(c.block))
        self.lanes = extents(spatial(c.block)[4:])[0]
        self.is_ragged = (const_int(self.channels) or 0) % tile.blocks > 0
        self.sums = c.block.writes[0].buffer
        self.out = chain.after[-1].writes[0].buffer if chain.after else self.sums
        self.makers = {b.writes[0].buffer: b for b in (*chain.before, *chain.after)}
        read = {x.buffer for x in (c.a, c.b)}
        copied = [b for b in chain.before if b.writes[0].buffer in read and not _picks(b)]
        self.copies = {b.writes[0].buffer: self.makers.pop(b.writes[0].buffer) for b in copied}
        self.packed = next((x.buffer for x in (c.a, c.b) if len(x.indices) == 6), None)
        self.by_weight = self.has_weights_over(target.cache.l2_bytes // 2)
        self.is_cold = self.has_weights_over(cold_bytes(target.cache))
        self.has_few_steps = is_flat and not asks_ahead
        self.asks_ahead = asks_ahead and const_int(self.is_cold) != 0
        self.asked_from, self.asked_until, self.turns = (Var(v, INDEX) for v in ("asked_from", "asked_until", "turns"))
        self.asks_all = Var("asks_all", INDEX)
        self.tiles: dict[int, Buffer] = {}
        self.panel_blocks = tile.blocks
        self.part: tuple[PrimExpr, Var] | None = None  # the panel and its block that a tile is of
        self.windows = next((w for x in (c.a, c.b) if (w := self.windows_of(x)) is not None), None)

    def has_weights_over(self, size: int) -> PrimExpr:
        """Whether packed blocks of weights have more bytes: a call may say how many there are."""
        if self.packed is None:
            return E.const(0, "bool")
        return Analyzer().simplify(E.compare(E.LT, size // FLOAT_BYTES, reduce(E.mul, self.packed.shape)))

    def windows_of(self, data: BufferLoad) -> Windows | None:
        """How a convolution reads its data whose groups are no larger than a block; None for anything else."""
        steps, axes = reduced(self.block), [iv.var for iv in spatial(self.block)]
        if len(steps) > 3 or self.tile.blocks != 1 or len(data.indices) != 5 or data.indices[1] is not axes[1]:
            return None
        lane = data.indices[4]
        if lane is not axes[4] if len(steps) == 2 else axes[4] not in free_vars(lane):
            return None
        strides, reaches = [], []
        for index, axis, step in zip(data.indices[2:4], axes[2:4], steps[-2:], strict=True):
            stride, dilation = factor_of(index, axis), factor_of(index, step.var)
            if not is_sum(index, {axis: stride, step.var: dilation}) or stride < 0 or dilation < 0:
                return None
            strides.append(stride)  # none where there is one row
            reaches.append(dilation * (extents((step,))[0] - 1))
        if not any(strides):  # a weight
            return None
        made = self.copies.get(data.buffer)
        pad = None if made is None else padding_of(made)
        return None if made is not None and pad is None else Windows(data, pad, strides, reaches)

    def written(self) -> PrimFunc:
        """The function with its loops; where it is flat, images are lines of pixels for its arguments too."""
        body, buffers = self.function()
        made = self.func.with_body(make_root(body, tuple(buffers)))
        if not self.is_flat:
            return made
        lines = {b: as_line(b) for b in made.buffers if has_pixels(b, self.sums.shape)}

        def step(x: object) -> object:
            if isinstance(x, BufferLoad | BufferStore) and x.buffer in lines:
                n, channel, _, pixel, lane = x.indices
                return replace(x, buffer=lines[x.buffer], indices=(n, channel, pixel, lane))
            return x

        buffer_map = FrozenDict({p: lines.get(b, b) for p, b in made.buffer_map.items()})
        return replace(made, buffer_map=buffer_map, body=rewrite(made.body, step))

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """(the loops, the buffers between)."""
        if self.windows is not None:
            return self.depthwise(self.windows), [*self.tiles.values()]
        copies = [self.copied(buffer, block) for buffer, block in self.copies.items()]
        return seq(*copies, self.convolved()), [*self.copies, *self.tiles.values()]

    def copied(self, buffer: Buffer, block: Block) -> Stmt:
        """What the convolution reads, made beforehand: a row in a piece."""
        *outer, last = buffer.shape
        lanes_known = const_int(last)

        def row(*at: Var) -> Stmt:
            def element(*more: PrimExpr) -> Stmt:
                place = (*at, *more)
                return BufferStore(buffer, value_at({**self.makers, buffer: block}, buffer, place, {}), place)

            if lanes_known is not None:
                return lanes(lanes_known, lambda lane: element(E.cast(INDEX, lane)))
            width = 2 * self.width

            def vector(n: Var) -> Stmt:
                def masked(lane: PrimExpr) -> Stmt:
                    x = E.add(E.mul(n, width), E.cast(INDEX, lane))
                    return IfThenElse(E.compare(E.LT, x, last), element(x))

                return lanes(width, masked)

            return loop("vector", ceildiv(last, width), vector)

        return _nested(outer, row, min(len(outer), 3))

    def depthwise(self, windows: Windows) -> Stmt:
        """The convolution by rows of a block of channels."""

        def task(n: Var, panel: Var, chunk: Var) -> Stmt:
            start = E.mul(chunk, TASK_ROWS)
            rows = E.minimum(E.const(TASK_ROWS, INDEX), E.sub(self.rows, start))
            row = partial(self.depthwise_row, windows, n, panel)
            return loop("row", rows, lambda r: row(E.add(start, r)), annotations={WHOLE_TILE: True})

        return _nested((self.images, self.channels, ceildiv(self.rows, TASK_ROWS)), task, 3)

    def depthwise_row(self, windows: Windows, n: Var, panel: Var, y: PrimExpr) -> Stmt:
        """A row of a block of channels; pixels whose windows meet a border are alone."""
        stride, reach = max(windows.strides[1], 1), windows.reaches[1]
        left, right = windows.limits[1]
        last = E.floordiv(E.add(E.sub(right, reach + 1), stride), stride)  # the windows before it end inside
        first = E.maximum(E.minimum(ceildiv(left, stride), self.columns), 0)

        def pixel(x: PrimExpr) -> Stmt:
            return self.tile_at(n, panel, [(y, x)])

        def tile(column: PrimExpr, pixels: int) -> Stmt:
            begin = E.mul(column, stride)
            end = E.add(begin, (pixels - 1) * stride + reach)
            inside = E.compare(E.LE, left, begin), E.compare(E.LT, end, right)
            places = [(y, E.add(column, E.const(j, INDEX))) for j in range(pixels)]
            is_all = E.all_of(*inside, E.compare(E.LE, E.add(column, pixels), self.columns))
            return IfThenElse(is_all, self.tile_at(n, panel, places, inside=True))

        count = E.maximum(E.sub(E.minimum(last, self.columns), first), 0)
        rest = E.add(first, count)
        return seq(
            loop("column", first, pixel),
            *self.pieces(tile, first, count),
            loop("column", E.sub(self.columns, rest), lambda x: pixel(E.add(rest, x))),
        )

    def whole_row(self, n: Var, panel: Var, y: PrimExpr) -> list[Stmt]:
        """A row of a block of channels of an image that has its border."""

        def tile(column: PrimExpr, pixels: int) -> Stmt:
            return self.tile_at(n, panel, [(y, E.add(column, E.const(j, INDEX))) for j in range(pixels)], inside=True)

        return self.pieces(tile, E.const(0, INDEX), self.columns)

    @property
    def chunk_pixels(self) -> int:
        return max(CHUNK_PIXELS // self.tile.pixels, 1) * self.tile.pixels

    def convolved(self) -> Stmt:
        by_row = self.tile.in_row and not self.is_flat
        pixels = E.mul(self.rows, self.columns)
        per_chunk = self.chunk_pixels
        panels = Analyzer().simplify(ceildiv(self.channels, self.tile.blocks))
        chunks = self.rows if by_row else ceildiv(pixels, per_chunk)

        def task(n: Var, piece: Var) -> Stmt:
            panel, chunk, inner = (Var(name, INDEX) for name in ("panel", "chunk", "inner"))
            first, second = E.floordiv(piece, inner), E.floormod(piece, inner)
            stmt = LetStmt(chunk, E.Select(self.by_weight, second, first), tiles_of(n, panel, chunk))
            stmt = LetStmt(panel, E.Select(self.by_weight, first, second), stmt)
            return LetStmt(inner, E.Select(self.by_weight, chunks, panels), stmt)

        def tiles_of(n: Var, panel: Var, chunk: Var) -> Stmt:
            def tile(first: PrimExpr, size: int) -> Stmt:
                if not self.tile.in_row:
                    return self.in_rows(first, size, lambda places: self.tile_at(n, panel, places))
                row = chunk if by_row else E.const(0, INDEX)
                return self.tile_at(n, panel, [(row, E.add(first, E.const(j, INDEX))) for j in range(size)])

            if by_row:
                return seq(*self.pieces(tile, E.const(0, INDEX), self.columns))
            start, count = Var("start", INDEX), Var("count", INDEX)
            stmt = self.asking(start, count, seq(*self.pieces(tile, start, count)))
            stmt = LetStmt(count, E.minimum(per_chunk, E.sub(pixels, start)), stmt)
            return LetStmt(start, E.mul(chunk, per_chunk), stmt)

        return _nested((self.images, E.mul(panels, chunks)), task, 2)

    def pieces(self, tile_at: Callable[[PrimExpr, int], Stmt], start: PrimExpr, count: PrimExpr) -> list[Stmt]:
        """Tiles over `count` pixels from `start` on: whole ones, then smaller ones for what is left.

        Where there are enough pixels, the last tile of a size computes some of the one before again.
        """
        found, left, end = [], count, E.add(start, count)
        sizes = self.tile_sizes()
        for n, size in enumerate(sizes):
            smaller = sum(sizes[n + 1 : -1])  # pixels that one of each of the next sizes computes
            more = E.floordiv(E.add(left, max(size - 1 - smaller, 0)), size)
            if size > self.tile.pixels:
                rest, most = E.floormod(count, self.tile.pixels), size - self.tile.pixels
                is_tall = E.all_of(E.compare(E.GE, rest, max(most - 1, 1)), E.compare(E.LE, rest, most))
                more = E.Select(is_tall, E.const(1, INDEX), E.const(0, INDEX))
            elif self.tile.in_row and size == SQUARE < self.tile.pixels:
                more = E.Select(E.compare(E.EQ, left, size), E.const(1, INDEX), E.const(0, INDEX))
            number = E.Select(E.compare(E.LT, count, size), E.const(0, INDEX), more)
            first, last = E.sub(end, left), E.sub(end, size)

            def tile(t: Var, size: int = size, first: PrimExpr = first, last: PrimExpr = last) -> Stmt:
                at = Var("at", INDEX)
                return LetStmt(at, E.minimum(E.add(first, E.mul(t, size)), last), tile_at(at, size))

            found.append(loop("tile", number, tile, annotations={WHOLE_TILE: True}))
            left = E.maximum(E.sub(left, E.mul(number, size)), 0)
        return found

    def tile_sizes(self) -> list[int]:
        """Pixels of tiles, down to one: each half as many as the one before, or those of small images.

        Lines of few channels are long, as first layers have them: the fewest sizes, which are compiled soonest.
        """
        sizes = [self.tile.pixels]
        if self.has_few_steps:
            return [*sizes, *(size for size in (4, 2, 1) if size < sizes[0])]
        if self.tile.in_row:
            tall = [TALL] if self.tile.blocks > 1 and TALL / 2 < sizes[0] < TALL else []
            return [*tall, *sizes, *(size for size in (SQUARE, 8, 4, 2, 1) if size < sizes[0])]
        while sizes[-1] > 1:
            sizes.append(sizes[-1] // 2)
        return sizes

    def in_rows(self, first: PrimExpr, pixels: int, body_at: Callable[[Sequence[Place]], Stmt]) -> Stmt:
        """What is done with the pixels of an image from `first` on, behind where each is."""
        rows, columns = ([Var(f"{name}_{j}", INDEX) for j in range(pixels)] for name in ("row", "column"))
        body = body_at(list(zip(rows, columns, strict=True)))
        for j in reversed(range(pixels)):
            row, column = E.floordiv(first, self.columns), E.floormod(first, self.columns)
            if j:
                next_column = E.add(columns[j - 1], 1)
                ends = E.compare(E.EQ, next_column, self.columns)
                row = E.add(rows[j - 1], E.Select(ends, E.const(1, INDEX), E.const(0, INDEX)))
                column = E.Select(ends, E.const(0, INDEX), next_column)
            body = LetStmt(rows[j], row, LetStmt(columns[j], column, body))
        return body

    def tile_at(self, n: Var, panel: PrimExpr, places: Sequence[Place], inside: bool = False) -> Stmt:
        """The tile of some pixels: sums, then results; inside: columns of their windows are no border."""
        if len(places) > self.tile.pixels:
            return self.by_block(n, panel, places)
        sums = one_of(f"{self.name}_{len(places)}", self.sums.dtype, self.tile.blocks, len(places), self.lanes)
        sums = self.tiles.setdefault(len(places), sums)
        return seq(
            self.over(places, lambda b, j, lane, at: store(sums, self.start(), b, j, lane)),
            self.summed(n, panel, places, sums, inside),
            self.results(n, panel, places, sums),
        )

    def by_block(self, n: Var, panel: PrimExpr, places: Sequence[Place]) -> Stmt:
        """The tile of more pixels than all blocks of a panel have registers for: block by block."""
        blocks = self.tile.blocks

        def block(b: Var) -> Stmt:
            one = copy.copy(self)
            one.tile, one.is_ragged, one.part = Tile(len(places), 1, True), False, (panel, b)
            return one.tile_at(n, E.add(E.mul(panel, blocks), b), places)

        held: PrimExpr = E.const(blocks, INDEX)
        if self.is_ragged:
            held = E.minimum(E.sub(self.channels, E.mul(panel, blocks)), held)
        return loop("block", held, block)

    def results(self, n: Var, panel: PrimExpr, places: Sequence[Place], sums: Buffer) -> Stmt:
        """What is stored of a tile: the last panel may have fewer blocks of channels."""
        if not self.is_ragged:
            return self.over(places, lambda b, j, lane, at: self.result(n, panel, b, j, lane, at, sums))
        held = Var("held", INDEX)
        stmt = self.over(places, lambda b, j, lane, at: self.result(n, panel, b, j, lane, at, sums), held)
        left = E.sub(self.channels, E.mul(panel, self.tile.blocks))
        return LetStmt(held, E.minimum(left, self.tile.blocks), stmt)

    def over(
        self, places: Sequence[Place], body: Callable[[Var, int, PrimExpr, Place], Stmt], held: Var | None = None
    ) -> Stmt:  # fmt: skip
        """All elements of a tile; held: of so many blocks of it."""

        def pixel(j: int, at: Place) -> Stmt:  # what all blocks multiply is loaded once, for all of them
            def block(b: Var) -> Stmt:
                stmt = lanes(self.lanes, lambda lane: body(b, j, lane, at))
                return stmt if held is None else IfThenElse(E.compare(E.LT, E.cast(INDEX, b), held), stmt)

            return loop("b", self.tile.blocks, block, LoopKind.UNROLLED)

        return seq(*(pixel(j, at) for j, at in enumerate(places)))

    def start(self) -> PrimExpr:
        assert isinstance(self.block.init, BufferStore), "sums begin somewhere"
        return self.block.init.value

    def summed(self, n: Var, panel: PrimExpr, places: Sequence[Place], sums: Buffer, inside: bool) -> Stmt:
        """The sums over input channels and the window."""
        steps = reduced(self.block)
        counts = [iv.dom.extent for iv in steps]
        assert isinstance(self.block.body, BufferStore), "find_conv looked"
        term = self.block.body.value.b  # type: ignore[attr-defined]

        def step(*ks: Var, beyond: bool = False) -> Stmt:
            def added(b: Var, j: int, lane: PrimExpr, at: Place) -> Stmt:
                values = [n, E.add(E.mul(panel, self.tile.blocks), E.cast(INDEX, b)), *at, E.cast(INDEX, lane), *ks]
                axes = (*spatial(self.block), *steps)
                known = Analyzer(
                    {v: (0, m) for v, c in zip(ks, counts, strict=True) if (m := const_int(c)) is not None}
                )
                known.bind(b, (0, self.tile.blocks))
                if self.part is not None:
                    known.bind(self.part[1], (0, self.panel_blocks))
                if isinstance(lane, Var):
                    known.bind(lane, (0, self.lanes))
                value = substitute(term, {iv.var: E.cast(iv.var.dtype, v) for iv, v in zip(axes, values, strict=True)})
                value = _simplified(self.inlined(value, beyond), known)
                return store(sums, E.add(load(sums, b, j, lane), value), b, j, lane)

            return self.over(places, added)

        if self.windows is not None:
            return self.in_window(self.windows, places[0], step, inside)
        is_short = len(steps) == 2 and math.prod(extents(steps)) <= UNROLLED_TAPS
        kind = LoopKind.UNROLLED if is_short else LoopKind.SERIAL

        def asking(*ks: Var) -> Stmt:
            return seq(*self.next_weights(panel, ks, places), step(*ks))

        return _nested(counts, asking, len(steps), kind)

    def asking(self, start: Var, count: Var, tiles: Stmt) -> Stmt:
        """Tiles of so many pixels, and which of them ask for cold weights of the next panel: each for a line a step.

        Where there are twice as many tiles as lines, two ask in turn; of few pixels the first tile asks for all.
        """
        if not self.asks_ahead:
            return tiles
        lines = self.tile.blocks * self.lanes * FLOAT_BYTES // LINE_BYTES
        pixels = E.mul(self.tile.pixels, E.Select(self.is_cold, E.const(lines, INDEX), E.const(0, INDEX)))
        by_two = E.compare(E.LE, 2 * lines, ceildiv(count, self.tile.pixels))
        is_few = E.all_of(self.is_cold, E.compare(E.LE, count, TALL))
        stmt = LetStmt(self.asks_all, E.Select(is_few, start, E.const(-1, INDEX)), tiles)
        stmt = LetStmt(self.asked_until, E.add(start, E.mul(pixels, E.add(self.turns, 1))), stmt)
        stmt = LetStmt(self.turns, E.Select(by_two, E.const(1, INDEX), E.const(0, INDEX)), stmt)
        return LetStmt(self.asked_from, start, stmt)

    def next_weights(self, panel: PrimExpr, ks: Sequence[Var], places: Sequence[Place]) -> list[Stmt]:
        """The request of a step of a tile: for a line that is there, if it is not to ask; all lines of few pixels'.

        So a step of a large tile has no branch.
        """
        if not self.asks_ahead or self.packed is None:
            return []
        packed, pixel = self.packed, places[0][1]
        blocks, *_, lanes = packed.shape[1:5]
        in_panel, lines = E.add(E.mul(ks[0], lanes), ks[3]), self.tile.blocks * self.lanes * FLOAT_BYTES // LINE_BYTES

        def ask(panel: PrimExpr, line: PrimExpr) -> Stmt:
            zeros = (E.const(0, INDEX),) * 4
            first = BufferLoad(packed, (panel, *zeros, E.mul(line, LINE_BYTES // FLOAT_BYTES)))
            return request(first, is_far=True)

        def every(panel: PrimExpr, block: PrimExpr) -> Stmt:
            first = E.mul(E.add(E.mul(block, E.mul(blocks, lanes)), in_panel), lines)
            return seq(*(ask(panel, E.add(first, j)) for j in range(lines)))

        if self.part is not None:
            whole, block = self.part
            is_cold = E.compare(E.LT, self.asked_from, self.asked_until)
            return [every(E.Select(is_cold, E.add(whole, 1), whole), block)]
        tile = E.floordiv(E.sub(pixel, self.asked_from), self.tile.pixels)
        step = E.add(E.mul(tile, E.mul(blocks, lanes)), in_panel)
        asks = E.compare(E.LT, pixel, self.asked_until)
        shift = E.Select(asks, self.turns, E.const(BITS - 1, INDEX))
        one = ask(E.Select(asks, E.add(panel, 1), panel), step >> shift)
        if len(places) == self.tile.pixels:
            return [one]
        return [IfThenElse(E.compare(E.EQ, pixel, self.asks_all), every(E.add(panel, 1), E.const(0, INDEX)), one)]

    def in_window(self, windows: Windows, at: Place, step: Callable[..., Stmt], inside: bool) -> Stmt:
        """The steps of windows in the row of a pixel; each tests for borders, but not in columns that are `inside`.

        Which lanes are moved for a channel of a group is known in the code, and the moved ones meet all pixels.
        """
        (*channels, down, across), axes = reduced(self.block), spatial(self.block)[2:4]
        taps = (down, across)
        is_zero = windows.pad is None or getattr(windows.pad.border, "value", None) == 0
        unrolled = LoopKind.UNROLLED
        by_row = unrolled if math.prod(extents(reduced(self.block))) <= UNROLLED_TAPS else LoopKind.SERIAL

        def within(d: int, k: Var, then: Stmt, beyond: Callable[[], Stmt]) -> Stmt:
            if windows.pad is None:
                return then
            index = substitute(windows.data.indices[2 + d], {axes[d].var: at[d], taps[d].var: k})
            low, high = windows.limits[d]
            test = E.all_of(E.compare(E.LE, low, index), E.compare(E.LT, index, high))
            return IfThenElse(test, then, None if is_zero else beyond())

        def of_channels(body: Callable[..., Stmt]) -> Stmt:
            return _nested([E.const(n, INDEX) for n in extents(tuple(channels))], body, 1, unrolled)

        def along(body: Callable[[Var], Stmt]) -> Stmt:
            return loop("kx", extents((across,))[0], body, unrolled)

        def row(ky: Var) -> Stmt:
            def tap(kx: Var, beyond: bool = False) -> Stmt:
                return of_channels(lambda *c: step(*c, ky, kx, beyond=beyond))

            def column(kx: Var) -> Stmt:
                return within(1, kx, tap(kx), partial(tap, kx, beyond=True))

            whole = of_channels(lambda *c: along(lambda kx: step(*c, ky, kx))) if inside else along(column)
            return within(0, ky, whole, lambda: along(partial(tap, beyond=True)))

        return loop("ky", extents((down,))[0], row, by_row)

    def inlined(self, value: PrimExpr, beyond: bool = False) -> PrimExpr:
        """A value in terms of buffers that exist; beyond: what is read is a border."""
        pad = self.windows.pad if self.windows is not None else None

        def inline(x: object) -> object:
            if not isinstance(x, BufferLoad):
                return x
            if pad is not None and x.buffer is pad.block.writes[0].buffer:
                axes = {iv.var: v for iv, v in zip(pad.block.iter_vars, x.indices, strict=True)}
                return pad.border if beyond else self.inlined(substitute(pad.inside, axes))
            return value_at(self.makers, x.buffer, x.indices, {})

        found: PrimExpr = rewrite(value, inline)
        return found

    def result(
        self, n: Var, panel: PrimExpr, b: Var, j: int, lane: PrimExpr, at: Place, sums: Buffer
    ) -> Stmt:  # fmt: skip
        channel = E.add(E.mul(panel, self.tile.blocks), E.cast(INDEX, b))
        if self.is_ragged:  # it is seen to be inside
            channel = E.minimum(channel, E.sub(self.channels, 1))
        place = (n, channel, *at, E.cast(INDEX, lane))
        value = value_at(self.makers, self.out, place, {self.sums: lambda _: load(sums, b, j, lane)})
        return BufferStore(self.out, value, place)


def _picks(block: Block) -> bool:
    """Whether a block moves elements and does nothing else."""
    return isinstance(block.body, BufferStore) and isinstance(block.body.value, BufferLoad)


def _simplified(value: PrimExpr, known: Analyzer) -> PrimExpr:
    """An expression with its indices simplified."""

    def step(x: object) -> object:
        if isinstance(x, BufferLoad):
            return BufferLoad(x.buffer, tuple(known.simplify(i) for i in x.indices))
        return x

    found: PrimExpr = rewrite(value, step)
    return found


def _nested(
    counts: Sequence[PrimExpr], body: Callable[..., Stmt], n_outer: int, kind: LoopKind = LoopKind.PARALLEL
) -> Stmt:
    """Loops inside of each other, the first of which are of a kind."""
    if not counts:
        return body()
    rest, kind_now = counts[1:], kind if n_outer > 0 else LoopKind.SERIAL
    return loop(
        "i", counts[0], lambda i: _nested(rest, lambda *more: body(i, *more), n_outer - 1, kind), kind_now
    )  # fmt: skip
