"""Windows of images whose sizes come with the call: pools, and depthwise convolutions of plain ones; see `window`.

padded = data, or what is beyond them                  # a phase of its own, where there is padding
for (image, channel) in parallel:
    for tile of rows, for vectors of a row:
        tile[rows, lanes] = start                      # stays in registers
        for the window: tile = combine(tile, padded[…])
        out = epilogue(tile)

Pools of blocks of channels have tiles of pixels of a row, and no copy: a test tells those at borders apart.
"""

from __future__ import annotations

import math

from autosched.codegen.lower.partition import FULL_APART, INSIDE_APART
from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import blocks_of, contraction, extents, is_injective, is_reduction, reduced, spatial
from autosched.templates.cpu.lone_reductions import is_window, reads_along
from autosched.templates.cpu.padding import inline_all_but_last, inline_before
from autosched.templates.cpu.sized import sized
from autosched.tir import Block, PrimFunc
from autosched.tir.expr import const_int
from autosched.tir.schedule import Schedule

VECTORS = 2  # of a row in a tile
ROWS = 4  # of a tile
# Of a tile of blocks of channels: with 8 most tiles of a small image meet a border, and 3x3 pools of 20 x 20 pixels
# take 1.6 times as long (Emerald Rapids).
PIXELS = 4
MOST_WHOLE = 9  # elements of a window of which all rows are unrolled, with a test for each: 5x5 takes 1.5 times as long
MOST_UNROLLED = 25  # elements of a window
MOST_ALONG = 9  # of them along a row, which are unrolled in larger ones too


def schedule_windows(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a function over symbols whose one reduction is over windows [n, c, y, x], or pools blocks."""
    found = [b for b in blocks_of(func) if is_reduction(b)]
    if len(found) != 1 or not _is_of_windows(found[0]):
        return None
    anchor = found[0]
    chain = chain_around(func, anchor)
    if chain is None or not all(map(is_injective, chain.before)):
        return None
    if len(spatial(anchor)) == 5:
        return _of_blocks(func, chain)
    width = VECTORS * target.lanes("float32")
    sch = Schedule(func)
    if copied := inline_all_but_last(sch, chain):
        *outer, last = sch.get_loops(copied)
        for loop in outer:
            sch.parallel(loop)
        tile, lane = sch.split(last, [None, width])
        sch.annotate(tile, FULL_APART, width // VECTORS)
        sch.vectorize(lane)
    out = schedule_epilogue(sch, chain)
    *outer, row, column = sch.get_loops(out)
    row_tile, row_in = sch.split(row, [None, ROWS])
    column_tile, lane = sch.split(column, [None, width])
    sch.reorder(row_tile, column_tile, row_in, lane)
    for loop in outer:
        sch.parallel(loop)
    sch.annotate(row_tile, FULL_APART, True)
    sch.annotate(column_tile, FULL_APART, width // VECTORS)
    sch.unroll(row_in)
    sch.vectorize(lane)
    name, n_steps = anchor.name_hint, len(reduced(anchor))
    sch.compute_at(name, column_tile, True)
    loops = sch.get_loops(name)
    *_, row_in, lane = loops[:-n_steps]
    steps = loops[-n_steps:]
    sch.reorder(*steps, row_in, lane)
    n_taps = math.prod(extents(reduced(anchor)))
    for loop in steps if n_taps <= MOST_UNROLLED else steps[-1:]:
        sch.unroll(loop)
    sch.unroll(row_in)
    sch.vectorize(lane)
    sch.decompose_reduction(name, steps[0])
    return sized(func, sch.func, sch.trace.to_json_text())


def _of_blocks(func: PrimFunc, chain: Chain) -> Applied:
    """Pools of blocks of channels: some pixels of a row in a tile, which tests for borders where they are."""
    sch, name = Schedule(func), chain.anchor.name_hint
    inline_before(sch, chain)
    *outer, column, lane = sch.get_loops(schedule_epilogue(sch, chain))
    tile, pixel = sch.split(column, [None, PIXELS])
    for loop in outer:
        sch.parallel(loop)
    sch.annotate(tile, INSIDE_APART, True)
    sch.unroll(pixel)
    sch.vectorize(lane)
    sch.compute_at(name, tile, True)
    loops, n_steps = sch.get_loops(name), len(reduced(chain.anchor))
    steps, (*_, pixel, lane) = loops[-n_steps:], loops[:-n_steps]
    sch.reorder(*steps, pixel, lane)
    for loop in steps if math.prod(extents(reduced(chain.anchor))) <= MOST_WHOLE else steps[1:]:
        sch.unroll(loop)
    sch.unroll(pixel)
    sch.vectorize(lane)
    sch.decompose_reduction(name, steps[0])
    return sized(func, sch.func, sch.trace.to_json_text())


def _is_of_windows(block: Block) -> bool:
    steps = [const_int(iv.dom.extent) for iv in reduced(block)]
    axes = [const_int(iv.dom.extent) for iv in spatial(block)]
    is_blocked = len(axes) == 5 and axes[-1] is not None and contraction(block) is None
    is_plain = len(axes) == 4 and axes[-1] is None
    if not (is_blocked or is_plain) or len(steps) != 2 or not reads_along(block):
        return False
    if None in steps or (steps[-1] or 0) > MOST_ALONG:
        return False
    return contraction(block) is not None or is_window(block)
