"""Matrix products: out[…, m, n] += a[…, m, k] * b[…, k, n], in a register tile over the whole of k.

    for (batch, n panel, m chunk) in parallel:
        for m tile in chunk:
            tile[rows, vectors] = 0                       # stays in registers
            for k: tile[:, :] += a[m tile, k] * b_packed[n panel, k, :]
            out[m tile, n panel] = epilogue(tile)

A weight (a parameter without batch dimensions) is packed into panels [N / width, K, width], of which a tile takes one
or, where few rows meet a weight that comes from memory, several: one core reads four streams 1.3 to 1.6 times as fast
as one (Zen 3). A weight of bytes, which are multiplied with unsigned ones and summed in 32 bits, lies in panels
[N / width, K / 4, width, 4], of which a step takes four of k; one of bfloat16 in panels [N / width, K / 2, width, 2].
Where the CPU has tile registers (AMX) both may be multiplied there, 16 rows, 16 columns and 64 bytes of k at once.
Other right-hand sides are read as they are where n is contiguous, and copied into scratch once per batch where k is,
transposed, and where they are bytes, [K / 4, N, 4].
"""

from __future__ import annotations

import math

from autosched.codegen.cpu.amx_nest import AMX
from autosched.codegen.cpu.prefetch import PREFETCH, PREFETCH_L2
from autosched.codegen.cpu.types import Isa
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import Contraction, find_contraction, reduced, spatial
from autosched.templates.cpu.amx_tile import LEAST_TILE_ROWS, choose_tiles, tile_words
from autosched.templates.cpu.register_tile import (
    FLOAT_BYTES,
    RegisterTile,
    choose_tile,
    default_unroll,
    fits,
    is_cold,
    most_rows,
    runs_in_halves,
)
from autosched.templates.pack import Pack, packed_params, repack
from autosched.templates.product import BYTE_GROUP, PAIR, Operands, find_operands, lane_group
from autosched.tir import PrimExpr, PrimFunc, Var, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.prefetch import LINE_BYTES, PREFETCH_NEXT, PREFETCH_STEPS, STEPS_AHEAD
from autosched.tir.schedule import LoopRV, Schedule

# Rows that meet a weight from memory in one pass, in streams, of which lines are asked for so far ahead: 12 rows take
# 0.65 of the time of two passes of 6 with the next panel prefetched, 8 rows and 1 row 0.75 (Emerald Rapids).
MOST_STREAMED, AHEAD_KIB = 16, 8
# Where the second level of caches waits for more lines, they come into it from so far ahead, for many rows from twice
# as far, and into the first from just before: 1 row takes .86 of the time, 4 rows .80, 6 .79, 8 .85, 10 .84 (Zen 4).
NEAR_KIB, FAR_KIB, MANY_STREAMED = 1, 4, 5
LEAST_STREAMED = 2 << 20  # bytes
# Rows: with fewer the weights stream by, faster without; with more the products take longer than the weights' way.
LEAST_PREFETCHED, MOST_PREFETCHED = 5, 256
# Each chunk of rows that meets a panel asks for all of the next one: the first of two does so in half the time, and two
# threads get the same work. 128 x 3072 times 3072 x 768 takes .92 of the time on one thread and .94 on two, 196 x 2048
# times 2048 x 512 on two .96, where chunks of 16 and 6 tiles were not even; four chunks ask too often (Emerald Rapids).
LEAST_HALVED = 9  # tiles of rows
# All rows meet a panel before the next one, "nm", unless they take more of L3 than this: then chunks of them meet all
# panels, "mnm", which takes 0.88 of the time with rows of 9.4 MB, but 1.05 with 4 MB (Zen 3, L3 of 32 MB). In tile
# registers, which products of 1 MB leave for the second-level cache, 64 of many rows at once take 0.7 (Granite Rapids);
# 32, where these stay in the first-level cache and 64 do not, 0.95 of that (bfloat16, 512, Emerald Rapids).
MOST_OF_L3, MOST_OF_L1 = 0.25, 0.75
# Where a core's second-level cache keeps the weight, and rows and results are more than it, these go by once, in chunks
# of so few rows that each may lie in a page of its own, of which the CPU's prefetchers follow 32: 784 x 192 times
# 192 x 576 takes .86 of the time, 3136 x 512 times 512 x 64 .92; chunks of 100 rows gain a tenth of that (Emerald
# Rapids, one thread and two). A weight of 4 MB takes 1.13 of the time so.
MOST_OF_L2, MORE_THAN_WEIGHT, ROWS_AT_ONCE = 0.5, 2, 32
# Else, with a weight of no more than this of that cache, two threads take half of the rows each: they find in their own
# caches what they wrote in the layer before. 256 x 192 times 192 x 384 and back take .80 of the time, 197 x 192 times
# 192 x 768 .90, 49 x 256 times 256 x 1024 .86, 196 x 320 times 320 x 1280 .93, 16 rows 1.02, weights of 2.4 MB .99 to
# 1.03, of 9 MB 1.05; one thread takes .94 to 1.02 (Emerald Rapids).
LEAST_SHARED, MOST_SHARED_OF_L2 = 32, 0.8  # rows
LEAST_TASKS = 8  # pieces of parallel work
STREAMS = 4  # panels side by side where few rows meet a weight that comes from memory
# With more rows the products take longer than the way from memory, which one stream is enough for: 12 and 14 rows times
# 768x3072 to 2048x2048 take .84 to 1.03 of the time in one (Zen 5).
MOST_SIDE_BY_SIDE = 8


class Matmul:
    """Dense layers, batched products and 1-row products."""

    name = "matmul"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        if c is None or not (operands := find_operands(func, c)):
            return None
        chain = chain_around(func, c.block)
        if chain is None or chain.before:
            return None
        group = _group(c, operands, as_int(reduced(c.block)[0].dom.extent))
        if group == 1 and _has_lanes_along_k(c, operands, target):
            return None
        *batch, m, n = (as_int(iv.dom.extent) for iv in spatial(c.block))
        k = as_int(reduced(c.block)[0].dom.extent)
        batches = 1
        for extent in batch:
            batches *= extent
        sizes = {"batch": batches, "M": m, "N": n, "K": k}
        return Anchor(c.block.name_hint, "matmul", sizes, (operands, chain, group))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        operands, chain, group = anchor.details
        words = _tile_words(operands, anchor.sizes["K"], group, target)
        machine = {"lanes": _lanes(chain, target), "registers": target.num_registers, "tile_words": words}
        sizes = {**anchor.sizes, "K": anchor.sizes["K"] // group, "weight": int(operands.is_weight)}
        space = load_space(target.backend, self.name, {**sizes, **machine})
        default, known = self.default(anchor, target), {knob.name for knob in space.knobs}
        absent = {"ahead", "far", *(() if default["tiles"] else ("tiles",))} - known  # in a file of the user's own
        if absent:
            default = Config(self.name, {name: value for name, value in default.knobs.items() if name not in absent})
        return space.with_default(default)

    def default(self, anchor: Anchor, target: Target) -> Config:
        operands, chain, group = anchor.details
        m, n, k = anchor.sizes["M"], anchor.sizes["N"], anchor.sizes["K"] // group
        lanes = _lanes(chain, target)
        in_tiles = m >= LEAST_TILE_ROWS and _tile_words(operands, anchor.sizes["K"], group, target) > 0
        is_whole = group == BYTE_GROUP or operands.rows.buffer.dtype == "int16"
        # several rows: a weight of 0.8 MB that stays in L3 takes 3 % longer in streams, one row 9 % less (Zen 3)
        cached = target.cache.l2_bytes if m == 1 or in_tiles else max(target.cache.l2_bytes, LEAST_STREAMED)
        is_large = operands.is_weight and 4 * n * k > cached and m <= MOST_STREAMED
        is_stream = is_large and (in_tiles or fits(m, _least_vectors(target, is_whole), target.num_registers, is_whole))
        in_halves = is_large and not (is_stream or is_whole) and target.num_registers > 16
        multiple = STREAMS if is_stream and m == 1 and n >= STREAMS * lanes else 1
        most = most_rows(_row_bytes(operands, chain), target)
        weight_stays = FLOAT_BYTES * n * k <= MOST_OF_L2 * target.cache.l2_bytes
        rows_pass = weight_stays and m > MOST_PREFETCHED and m * (n + k) >= MORE_THAN_WEIGHT * n * k
        is_one = operands.is_weight and anchor.sizes["batch"] == 1 and not in_tiles
        is_small = FLOAT_BYTES * n * k <= MOST_SHARED_OF_L2 * target.cache.l2_bytes
        by_rows = is_one and is_small and m >= LEAST_SHARED and not rows_pass
        rows = m if is_stream else -(-m // 2) if in_halves else None
        tile = (
            choose_tiles(m, -(-n // lanes), FLOAT_BYTES * k)
            if in_tiles
            else choose_tile(m, -(-n // lanes), k, target, multiple, rows, most, is_whole, by_rows)
        )
        if in_halves and runs_in_halves(target):
            # narrow panels, of which the second level holds two: 16 rows times 768x3072 and back take .96 of the time
            # that three vectors take, times 2048x2048 .95 (Zen 4)
            tile = RegisterTile(tile.rows, 1)
        tiles_m, tiles_n = -(-m // tile.rows), -(-n // (tile.vectors * lanes))
        chunk = max(1, min(tiles_m, ROWS_AT_ONCE // tile.rows if rows_pass else 64))
        while chunk > 1 and anchor.sizes["batch"] * tiles_n * -(-tiles_m // chunk) < LEAST_TASKS:
            chunk //= 2
        is_worth_it = LEAST_PREFETCHED <= m <= MOST_PREFETCHED and is_cold(FLOAT_BYTES * n * k, target.cache)
        prefetch = operands.is_weight and is_worth_it and not is_stream
        if by_rows:
            chunk = -(-tiles_m // (2 * -(-LEAST_TASKS // (2 * tiles_n))))
        else:
            chunk = -(-tiles_m // 2) if prefetch and tiles_m >= LEAST_HALVED and not in_tiles else _power_of_two(chunk)
        # a step of the tiles that 32 registers hold takes as long as two of the others
        least = 2 if prefetch and k % 2 == 0 and target.num_registers <= 16 else 1
        order = "mnm" if by_rows or rows_pass or FLOAT_BYTES * m * k > MOST_OF_L3 * target.cache.l3_bytes else "nm"
        if in_tiles and m > MOST_PREFETCHED:
            rows_bytes = tile.rows * FLOAT_BYTES * k
            stays = rows_bytes <= MOST_OF_L1 * target.cache.l1_bytes < 2 * rows_bytes
            order, chunk = "mnm", 1 if stays else 2
        near, far = AHEAD_KIB, 0
        if Isa.of(target).fetches_into_l2:
            near, far = NEAR_KIB, FAR_KIB * (2 if m >= MANY_STREAMED else 1)
        unroll = 1 if in_tiles else max(default_unroll(tile.rows * tile.vectors, k), least)
        return Config(
            self.name,
            {
                "rows": tile.rows,
                "vectors": tile.vectors,
                "streams": _streams(tile.vectors, n // lanes) if is_stream and m <= MOST_SIDE_BY_SIDE else 1,
                "order": order,
                "chunk": chunk,
                "unroll_k": unroll,
                "prefetch": prefetch,
                "ahead": near if is_stream else 0,
                "far": far if is_stream else 0,
                "tiles": in_tiles,
            },
        )

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        operands, chain, group = anchor.details
        width = min(config["vectors"] * _lanes(chain, target), anchor.sizes["N"])
        packs: tuple[Pack | None, ...] = (None,) * len(func.params)
        if operands.is_weight:
            pack = _weight_pack(operands, width // config.get("streams", 1), group)
            buffer = operands.columns.buffer
            packs, func = packed_params(func, buffer, pack), repack(func, buffer, pack)
        sch = Schedule(func)
        self._schedule(sch, chain, operands, config, width, group, target)
        return Applied(sch.func, packs, sch.trace.to_json_text())

    def _schedule(
        self, sch: Schedule, chain: Chain, operands: Operands, config: Config, width: int, group: int, target: Target
    ) -> None:
        out = schedule_epilogue(sch, chain)
        *batch, m, n = sch.get_loops(out)
        m_tile, m_in = sch.split(m, [None, config["rows"]])
        streams = config.get("streams", 1) if operands.is_weight else 1
        n_panel, n_in = sch.split(n, [None, width])
        if config["order"] != "mn":
            m_chunk, m_tile = sch.split(m_tile, [None, config["chunk"]])
            pieces = [n_panel, m_chunk] if config["order"] == "nm" else [m_chunk, n_panel]
            tasks, at = [*batch, *pieces], m_tile
        else:
            n_chunk, n_panel = sch.split(n_panel, [None, config["chunk"]])
            tasks, at = [*batch, m_tile, n_chunk], n_panel
        sch.reorder(*tasks, at, m_in, n_in)
        is_copied = not operands.is_weight and (group > 1 or not operands.n_contiguous)
        if is_copied:
            # the copy of one batch's right-hand side serves all its tiles, so a task is a whole batch
            inner = sch.fuse(*tasks[len(batch) :])
            task = sch.fuse(*batch) if batch else sch.add_unit_loop(inner)
        else:
            task = sch.fuse(*tasks)
        sch.parallel(task)
        sch.unroll(m_in)
        sch.vectorize(n_in)
        sch.compute_at(chain.anchor.name_hint, at, True)
        if is_copied:
            _copy_columns(sch, chain.anchor.name_hint, operands, task, group)
        if config["prefetch"] and operands.is_weight:
            panel = width * as_int(reduced(chain.anchor)[0].dom.extent)
            sch.annotate(at, PREFETCH_NEXT, {f"{operands.columns.buffer.name}_packed": panel})
        k = as_int(reduced(chain.anchor)[0].dom.extent) // group
        words = _tile_words(operands, k * group, group, target) if config.get("tiles", False) else 0
        line = _line(sch.func, operands, chain, config) if not words and group == 1 else 0
        if line:
            sch.annotate(at, PREFETCH_STEPS, {operands.rows.buffer.name: STEPS_AHEAD})
        step = schedule_update(sch, chain.anchor.name_hint, config["unroll_k"], streams, group, words, line)
        if operands.is_weight:
            weight = operands.columns.buffer
            step_bytes = width * config["unroll_k"] * max(words, 1) * group * item_bytes(weight.dtype)
            for annotation, knob in ((PREFETCH, "ahead"), (PREFETCH_L2, "far")):
                if kib := config.get(knob, 0):
                    sch.annotate(step, annotation, {f"{weight.name}_packed": max(1, kib * 1024 // step_bytes)})


def _line(func: PrimFunc, operands: Operands, chain: Chain, config: Config) -> int:
    """Steps of k in a cache line of the rows, where tiles ask for those ahead: another core may have written them.

    256 x 640 times 640 x 160 takes .85 of the time on two threads (Emerald Rapids). 0: they do not ask.
    """
    rows, k = operands.rows, reduced(chain.anchor)[0]
    line = LINE_BYTES // item_bytes(rows.buffer.dtype)
    is_short = config["rows"] == 1 or config["order"] == "mn" or config.get("ahead", 0) > 0
    if is_short or config["unroll_k"] > 1 or not any(b is rows.buffer for b in func.buffers):
        return 0
    is_along_k = rows.indices[-1] is k.var and as_int(k.dom.extent) % line == 0
    return line if is_along_k and as_int(k.dom.extent) > line else 0


def _copy_columns(sch: Schedule, anchor: str, operands: Operands, task: LoopRV, group: int) -> None:
    """Copy a right-hand side [K, N] or [N, K], in a task, as [K, N] or, in words of k, as [K / group, N, group]."""
    copy = sch.cache_read(anchor, operands.columns.buffer.name, "global")

    def place(*i: Var) -> tuple[PrimExpr, ...]:
        k, n = i[-2:] if operands.n_contiguous else i[:-3:-1]
        return (*i[:-2], k, n) if group == 1 else (*i[:-2], k // group, n, k % group)

    sch.transform_layout(copy, ("write", 0), place)
    sch.compute_at(copy, task)
    if group > 1:
        k, n = sch.get_loops(copy)[-2:] if operands.n_contiguous else sch.get_loops(copy)[:-3:-1]
        _, last = sch.split(k, [None, group])
        sch.reorder(n, last)
        sch.vectorize(n)
        sch.unroll(last)


def _lanes(chain: Chain, target: Target) -> int:
    """How many sums a vector holds: half as many of 64 bits."""
    wide = item_bytes(chain.anchor.writes[0].buffer.dtype) == item_bytes("float64")
    return target.lanes("float64" if wide else "float32")


def _tile_words(operands: Operands, k: int, group: int, target: Target) -> int:
    """How many words of k a step takes in tile registers, which take weights; 0: it takes none."""
    return tile_words(k // group, group, target) if operands.is_weight else 0


def _has_lanes_along_k(c: Contraction, operands: Operands, target: Target) -> bool:
    """Whether a product has one column and long rows, whose sums other templates compute along k.

    A register tile has one number in each of its vectors: 1000 x 333 takes 12 us along k, 46 us in tiles (Zen 5).
    """
    n, k = spatial(c.block)[-1], reduced(c.block)[0]
    is_column = as_int(n.dom.extent) == 1 and operands.rows.indices[-1] is k.var
    return is_column and as_int(k.dom.extent) >= 2 * target.lanes("float32")


def _group(c: Contraction, operands: Operands, k: int) -> int:
    """How many steps of k a lane does at once, where rows have them side by side: four of bytes, two of 16 bits."""
    if operands.rows.indices[-1] is not reduced(c.block)[0].var:
        return 1
    both = operands.rows.buffer, operands.columns.buffer
    group = PAIR if all(b.dtype == "bfloat16" for b in both) else lane_group(c, operands.rows, operands.columns)
    if not operands.is_weight and group != BYTE_GROUP:
        return 1
    return group if k % group == 0 else 1


def schedule_update(
    sch: Schedule, anchor: str, unroll: int, streams: int = 1, group: int = 1, words: int = 0, line: int = 0
) -> LoopRV:
    """Order the anchor's own loops below its place: k, rows and panels (unrolled), a panel's width (vectorised).

    group    elements of k that a lane multiplies and adds at once
    words    how many groups of k a step takes in tile registers; 0: it takes none
    line     how many steps of k read one line of a row, where they are a loop of their own; 0: they are not
    returns  the loop over steps of k
    """
    *_, m_in, n_in, k = sch.get_loops(anchor)
    at_once = []
    if words:
        k, in_row, last = sch.split(k, [None, words, group])
        sch.annotate(in_row, AMX, 1)
        at_once += [in_row, last]
    elif group > 1:
        k, last = sch.split(k, [None, group])
        at_once.append(last)
    steps = [k]
    if line:
        steps = list(sch.split(k, [None, line]))
    elif unroll > 1:
        steps = list(sch.split(k, [None, unroll]))
        sch.unroll(steps[1])
    panels = []
    if streams > 1:
        panel, n_in = sch.split(n_in, [streams, None])
        panels.append(panel)
    sch.reorder(*steps, m_in, *panels, n_in, *at_once)
    for loop in (m_in, *panels, *at_once):
        sch.unroll(loop)
    sch.vectorize(n_in)
    sch.decompose_reduction(anchor, steps[0])
    return steps[0]


def _weight_pack(operands: Operands, width: int, group: int) -> Pack:
    """[K, N] or [N, K] -> panels [N / width, K, width], or [N / width, K / group, width, group]."""
    shape = operands.columns.buffer.const_shape()
    if group > 1 and operands.n_contiguous:
        return Pack(shape, (group, width), (2, 0, 3, 1))
    if group > 1:
        return Pack(shape, (width, group), (0, 2, 1, 3))
    if operands.n_contiguous:
        return Pack(shape, (0, width), (1, 0, 2))
    return Pack(shape, (width, 0), (0, 2, 1))


def _row_bytes(operands: Operands, chain: Chain) -> int:
    """How far apart two rows of the left-hand side are."""
    rows, m = operands.rows, spatial(chain.anchor)[-2].var
    at = next(n for n, i in enumerate(rows.indices) if i is m)
    return FLOAT_BYTES * math.prod(rows.buffer.const_shape()[at + 1 :])


def _least_vectors(target: Target, is_whole: bool) -> int:
    """How many vectors a tile of all rows has at least where it takes each line of a weight from memory once.

    With one, each product loads an element: 16 rows times 768x3072 take .92 of the time in halves that meet a panel one
    after the other, times 3072x768, 1024x1024 and 1024x4096, whose rows share sets of the first-level cache, .55 to .6
    (Zen 5). Half of 16 registers hold no tile that is better.
    """
    return 2 if target.num_registers > 16 and not is_whole else 1


def _streams(vectors: int, n_vectors: int) -> int:
    """The most panels, up to `STREAMS`, that share a tile's vectors evenly."""
    return next(s for s in range(STREAMS, 0, -1) if vectors % s == 0 and (s == 1 or vectors <= n_vectors))


def _power_of_two(x: int) -> int:
    return 1 << (x.bit_length() - 1)
