"""Attention whose batch and lengths come with the call: see `attention`; a task is a head, a chunk one tile of queries.

The last tile of queries and the last panel of keys are computed whole (`whole_tiles`), and what is too much is not
stored. Where there are few keys, a query is computed by itself instead: the kernel has both forms. So is a single query
for any number of keys.
"""

from __future__ import annotations

from autosched.target import Target
from autosched.templates.attention_form import Attention, find_attention
from autosched.templates.base import Applied
from autosched.templates.chain import schedule_epilogue
from autosched.templates.classify import reduced, spatial
from autosched.templates.cpu.attention import copy_panels, schedule_context, schedule_transposed, softmax_at
from autosched.templates.cpu.either import either
from autosched.templates.cpu.matmul import schedule_update
from autosched.templates.cpu.register_tile import choose_tile
from autosched.templates.cpu.sized import sized, sum_in_lanes, vectorize
from autosched.templates.cpu.whole_tiles import compute_whole
from autosched.tir import PrimFunc, as_int
from autosched.tir.expr import Var, const_int
from autosched.tir.schedule import LoopRV, Schedule

USUAL = 128  # queries and keys that tiles are chosen for
MOST_ROWS = 8  # of a tile: those of the last one that are no queries are computed too
PANEL_VECTORS = 2  # keys: more of them save few loads, and a last panel is computed whole
FEW_KEYS = 4  # for which tiles take up to four times as long as queries by themselves (Zen 5)


def schedule_attention(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule an attention over symbols; None for another function. Raises ScheduleError."""
    found = find_attention(func)
    if (
        found is None
        or found.weights is not None
        or _inner(found) is None
        or const_int(spatial(found.context)[found.columns].dom.extent) is None
    ):
        return None
    queries, keys = (iv.dom.extent for iv in spatial(found.scores)[2:])
    has_whole_keys = found.inner == 3  # their elements lie side by side
    if has_whole_keys and const_int(queries) == 1:
        sch = _by_query(func, found, target)
        return sized(func, sch.func, sch.trace.to_json_text())
    scheduled, trace = _tiled(func, found, target)
    if has_whole_keys and const_int(keys) is None:
        scheduled = either(keys <= FEW_KEYS, _by_query(func, found, target).func, scheduled)
    return sized(func, scheduled, trace)


def _inner(a: Attention) -> int | None:
    return const_int(reduced(a.scores)[0].dom.extent)


def _tiled(func: PrimFunc, a: Attention, target: Target) -> tuple[PrimFunc, str]:
    """(the function in register tiles, its schedule's trace)."""
    sch = Schedule(func)
    tile, panel = _schedule(sch, a, target)
    between = (b.name_hint for b in (*a.before, *a.softmax))
    whole: dict[str, tuple[Var, ...]] = {n: (tile,) for name in between for n in (name, f"{name}_rf")}
    for block, loops in ((a.scores, (tile, panel)), (a.context, (tile,))):
        whole |= {f"{block.name_hint}{part}": loops for part in ("", "_init", "_update")}
    return compute_whole(sch.func, whole), sch.trace.to_json_text()


def _by_query(func: PrimFunc, a: Attention, target: Target) -> Schedule:
    """The function query by query: each score is a sum in lanes along the elements of a key."""
    sch, lanes = Schedule(func), target.lanes("float32")
    out = schedule_epilogue(sch, a.chain)
    loops = sch.get_loops(out)
    m, e = loops[a.rows], loops[a.columns]
    outer = [loop for n, loop in enumerate(loops) if n not in (a.rows, a.columns)]
    panel, lane = sch.split(e, [None, min(4 * lanes, as_int(sch.get(e).extent))])
    sch.reorder(*outer, m, panel, lane)
    for loop in outer:
        sch.parallel(loop)
    sch.vectorize(lane)
    sch.compute_at(a.context.name_hint, panel, True)
    schedule_context(sch, a)
    softmax_at(sch, a, m)
    _softmax_in_lanes(sch, a, lanes)
    sch.compute_at(a.scores.name_hint, m, True)
    sum_in_lanes(sch, a.scores.name_hint, lanes)
    return sch


def _softmax_in_lanes(sch: Schedule, a: Attention, lanes: int) -> None:
    """A row of scores vector by vector: with more of them a step, each has its mask to be computed."""
    largest, power, sums = (b.name_hint for b in a.softmax)
    for name in (largest, sums):
        sum_in_lanes(sch, name, lanes)
    vectorize(sch, sch.get_loops(power)[-1], lanes)


def _schedule(sch: Schedule, a: Attention, target: Target) -> tuple[Var, Var]:
    """Schedule all blocks; returns the loops over tiles of queries and over panels of keys."""
    lanes = target.lanes("float32")
    elements = as_int(spatial(a.context)[a.columns].dom.extent)
    queries = const_int(spatial(a.scores)[2].dom.extent) or USUAL
    rows = min(MOST_ROWS, choose_tile(queries, -(-elements // lanes), USUAL, target).rows)
    first = choose_tile(queries, PANEL_VECTORS, _inner(a) or 1, target, rows=rows).vectors * lanes
    second = choose_tile(queries, -(-elements // lanes), USUAL, target, rows=rows).vectors * lanes
    out = schedule_epilogue(sch, a.chain)
    loops = sch.get_loops(out)
    m, e = loops[a.rows], loops[a.columns]
    outer = [loop for n, loop in enumerate(loops) if n not in (a.rows, a.columns)]
    tile, row = sch.split(m, [None, rows])
    panel, lane = sch.split(e, [None, min(second, elements)])
    sch.reorder(*outer, tile, panel, row, lane)
    for loop in outer:
        sch.parallel(loop)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.compute_at(a.context.name_hint, panel, True)
    schedule_context(sch, a)
    argument = softmax_at(sch, a, tile)
    _softmax_in_lanes(sch, a, lanes)
    keys = _schedule_scores(sch, a, argument, first, lanes, outer[-1])
    return sch.get(tile).loop_var, sch.get(keys).loop_var


def _schedule_scores(sch: Schedule, a: Attention, argument: str, width: int, lanes: int, task: LoopRV) -> LoopRV:
    """The first product in register tiles below its consumer; returns the loop over panels of keys."""
    name = a.scores.name_hint
    sch.set_scope(name, 0, "local")
    *_, m, t = sch.get_loops(argument)
    panel, lane = sch.split(t, [None, width])
    sch.reorder(panel, m, lane)
    sch.unroll(m)
    sch.vectorize(lane)
    sch.compute_at(name, panel, True)
    copy = copy_panels(sch, a, width)
    sch.compute_at(copy, task, True)
    schedule_transposed(sch, copy, a, width, lanes)
    schedule_update(sch, name, 1)
    return panel
