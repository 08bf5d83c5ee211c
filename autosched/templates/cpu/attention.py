"""Attention: softmax(q kᵀ * scale + bias) v, a head for itself, the scores of a few queries at a time in the L1 cache.

    for (batch, head, part) in parallel:
        k_panels[T / width, D, width] = k of the head, transposed
        v_panels[E / width, T, width] = v of the head, where its rows lie apart and many queries read them
        for chunk of queries:
            for panel, tile of queries:
                tile[rows, width] = 0; for d: tile += q[…, d] * k_panels[panel, d, :]        # stays in registers
                scaled[tile, panel] = tile * scale + bias
            for query: largest, exp(scaled - largest), its sum                               # vectors
            for panel of v, tile of queries:
                tile = 0; for t: tile += exp[…, t] * v[t, :]
                out = epilogue(tile / sum)

The scores of a chunk are whole rows, so that no result has to be rescaled: memory holds [chunk, T] of them per worker.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.attention_form import Attention, causal_shift, find_attention
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import schedule_epilogue
from autosched.templates.classify import (
    is_reduction,
    reduced,
    spatial,
)  # fmt: skip
from autosched.templates.cpu.causal import Skips, skip_hidden
from autosched.templates.cpu.matmul import schedule_update
from autosched.templates.cpu.powers import bound_powers
from autosched.templates.cpu.register_tile import (
    FLOAT_BYTES,
    RegisterTile,
    choose_tile,
    cycles,
    fits,
    most_rows,
    pieces,
    runs_in_halves,
)
from autosched.templates.cpu.rows import vectorize_block
from autosched.tir import BufferStore, PrimFunc, as_int
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import loads
from autosched.tir.schedule import BlockRV, LoopRV, Schedule

LEAST_TASKS = 8  # pieces of parallel work
LEAST_THREADS, MOST_SHARING = 2, 16  # threads among which pieces are shared evenly by default
WORTH_A_SMALLER_CHUNK = 1.03  # chunks of few tiles of queries take longer where keys are few
QUERIES_OF_KEYS = 13  # queries that take as long as the keys of a piece, which often come from another core
# Queries of a piece that copies its values where their rows lie apart: with 8 heads of 64 elements 512 queries take .87
# of the time, with 12 heads 256 take .95, 197 .96 and 128 .98 to 1.01, 99 of three heads 1.03 (Emerald Rapids).
LEAST_COPYING = 160
# Of a value, read at once where tiles of few rows are no slower: with 64 elements 128 queries and keys take .94 of the
# time, 197 .95, 512, 64 and 49 .97 to 1.0 (Zen 4).
VALUE_VECTORS = 4
FEW_KEYS = 8  # with them a tile of scores is small enough to be one with all that follows


class AttentionRows:
    """Scaled dot-product attention with or without a bias."""

    name = "attention"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = find_attention(func)
        if found is None or found.weights is not None:
            return None
        b, h, m, t = (as_int(iv.dom.extent) for iv in spatial(found.scores))
        d = as_int(reduced(found.scores)[0].dom.extent)
        e = as_int(spatial(found.context)[found.columns].dom.extent)
        return Anchor(found.scores.name_hint, self.name, {"batch": b * h, "M": m, "T": t, "D": d, "E": e}, found)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32"), "registers": target.num_registers}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s, lanes = anchor.sizes, target.lanes("float32")
        first, second = _choose_tiles(s, lanes, target)
        if 1 < s["M"] <= first.rows and FEW_KEYS < s["T"] <= first.vectors * lanes:
            # All scores would be one tile, which loses its loops and lies in memory with all that follows: 12 queries
            # and keys take 4.4 us in two tiles, 50 in one (12 heads, Zen 5).
            rows = -(-s["M"] // 2)
            first, second = RegisterTile(rows, first.vectors), RegisterTile(rows, second.vectors)
        tiles = max(1, target.cache.l1_bytes // (8 * s["T"] * first.rows))
        chunk = max(1, min(32, 1 << (tiles.bit_length() - 1)))
        while chunk > 1 and chunk >= 2 * -(-s["M"] // first.rows):
            chunk //= 2
        if causal_shift(anchor.details.before[-1]) is None:
            chunk, parts = _choose_parts(s, first.rows, chunk, target)
        else:  # the first queries see few keys: more pieces
            parts = 1
            while s["batch"] * parts < LEAST_TASKS and parts < 8 and s["M"] > 2 * parts * chunk * first.rows:
                parts *= 2
        knobs: dict[str, KnobValue] = {
            "rows": first.rows,
            "vectors": first.vectors,
            "value_vectors": second.vectors,
            "chunk": chunk,
            "parts": parts,
        }
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        func = bound_powers(func)
        found = find_attention(func)
        assert found is not None, "apply is called on a function that matched"
        sch = Schedule(func)
        skips = _schedule(sch, found, config, target.lanes("float32"))
        scheduled = sch.func if skips is None else skip_hidden(sch.func, skips)
        return Applied(scheduled, (None,) * len(func.params), sch.trace.to_json_text())


def _choose_tiles(s: Mapping[str, int], lanes: int, target: Target) -> tuple[RegisterTile, RegisterTile]:
    """Tiles of both products with equal rows, of least estimated time together."""

    n_values = -(-s["E"] // lanes)
    at_once = min(VALUE_VECTORS, n_values) if runs_in_halves(target) else 1

    def tiles(rows: int) -> tuple[float, RegisterTile, RegisterTile]:
        total, found = 0.0, []
        for vectors, steps, multiple in ((-(-s["T"] // lanes), s["D"], 1), (n_values, s["T"], at_once)):
            tile = choose_tile(s["M"], vectors, steps, target, multiple, rows)
            total += cycles(pieces(s["M"], rows), tile.vectors, vectors, steps, target)
            found.append(tile)
        return total, found[0], found[1]

    most = min(16, s["M"], most_rows(FLOAT_BYTES * s["T"], target))  # of the scores, which the second product reads
    fitting = [rows for rows in range(1, most + 1) if fits(rows, at_once, target.num_registers)]
    best = min(map(tiles, fitting), key=lambda t: t[0])
    return best[1], best[2]


def _choose_parts(s: Mapping[str, int], rows: int, most_chunk: int, target: Target) -> tuple[int, int]:
    """(chunk, parts of a head) with which threads are done first, each piece turning its keys beside its queries.

    Three heads of 197 queries and keys, on two threads: six pieces take 130 us, nine 147, three 167 (Emerald Rapids).
    """
    threads = min(max(target.num_cores, LEAST_THREADS), MOST_SHARING)
    if s["batch"] >= LEAST_TASKS * threads:
        return most_chunk, 1

    def cost(choice: tuple[int, int]) -> int:
        chunk, parts = choice
        part = -(-s["M"] // (parts * rows * chunk)) * chunk * rows
        busy = [0] * threads
        for first in [*range(0, s["M"], part)] * s["batch"]:
            heapq.heapreplace(busy, busy[0] + min(part, s["M"] - first) + QUERIES_OF_KEYS)
        return max(busy)

    chunks = [most_chunk >> n for n in range(most_chunk.bit_length())]
    fitting = [(c, p) for p in (1, 2, 4, 8) for c in chunks if p == 1 or p * c * rows < 2 * s["M"]]
    least = min(map(cost, fitting))
    return max((c for c in fitting if cost(c) <= WORTH_A_SMALLER_CHUNK * least), key=lambda c: (c[0], -c[1]))


def _schedule(sch: Schedule, a: Attention, config: Config, lanes: int) -> Skips | None:
    """Schedule all blocks; returns what can be skipped where the mask is causal."""
    rows = config["rows"]
    width = min(config["vectors"] * lanes, as_int(spatial(a.scores)[3].dom.extent))
    out = schedule_epilogue(sch, a.chain)
    loops = sch.get_loops(out)
    m, e = loops[a.rows], loops[a.columns]
    outer = [loop for n, loop in enumerate(loops) if n not in (a.rows, a.columns)]
    total = as_int(sch.get(m).extent)
    part_rows = -(-total // (config["parts"] * rows * config["chunk"])) * config["chunk"]
    part, chunk, tile, row = sch.split(m, [None, -(-part_rows // config["chunk"]), config["chunk"], rows])
    panel, lane = sch.split(e, [None, min(config["value_vectors"] * lanes, as_int(sch.get(e).extent))])
    sch.reorder(*outer, part, chunk, panel, tile, row, lane)
    task = sch.fuse(*outer, part)
    sch.parallel(task)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.compute_at(a.context.name_hint, tile, True)
    keys = schedule_context(sch, a)
    argument = softmax_at(sch, a, chunk)
    shift = causal_shift(a.before[-1])
    # Vector by vector: 33 keys take 22 us for 31, 49 keys 40 for 60, more as long as four vectors at once (Zen 5).
    step = lanes if shift is None else width * max(1, 4 * lanes // width)
    for block in a.softmax:
        vectorize_block(sch, block, step)
    _schedule_scores(sch, a, argument, rows, width, lanes, task)
    value = _scattered_value(a)
    if value is not None and -(-total // config["parts"]) >= LEAST_COPYING:
        _copy_values(sch, a, value, config["value_vectors"] * lanes, task)
    return None if shift is None else _skips(sch, a, shift, width, step, keys)


def _skips(sch: Schedule, a: Attention, shift: int, width: int, step: int, keys: LoopRV) -> Skips:
    """The loops over keys: panels of the scores, steps of the softmax, single keys of the second product."""
    argument, context = a.before[-1].name_hint, f"{a.context.name_hint}_update"
    *_, chunk, panel, _, _, _ = sch.get_loops(argument)
    loops = {panel: width}
    if as_int(spatial(a.scores)[3].dom.extent) > step:
        for block in a.softmax:
            name = f"{block.name_hint}_rf" if is_reduction(block) else block.name_hint
            loops[sch.get_loops(name)[-2]] = step
            if is_reduction(block):
                sch.decompose_reduction(name, sch.get_loops(name)[-2])
    widths = {sch.get(loop).loop_var: n for loop, n in loops.items()}
    return Skips(shift, widths, step, (sch.get(chunk).loop_var, argument), (sch.get(keys).loop_var, context, a.rows))


def softmax_at(sch: Schedule, a: Attention, loop: LoopRV) -> str:
    """Compute the softmax and its argument, whose name is given, in each iteration of a loop."""
    for block in a.before[:-1]:
        sch.compute_inline(block.name_hint)
    for block in reversed((a.before[-1], *a.softmax)):
        sch.compute_at(block.name_hint, loop, True)
    return a.before[-1].name_hint


def schedule_context(sch: Schedule, a: Attention) -> LoopRV:
    """The second product's update: keys (the loop returned), then the tile's queries and elements."""
    name = a.context.name_hint
    *own, k = sch.get_loops(name)[-5:]
    row, lane = own[a.rows], own[a.columns]
    sch.reorder(k, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.decompose_reduction(name, k)
    return k


def copy_panels(sch: Schedule, a: Attention, width: int) -> BlockRV:
    """A copy of the keys in panels [.., T / width, D, width], the last one filled up with zeros."""
    copy = sch.cache_read(a.scores.name_hint, a.key.buffer.name, "global")
    rest = [n for n in range(4) if n not in (a.column, a.inner)]

    def panels(*i: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(i[n] for n in rest), i[a.column] // width, i[a.inner], i[a.column] % width)

    sch.transform_layout(copy, ("write", 0), panels, pad_value=0.0)
    return copy


def schedule_transposed(sch: Schedule, copy: BlockRV, a: Attention, width: int, lanes: int) -> None:
    """The copy of the keys in squares of vectors, which the code generator turns in registers."""
    loops = sch.get_loops(copy)
    if len(sch.get(copy).iter_vars) == len(a.key.buffer.shape):  # whole panels: the copy goes over the keys as they are
        own = loops[-len(a.key.buffer.shape) :]
        panel, column = sch.split(own[a.column], [None, width])
        inner = own[a.inner]
        sch.reorder(panel, inner, column)
    else:
        panel, inner, column = loops[-3:]
    column_tile, column_in = sch.split(column, [None, lanes])
    if a.column < a.inner:  # else the keys are transposed already
        inner_tile, inner_in = sch.split(inner, [None, lanes])
        sch.reorder(panel, column_tile, inner_tile, column_in, inner_in)
        sch.unroll(column_in)
        sch.vectorize(inner_in)
    else:
        sch.vectorize(column_in)


def _scattered_value(a: Attention) -> tuple[str, int, int] | None:
    """The values with which of their dimensions count keys and elements, where the rows of a head lie apart."""
    e, t = spatial(a.context)[a.columns], reduced(a.context)[0]
    assert isinstance(a.context.body, BufferStore), "a product stores"
    for load in loads(a.context.body.value):
        at = [*load.indices]
        if e.var in at and t.var in at and len({*at}) == len(at) == 4:
            row, inner = at.index(t.var), at.index(e.var)
            apart = math.prod(load.buffer.const_shape()[row + 1 :])
            return (load.buffer.name, row, inner) if apart > as_int(e.dom.extent) and inner == 3 else None
    return None


def _copy_values(sch: Schedule, a: Attention, value: tuple[str, int, int], width: int, task: LoopRV) -> None:
    """A copy of a head's values in panels [.., E / width, T, width], whose lines lie one behind the other."""
    name, row, inner = value
    width = min(width, as_int(spatial(a.context)[a.columns].dom.extent))
    copy = sch.cache_read(f"{a.context.name_hint}_update", name, "global")
    rest = [n for n in range(4) if n not in (row, inner)]

    def panels(*i: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(i[n] for n in rest), i[inner] // width, i[row], i[inner] % width)

    sch.transform_layout(copy, ("write", 0), panels, pad_value=0.0)
    sch.compute_at(copy, task, True)
    loops = sch.get_loops(copy)
    lane = loops[-1]
    if len(sch.get(copy).iter_vars) == 4:  # whole panels: the copy goes over the values as they are
        panel, lane = sch.split(loops[inner - 4], [None, width])
        sch.reorder(panel, loops[row - 4], lane)
    sch.vectorize(lane)


def _schedule_scores(
    sch: Schedule, a: Attention, argument: str, rows: int, width: int, lanes: int, task: LoopRV
) -> None:
    """The first product in register tiles below its consumer, the keys of a head transposed into panels."""
    name = a.scores.name_hint
    sch.set_scope(name, 0, "local")
    *_, m, t = sch.get_loops(argument)
    tile, row = sch.split(m, [None, rows])
    panel, lane = sch.split(t, [None, width])
    sch.reorder(panel, tile, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.compute_at(name, tile, True)
    copy = copy_panels(sch, a, width)
    sch.compute_at(copy, task, True)
    schedule_transposed(sch, copy, a, width, lanes)
    schedule_update(sch, name, 1)


__all__ = ["AttentionRows", "find_attention"]
