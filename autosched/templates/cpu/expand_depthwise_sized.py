"""A 1x1 convolution and the depthwise one that reads it, of images whose sizes come with the call.

    for (n, panel of hidden channels, part of rows) in parallel:
        hidden[block, rows, columns of the border, :] = what pads the image   # in scratch of the worker
        for tile of the pixels, as one line, that the part's windows reach:
            hidden[block, row, column, :] = epilogue of the 1x1 convolution
        for block of the panel, row of the part, tile of pixels:
            out = epilogue of the windows of the hidden rows

Parts are as many as let the second-level cache hold their hidden rows, and the cores share them; two of them both
compute the rows that windows of both reach. Tiles are those of `conv_sized`, and so are requests for the next panel's
weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from autosched.codegen.cpu.cut import WHOLE_TILE
from autosched.ir.node import FrozenDict
from autosched.target import Target
from autosched.te import ceildiv
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, extents, reduced, spatial
from autosched.templates.cpu.conv_blocks import as_line, has_pixels
from autosched.templates.cpu.conv_sized import FEW_STEPS, INDEX, ConvWriter, Windows, choose_tile
from autosched.templates.cpu.expand_depthwise import (
    MOST_SHARING,
    Bottleneck,
    find_bottleneck,
    padded_rows,
)
from autosched.templates.cpu.open_channels import INPUTS, OUTPUTS, channels_of, opened_func, opening
from autosched.templates.cpu.sized import sized
from autosched.templates.nests import lanes, loop
from autosched.templates.pack import Pack, repack
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad, BufferStore
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import rewrite
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import LetStmt, LoopKind, SeqStmt, Stmt, seq

PARALLEL = LoopKind.PARALLEL
# Of the second-level cache, which the hidden rows of a part may fill: the image's rows and the results are beside them.
# 96 channels of 112x112, windows of stride 2: .88 of the time that 0.6 takes (Emerald Rapids).
SCRATCH_SHARE = 0.3
TURNS = 56  # bits behind the point of a reciprocal


def schedule_expand_depthwise(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule both convolutions as one kernel over symbols; None for another function."""
    found = find_bottleneck(func)
    if found is None:
        return None
    image = (found.hidden.anchor, *found.hidden.after)[-1].writes[0].buffer
    above = padded_rows(found.padding, image)
    if above is None or (const_int(image.shape[2]) is not None and const_int(image.shape[3]) is not None):
        return None
    expand, window = found.expand[0].buffer, found.window[0].buffer
    block = extents(spatial(found.hidden.anchor)[4:])[0]
    inner = extents(reduced(found.hidden.anchor))[3]
    blocks = extents(spatial(found.hidden.anchor)[1:2])[0]
    steps = math.prod(extents(reduced(found.hidden.anchor)))
    tile = choose_tile(blocks, block, steps, blocks, True, target)
    packs = {
        expand: Pack(expand.const_shape(), (tile.blocks * block, inner, 0, 0), (0, 2, 4, 5, 3, 1)),
        window: Pack(window.const_shape(), (block, 0, 0, 0), (0, 2, 3, 4, 1)),
    }
    params = tuple(packs.get(func.buffer_map[p]) for p in func.params)
    step = _opening(found, tile.blocks)
    if step is not None:
        func, image = opened_func(func, step), rewrite(image, step)
    packed = func
    for weight, pack in packs.items():
        packed = repack(packed, weight if step is None else rewrite(weight, step), pack)
    first, second = _halves(packed, 1 + len(found.hidden.after), image)
    taps = math.prod(extents(reduced(found.result.anchor)))
    made = _Writer(
        ConvWriter(first, tile, True, target, asks_ahead=steps > FEW_STEPS),
        ConvWriter(second, choose_tile(blocks, block, taps, 1, False, target), False, target, "windows"),
        image, above, target,
    )  # fmt: skip
    if made.windows is None:
        return None
    body = made.body(made.windows)
    buffers = (made.hidden, *made.expand.tiles.values(), *made.depthwise.tiles.values())
    buffer_map = FrozenDict({p: made.lines.get(b, b) for p, b in packed.buffer_map.items()})
    written = replace(packed, buffer_map=buffer_map).with_body(make_root(body, buffers))
    return Applied(sized(func, written).func, params)


def _opening(found: Bottleneck, outputs: int) -> Callable[[object], object] | None:
    """What leaves the numbers of channels open, of which those of the hidden image are chunks of so many blocks."""
    first, last = found.hidden, found.result
    blocks = (first.anchor, *first.after, *found.padding, last.anchor, *last.after)
    symbols = {**channels_of(blocks, OUTPUTS), reduced(first.anchor)[0].var: INPUTS}
    weights = {found.expand[0].buffer: first.anchor, found.window[0].buffer: last.anchor}
    return opening(blocks, weights, symbols, 1, outputs)


def _halves(func: PrimFunc, count: int, image: Buffer) -> tuple[PrimFunc, PrimFunc]:
    """The function of the first blocks, and that of the others, which share an image."""
    body = func.root.body
    nests = body.seq if isinstance(body, SeqStmt) else (body,)
    handle = Var(image.name, "handle")
    shared = replace(
        func, params=(*func.params, handle), buffer_map=FrozenDict({**func.buffer_map, handle: image})
    )  # fmt: skip
    first, second = (shared.with_body(make_root(seq(*part))) for part in (nests[:count], nests[count:]))
    assert len(blocks_of(first)) == count, "each nest is of one block"
    return first, second


class _Writer:
    """The statements of both."""

    def __init__(self, expand: ConvWriter, depthwise: ConvWriter, image: Buffer, above: int, target: Target):
        self.expand, self.depthwise, self.image, self.above = expand, depthwise, image, above
        self.windows = depthwise.windows
        self.blocks, width = expand.tile.blocks, expand.lanes
        if self.windows is None:
            return
        stride, reach = self.windows.strides[0], self.windows.reaches[0] + 1
        self.stride, self.reach = stride, reach
        self.panels = Analyzer().simplify(E.floordiv(expand.channels, self.blocks))
        room = int(SCRATCH_SHARE * target.cache.l2_bytes) // (4 * self.blocks * width)  # pixels
        least = ceildiv(E.const(min(target.num_cores, MOST_SHARING), INDEX), self.panels)
        step = max(stride, 1)
        rows = E.floordiv(E.sub(E.floordiv(E.const(room, INDEX), expand.columns), reach - step), step)
        self.rows = E.maximum(E.minimum(rows, ceildiv(depthwise.rows, least)), 1)
        self.parts = ceildiv(depthwise.rows, self.rows)
        reached = E.add(E.mul(E.sub(self.rows, 1), stride), reach)
        pad = self.windows.pad
        self.left, self.pitch = E.const(0, INDEX), expand.columns
        if pad is not None:
            self.left, self.pitch = pad.columns[0], pad.block.iter_vars[3].dom.extent
        shape = (E.const(self.blocks, INDEX), E.mul(reached, self.pitch), E.const(width, INDEX))
        self.hidden = Buffer("hidden", shape, image.dtype, scope="global")
        arguments = [b for b in expand.func.buffers if b is not image and b is not depthwise.out]
        self.lines = {b: as_line(b) for b in arguments if has_pixels(b, image.shape)}

    def body(self, windows: Windows) -> Stmt:
        """All parts of all panels."""
        lower, images = self.above, self.expand.images

        def task(n: Var, panel: Var, part: Var) -> Stmt:
            start, stop, first, end = (Var(name, INDEX) for name in ("start", "stop", "first", "end"))
            below = E.add(E.mul(E.sub(stop, 1), self.stride), self.reach - lower)
            stmt = seq(self.expanded(n, panel, first, end), self.convolved(windows, n, panel, start, stop, first))
            stmt = LetStmt(end, E.minimum(below, self.expand.rows), stmt)
            stmt = LetStmt(first, E.maximum(E.sub(E.mul(start, self.stride), lower), 0), stmt)
            stmt = LetStmt(stop, E.minimum(E.add(start, self.rows), self.depthwise.rows), stmt)
            return LetStmt(start, E.mul(part, self.rows), stmt)

        def nest(n: Var) -> Stmt:
            return loop(
                "panel", self.panels, lambda p: loop("part", self.parts, lambda i: task(n, p, i), PARALLEL), PARALLEL
            )

        return loop("n", images, nest, PARALLEL)

    def expanded(self, n: Var, panel: Var, first: Var, end: Var) -> Stmt:
        """The hidden rows between two: pixels of a line, each of which is stored in its row.

        How many rows a tile goes on is a product by a reciprocal, right for rows of up to 2**28 pixels.
        """
        width, rows = self.expand.columns, E.maximum(E.sub(end, first), 0)
        start, count, turn = Var("start", INDEX), Var("count", INDEX), Var("turn", INDEX)
        gap = E.sub(self.pitch, width)

        def tile(pixel: PrimExpr, size: int) -> Stmt:
            line = [(E.const(0, INDEX), E.add(pixel, E.const(j, INDEX))) for j in range(size)]
            row, column = Var("row", INDEX), Var("column", INDEX)
            places = [E.add(column, E.add(E.mul(E.mul(E.add(column, j), turn) >> TURNS, gap), j)) for j in range(size)]
            where = {id(at): place for (_, at), place in zip(line, places, strict=True)}

            def step(x: object) -> object:
                if isinstance(x, BufferStore) and x.buffer is self.image:
                    return replace(x, indices=(*x.indices[:2], row, where[id(x.indices[3])], x.indices[4]))
                return x

            stmt: Stmt = rewrite(self.expand.tile_at(n, panel, line), step)
            return LetStmt(row, E.floordiv(pixel, width), LetStmt(column, E.floormod(pixel, width), stmt))

        tiles = self.expand.asking(start, count, seq(*self.expand.pieces(tile, start, count)))
        tiles = LetStmt(turn, ceildiv(E.const(1 << TURNS, INDEX), width), tiles)
        tiles = LetStmt(start, E.mul(first, width), LetStmt(count, E.mul(rows, width), tiles))
        return self.in_scratch(seq(*self.border(rows), tiles), E.mul(panel, self.blocks), first)

    def border(self, rows: PrimExpr) -> list[Stmt]:
        """What pads so many hidden rows at their ends."""
        pad = self.windows.pad if self.windows is not None else None
        if pad is None:
            return []
        right = E.add(self.left, self.expand.columns)

        def row(b: Var, r: Var) -> Stmt:
            def column(x: PrimExpr) -> Stmt:
                at = E.add(E.mul(r, self.pitch), x)
                return lanes(
                    self.expand.lanes, lambda lane: BufferStore(self.hidden, pad.border, (b, at, E.cast(INDEX, lane)))
                )

            return seq(
                loop("column", self.left, column),
                loop("column", E.sub(self.pitch, right), lambda x: column(E.add(right, x))),
            )

        return [loop("b", E.const(self.blocks, INDEX), lambda b: loop("row", rows, lambda r: row(b, r)))]

    def convolved(
        self, windows: Windows, n: Var, panel: Var, start: Var, stop: Var, first: Var
    ) -> Stmt:  # fmt: skip
        """The results of a part."""

        def block(b: Var) -> Stmt:
            channels = Var("channels", INDEX)

            def row(y: Var) -> Stmt:
                return seq(*self.depthwise.whole_row(n, channels, E.add(start, y)))

            return LetStmt(channels, E.add(E.mul(panel, self.blocks), b), loop("row", E.sub(stop, start), row))

        rows = loop("block", E.const(self.blocks, INDEX), block, annotations={WHOLE_TILE: True})
        return self.in_scratch(rows, E.mul(panel, self.blocks), first)

    def in_scratch(self, stmt: Stmt, channels: PrimExpr, first: Var) -> Stmt:
        """What reads and writes the hidden image, whose part is in scratch from a block of channels and a row on.

        Its rows have their border. Arguments of its size are lines of pixels.
        """

        def step(x: object) -> object:
            if not isinstance(x, BufferLoad | BufferStore) or (
                x.buffer is not self.image and x.buffer not in self.lines
            ):
                return x
            n, block, row, column, lane = x.indices
            if x.buffer is self.image:
                pixel = E.add(E.mul(E.sub(row, first), self.pitch), E.add(column, self.left))
                return replace(x, buffer=self.hidden, indices=(E.sub(block, channels), pixel, lane))
            pixel = E.add(E.mul(row, self.expand.columns), column)
            return replace(x, buffer=self.lines[x.buffer], indices=(n, block, pixel, lane))

        found: Stmt = rewrite(stmt, step)
        return found
