"""A 1x1 convolution and the depthwise one that reads it, of images whose sizes come with the call.

    for (n, panel of hidden channels, part of rows) in parallel:
        for row that the part's windows reach, tile of its pixels:            # in scratch of the worker
            hidden[block, row, column, :] = epilogue of the 1x1 convolution
        for block of the panel, row of the part, tile of pixels:
            out = epilogue of the windows of the hidden rows

Parts are as many as let the second-level cache hold their hidden rows, and the cores share them; two of them both
compute the rows that windows of both reach. Tiles are those of `conv_sized`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from autosched.ir.node import FrozenDict
from autosched.target import Target
from autosched.te import ceildiv
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, extents, reduced, spatial
from autosched.templates.cpu.conv_sized import INDEX, ConvWriter, Windows, choose_tile
from autosched.templates.cpu.expand_depthwise import (
    MOST_SHARING,
    SCRATCH_SHARE,
    find_bottleneck,
    padded_rows,
)
from autosched.templates.cpu.sized import sized
from autosched.templates.nests import loop
from autosched.templates.pack import Pack, repack
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad, BufferStore
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import rewrite
from autosched.tir.stmt import LetStmt, LoopKind, SeqStmt, Stmt, seq

PARALLEL = LoopKind.PARALLEL


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
    tile = choose_tile(blocks, block, math.prod(extents(reduced(found.hidden.anchor))), blocks, True, target)
    packs = {
        expand: Pack(expand.const_shape(), (tile.blocks * block, inner, 0, 0), (0, 2, 4, 5, 3, 1)),
        window: Pack(window.const_shape(), (block, 0, 0, 0), (0, 2, 3, 4, 1)),
    }
    packed = repack(repack(func, expand, packs[expand]), window, packs[window])
    first, second = _halves(packed, 1 + len(found.hidden.after), image)
    taps = math.prod(extents(reduced(found.result.anchor)))
    made = _Writer(
        ConvWriter(first, tile, False, target),
        ConvWriter(second, choose_tile(blocks, block, taps, 1, False, target), False, target, "windows"),
        image, above, target,
    )  # fmt: skip
    if made.windows is None:
        return None
    body = made.body(made.windows)
    buffers = (made.hidden, *made.expand.tiles.values(), *made.depthwise.tiles.values())
    params = tuple(packs.get(func.buffer_map[p]) for p in func.params)
    return Applied(sized(func, packed.with_body(make_root(body, buffers))).func, params)


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
        self.blocks, lanes = expand.tile.blocks, expand.lanes
        if self.windows is None:
            return
        stride, reach = self.windows.strides[0], self.windows.reaches[0] + 1
        self.stride, self.reach = stride, reach
        self.panels = (const_int(expand.channels) or 1) // self.blocks
        room = int(SCRATCH_SHARE * target.cache.l2_bytes) // (4 * self.blocks * lanes)  # pixels
        least = -(-min(target.num_cores, MOST_SHARING) // self.panels)
        step = max(stride, 1)
        rows = E.floordiv(E.sub(E.floordiv(E.const(room, INDEX), expand.columns), reach - step), step)
        self.rows = E.maximum(E.minimum(rows, ceildiv(depthwise.rows, least)), 1)
        self.parts = ceildiv(depthwise.rows, self.rows)
        reached = E.add(E.mul(E.sub(self.rows, 1), stride), reach)
        shape = (reached, E.const(self.blocks, INDEX), expand.columns, E.const(lanes, INDEX))
        self.hidden = Buffer("hidden", shape, image.dtype, scope="global")

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
            panels = E.const(self.panels, INDEX)
            return loop(
                "panel", panels, lambda p: loop("part", self.parts, lambda i: task(n, p, i), PARALLEL), PARALLEL
            )

        return loop("n", images, nest, PARALLEL)

    def expanded(self, n: Var, panel: Var, first: Var, end: Var) -> Stmt:
        """The hidden rows between two."""

        def row(r: Var) -> Stmt:
            y = E.add(first, r)

            def tile(column: PrimExpr, size: int) -> Stmt:
                return self.expand.tile_at(n, panel, [(y, E.add(column, E.const(j, INDEX))) for j in range(size)])

            return seq(*self.expand.pieces(tile, E.const(0, INDEX), self.expand.columns))

        rows = loop("row", E.maximum(E.sub(end, first), 0), row)
        return self.in_scratch(rows, E.mul(panel, self.blocks), first)

    def convolved(
        self, windows: Windows, n: Var, panel: Var, start: Var, stop: Var, first: Var
    ) -> Stmt:  # fmt: skip
        """The results of a part."""

        def block(b: Var) -> Stmt:
            channels = Var("channels", INDEX)

            def row(y: Var) -> Stmt:
                return self.depthwise.depthwise_row(windows, n, channels, E.add(start, y))

            return LetStmt(channels, E.add(E.mul(panel, self.blocks), b), loop("row", E.sub(stop, start), row))

        rows = loop("block", E.const(self.blocks, INDEX), block)
        return self.in_scratch(rows, E.mul(panel, self.blocks), first)

    def in_scratch(self, stmt: Stmt, channels: PrimExpr, first: Var) -> Stmt:
        """What reads and writes the hidden image, whose part is in scratch from a block of channels and a row on."""

        def step(x: object) -> object:
            if isinstance(x, BufferLoad | BufferStore) and x.buffer is self.image:
                _, block, row, column, lane = x.indices
                indices = (E.sub(row, first), E.sub(block, channels), column, lane)
                return replace(x, buffer=self.hidden, indices=indices)
            return x

        found: Stmt = rewrite(stmt, step)
        return found
