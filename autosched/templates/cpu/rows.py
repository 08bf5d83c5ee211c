"""Reductions along the innermost axis and what hangs on them: softmax, LayerNorm, mean, sum.

    for rows in parallel: for row in rows, block by block:
        partial[lanes] = start; for i: partial = combine(partial, x[row, i : i + lanes])     # vectors
        total = combine over the lanes
        … further reductions and element-wise blocks of the same row …

All blocks of a row run while the row is in the cache. Every reduction is split into lanes by `rfactor`. Few long rows
that are only reduced are cut into pieces for the threads, whose results are combined in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, extents, is_reduction, reduced, spatial
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.templates.cpu.elementwise import schedule_nest
from autosched.templates.cpu.powers import bound_powers
from autosched.templates.row_blocks import Rows, contiguous_axes, inline_cheap, is_costly, match_rows_of_one_result
from autosched.tir import REDUCE, Block, Buffer, BufferStore, LoopKind, PrimFunc, as_int
from autosched.tir.functor import loads
from autosched.tir.schedule import LoopRV, Schedule

PIECE_ELEMENTS = 16384  # of a row, at least: a microsecond
MOST_PIECES = 16  # of all rows together, about: enough for threads to share
# Rows that run together and their vectors. Softmax of rows of 128: 112 us alone, 99 in fours, 105 in sixteens (Zen 3).
# On a Zen 5 rows of 197 take 71 us alone and 37 in fours, rows of 49 71 alone, 52 in fours and 47 in eights.
# Of longer rows LayerNorm of 768 takes .89 of the time in twos, softmax of 1000 .97, of 512 .96 in fours (Zen 4).
MOST_TOGETHER, MANY, VECTORS = 8, 4, 128
LEAST_PARTS = 4  # of the innermost axis of rows, from which on the last one may be shorter


class RowReduction:
    """Softmax, LayerNorm and plain reductions over the last axis."""

    name = "rows"
    fuses_rows = True  # axes of rows as one: of open extents each row would have to be divided into them
    cuts_rows = True  # few long rows into pieces for the threads, whose number is known

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        return match_rows_of_one_result(in_two_reductions(func), several=True)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32")}
        space = load_space(target.backend, self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        lanes = target.lanes("float32")
        width = lanes
        while width < 4 * lanes and anchor.sizes["length"] >= 2 * width:
            width *= 2
        return Config(self.name, {"width": width, "together": _together(anchor.details, anchor.sizes, lanes)})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        func = bound_powers(in_two_reductions(func))
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        rows: Rows = anchor.details
        sch = Schedule(func)
        inline_cheap(sch, rows.blocks)
        blocks = blocks_of(sch.func)
        pieces, width = _pieces(anchor.sizes, blocks) if self.cuts_rows else 1, config["width"]
        if pieces > 1:
            _reduce_in_pieces(sch, blocks, pieces, width)
        elif not rows.row_axes:
            for block in blocks:
                if is_reduction(block):
                    vectorize_block(sch, block, width, 0, 0)
                else:
                    schedule_nest(sch, block, width, target.lanes("float32"), True)
        else:
            self._schedule_rows(sch, anchor, blocks, config)
        if rows.row_axes and pieces < 2 and 4 * math.prod(anchor.sizes.values()) > target.cache.l2_bytes / 2:
            _prefetch_next_row(sch, blocks, func.buffers)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())

    def _schedule_rows(self, sch: Schedule, anchor: Anchor, blocks: Sequence[Block], config: Config) -> None:
        """All blocks row by row."""
        rows: Rows = anchor.details
        loops = sch.get_loops(blocks[-1].name_hint)
        row_loops = list(loops[: rows.row_axes])
        together = _whole(min(config["together"], anchor.sizes["rows"]), rows)
        within = 1 < together <= rows.innermost
        if not within and not self.fuses_rows:
            together = 1
        if within:
            row_loops[-1] = sch.split(row_loops[-1], [None, together])[0]
        if not self.fuses_rows:
            for loop in row_loops[:-1]:
                sch.parallel(loop)
            row_loops = row_loops[-1:]
        row = sch.fuse(*row_loops) if len(row_loops) > 1 else row_loops[0]
        if together > 1 and not within:
            row = sch.split(row, [None, together])[0]
        sch.parallel(row)
        for block in reversed(blocks[:-1]):
            sch.compute_at(block.name_hint, row)
        for block in blocks:
            vectorize_block(sch, block, config["width"], row_axes=rows.row_axes)


def _pieces(sizes: Mapping[str, int], blocks: Sequence[Block]) -> int:
    """Pieces that each row is cut into: 1 but for few long rows of which one reduction alone goes along all."""
    if not is_reduction(blocks[0]) or contiguous_axes(blocks[0], axes := len(reduced(blocks[0]))) < axes:
        return 1
    if any(is_reduction(b) or math.prod(extents(b.iter_vars)) != sizes["rows"] for b in blocks[1:]):
        return 1
    return min(sizes["length"] // PIECE_ELEMENTS, MOST_PIECES // sizes["rows"])


def _reduce_in_pieces(sch: Schedule, blocks: Sequence[Block], pieces: int, width: int) -> None:
    """Reduce pieces of rows side by side, in lanes; then their results, and what hangs on them."""
    name, axes = blocks[0].name_hint, len(spatial(blocks[0]))
    loops = list(sch.get_loops(name))
    whole = sch.fuse(*loops[axes:]) if len(loops) > axes + 1 else loops[axes]
    piece, inner = sch.split(whole, [pieces, None])
    sch.reorder(piece, *loops[:axes], inner)
    partial = sch.rfactor(piece, 0)
    outer = sch.get_loops(partial)[: axes + 1]
    sch.parallel(sch.fuse(*outer) if axes else outer[0])
    lanes = sch.rfactor_inside(_split_inner(sch, sch.get_loops(partial)[-1], width), 0)
    sch.set_scope(lanes, 0, "local")
    sch.vectorize(sch.get_loops(lanes)[-1])


def _together(rows: Rows, sizes: Mapping[str, int], lanes: int) -> int:
    """Rows that run together, few, short ones: the end of one row's reduction hides in others."""
    vectors = -(-sizes["length"] // lanes)
    together = 1
    while together < MOST_TOGETHER and 2 * together <= sizes["rows"]:
        if 2 * together * vectors > (VECTORS if together < MANY else VECTORS // 4):
            break
        together *= 2
    return _whole(together, rows)


def _whole(together: int, rows: Rows) -> int:
    """Rows that run together, at most so many: of several axes parts of the innermost one, or multiples.

    Rows on both sides of its end would be computed for all of the axis: softmax of 192x49x49 in fours took 20 times as
    long. The last one of several parts may be shorter.
    """

    def fits(n: int) -> bool:
        return rows.innermost % n == 0 or n % rows.innermost == 0 or rows.innermost >= LEAST_PARTS * n

    while rows.row_axes > 1 and not fits(together):
        together //= 2
    return together


def _prefetch_next_row(sch: Schedule, blocks: tuple[Block, ...], arguments: Sequence[Buffer]) -> None:
    """Ask for the next rows where a transcendental function leaves time for it.

    Rows are too short for the hardware to run ahead of them, and the reductions do nothing but wait for memory: softmax
    of 12x512x512 takes 0.67 ns an element instead of 0.85 (Zen 3).
    """
    for block in blocks:
        loops = sch.get_loops(block.name_hint)
        if not is_costly(block) or len(loops) < 3 or not isinstance(block.body, BufferStore):
            continue
        step = loops[-2]
        length = extents(block.iter_vars)[-1]
        reads = {x.buffer for x in loads(block.body.value) if x.buffer.const_shape()[-1:] == (length,)}
        steps = math.prod(as_int(sch.get(loop).extent) for loop in loops[1:-1])  # of all rows that run together
        ahead = {b.name: steps for b in arguments if b in reads}
        if ahead and sch.get(step).kind == LoopKind.SERIAL:
            sch.annotate(step, "prefetch", ahead)


def vectorize_block(sch: Schedule, block: Block, width: int, row_loops: int = 1, row_axes: int | None = None) -> None:
    """The innermost axis of a block in vectors, of a reduction in lanes.

    row_loops  how many of its loops run over rows
    row_axes   how many of its axes count rows; contiguous ones behind them become one
    """
    name = block.name_hint
    inner = list(sch.get_loops(name)[row_loops:])
    if row_axes is not None:
        inner = _flat_loops(sch, block, inner, row_axes)
    if not inner:
        return
    loop = inner[-1]
    if as_int(sch.get(loop).extent) < 2:
        return
    if not is_reduction(block):
        sch.vectorize(_split_inner(sch, loop, width))
        return
    if math.prod(as_int(iv.dom.extent) for iv in block.iter_vars if iv.kind == REDUCE) < 2:
        return  # there is nothing to add: the loop runs over rows
    lanes = _split_inner(sch, loop, width)
    partial = sch.rfactor_inside(lanes, 0)
    sch.set_scope(partial, 0, "local")
    sch.vectorize(sch.get_loops(partial)[-1])


def _flat_loops(sch: Schedule, block: Block, inner: list[LoopRV], row_axes: int) -> list[LoopRV]:
    """The loops of a block in its rows, with those along contiguous elements as one."""
    count = contiguous_axes(block, len(block.iter_vars) - row_axes)
    if count < 2:
        return inner
    start, left = len(inner), math.prod(extents(block.iter_vars)[-count:])
    while start > 0 and left > 1:  # axes of extent one may have no loop
        start -= 1
        left //= as_int(sch.get(inner[start]).extent)
    if len(inner) - start < 2:
        return inner
    return [*inner[:start], sch.fuse(*inner[start:])]


def _split_inner(sch: Schedule, loop: LoopRV, width: int) -> LoopRV:
    """The innermost `width` iterations of a loop as a loop of their own."""
    if as_int(sch.get(loop).extent) <= width:
        return loop
    return sch.split(loop, [None, width])[1]
