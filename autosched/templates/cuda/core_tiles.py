"""Register tiles of a matrix product on the cores of an SM, as several templates schedule them.

    for k tile:                                                    # copies run `stages` - 1 tiles ahead
        rows_shared, columns_shared = the operands' elements       # by all threads of the block
        for k: acc[:, :] += rows_shared[rows of the thread, k] * columns_shared[k, columns of the thread]

A thread's rows and columns are several groups of neighbours that lie `threads` groups apart ("vthread"), so that the
threads of a warp read shared memory side by side. Threads that differ in the lowest bit of their number have the same
rows, those that differ in the next one the same columns: a load of 16 bytes by which neighbours read the same takes two
passes over the banks, not four.

Where a sum is shared (`shares`), groups of threads take turns at the terms of a k tile, and each has a tile of its own.
Rows whose terms lie side by side in memory are turned on their way to shared memory by copies of single elements, or
stay as they are (`turn` 0): copies are whole vectors then, and a thread reads four terms of each of its rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.space import Config
from autosched.target.gpus import GpuFacts
from autosched.templates.cuda.threads import (
    BLOCK_Z,
    THREAD_X,
    THREAD_Y,
    THREAD_Z,
    VECTOR_BYTES,
    VTHREAD_X,
    VTHREAD_Y,
    bind_tiles,
    copy_together,
    fused,
    read_index,
)
from autosched.tir import as_int
from autosched.tir.schedule import BlockRV, LoopRV, Schedule

BANKS = 32  # of shared memory, four bytes wide
GROUP = 4  # neighbours that a thread takes at once
MOST_DEEP = 64  # threads along z
UNROLLED = 8  # terms of a loop's body: their operands are loaded ahead of their use
MOST_UNROLLED = 1024  # multiply-adds of a loop's body of twice as many terms
LONG_STEP = 1 << 17  # multiply-adds of a block: 1000 cycles
ASYNCHRONOUS = (8, 0)  # compute capability that copies to shared memory by itself
COPY_BYTES = (4, 8, 16)  # of an asynchronous copy
TILES = (
    (128, 128, 8, 8), (64, 128, 8, 8), (64, 64, 4, 8), (64, 64, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4), (16, 32, 2, 4),
)  # fmt: skip
SHARED_TILES = ((64, 64, 8, 8), (32, 64, 8, 8), (16, 64, 4, 4))  # of few threads: shares make them enough
SHARES_OF_A_BLOCK, MOST_SHARING = (2, 4, 8), 256  # and threads that share a block's sums
BETWEEN_SHARES = 300.0  # cycles of the barriers around them
FULL_TILE = 64  # sums of a thread, beside which operands are not loaded ahead
MOST_COPIES = 16  # of a thread, that are written out
LEAST_TERMS_OF_A_PART = 256
SHARES = "shares"  # the knob of parts of a sum that threads of one block take
TURN = "turn"  # the knob of whether rows whose terms lie side by side are turned in shared memory
SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)  # parts of a sum
LANES_PER_CYCLE = 128.0  # that an SM issues instructions for
LAUNCH_S = 1.5e-6  # a kernel of a graph after the one before
L2_BYTES_PER_CYCLE = 36.0  # of one SM, all SMs at work
UNSURE = 1.05  # what several parts are said to take longer: they are not taken for a gain within the model's error
ENOUGH_WARPS = 8  # of an SM, to hide what instructions wait for


@dataclass(frozen=True)
class SharedCopy:
    """A tile in shared memory.

    block    that fills it, which the product reads
    group    neighbours that a thread takes at once
    vector   elements that one access to device memory takes
    turned   whether its innermost axis is that of k: the other one becomes the innermost
    """

    block: BlockRV | str
    group: int
    vector: int
    turned: bool
    along: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """How a product is cut.

    tile    rows and columns of a block, and of a thread
    splits  parts of sums that blocks of their own take, `shares` those that threads of a block take
    """

    tile: tuple[int, int, int, int]
    splits: int = 1
    shares: int = 1


def default_tile(sizes: Mapping[str, int], gpu: GpuFacts) -> tuple[int, int, int, int]:
    """(rows, columns, rows of a thread, columns of a thread) by which the busiest SM is done first."""
    return min(map(Cut, _fitting(sizes)), key=lambda cut: tile_cycles(sizes, gpu, cut)).tile


def default_cut(sizes: Mapping[str, int], gpu: GpuFacts, *, is_shared: bool = True) -> Cut:
    """The same with parts of sums: in blocks of their own they cost a second launch, in one block a few barriers.

    is_shared  whether threads of a block may share a sum
    """
    most = max(1, sizes["K"] // LEAST_TERMS_OF_A_PART)
    cuts = [Cut(tile, splits) for tile in _fitting(sizes) for splits in SPLITS]
    for tile in (*_fitting(sizes), *(t for t in SHARED_TILES if t[0] < 2 * sizes["M"] and t[1] < 2 * sizes["N"])):
        threads = tile[0] * tile[1] // (tile[2] * tile[3])
        most_shares = (
            min(MOST_SHARING // threads, gpu.max_shared_memory_per_block // sums_bytes(tile)) if is_shared else 0
        )
        cuts += [Cut(tile, splits, n) for splits in SPLITS for n in SHARES_OF_A_BLOCK if n <= most_shares]

    def expected(cut: Cut) -> float:
        return tile_cycles(sizes, gpu, cut) * (1 if cut.splits * cut.shares == 1 else UNSURE)

    return min((cut for cut in cuts if cut.splits * cut.shares <= most), key=expected)


def sums_bytes(tile: Sequence[int]) -> int:
    """Of shared memory for a tile's sums of one share, at most."""
    return 4 * tile[0] * (tile[1] + 40)


def _fitting(sizes: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
    return [t for t in TILES if t[0] < 2 * sizes["M"] and t[1] < 2 * sizes["N"]] or [TILES[-1]]


def tile_cycles(sizes: Mapping[str, int], gpu: GpuFacts, cut: Cut) -> float:
    """Cycles until the busiest SM has computed its tiles.

    An SM issues (1 + (r + c) / (4 r c)) instructions for a multiply-add of threads' tiles of r x c. Its shared memory
    takes 2 (r + c) / (r c) of the multiply-adds' time for reading, at 128 lanes a cycle, and (8 R + 4 C) / (R C) for
    copies of tiles of R x C, those of rows meeting in banks. Few warps wait for each other's instructions. Sums of
    threads of a block are written to its shared memory and read; where threads have no registers left to load ahead,
    the one block of an SM multiplies or reads (64 rows times 4096 x 4096 on an H200: 67 us, 39 without that).
    """
    rows, columns, r, c = cut.tile
    tiles = sizes["batch"] * -(-sizes["M"] // rows) * -(-sizes["N"] // columns) * cut.splits
    busiest = -(-tiles // gpu.sm_count)
    warps = min(busiest * rows * columns // (r * c) * cut.shares // gpu.warp_size, ENOUGH_WARPS)
    issue, shared = 1 + (r + c) / (4 * r * c), 2 * (r + c) / (r * c) + (8 * rows + 4 * columns) / (rows * columns)
    is_full = cut.shares > 1 and r * c >= FULL_TILE
    busy = issue + shared if is_full else max(issue, shared)
    each = max(1 / gpu.rates["float32"], busy / LANES_PER_CYCLE)
    cycles = busiest * rows * columns * -(-sizes["K"] // cut.splits) * each
    cycles *= 1 + 0.25 * (ENOUGH_WARPS / max(warps, 1) - 1)
    reads = busiest * (min(rows, sizes["M"]) + columns) * -(-sizes["K"] // cut.splits) * sizes["bytes"]
    cycles = max(cycles, reads / L2_BYTES_PER_CYCLE)
    if cut.shares > 1:
        cycles += busiest * (2 * cut.shares * rows * columns / BANKS + BETWEEN_SHARES)
    if cut.splits > 1:
        moved = 8 * cut.splits * sizes["batch"] * sizes["M"] * sizes["N"]
        cycles += LAUNCH_S * gpu.clock_hz + moved / (L2_BYTES_PER_CYCLE * gpu.sm_count)
    return cycles


def default_pipeline(
    sizes: Mapping[str, int], tile: Sequence[int], gpu: GpuFacts, depth: int, shares: int = 1, *, gathers: bool = False
) -> dict[str, int]:
    """How much of `depth` terms lies in shared memory at once for each of a block's shares, and in how many tiles.

    gathers  each element has a place of its own: its copies are many, and shorter steps further ahead hide them better

    Addresses are computed anew in each step: long ones are better, two blocks of which fit into an SM. A tile that
    computes for longer than copies take needs two of them; a power of two makes the next one's number cheap.
    """
    step = next((s for s in (32, 16) if depth >= 2 * s and not gathers), 16 if depth >= 16 else 8)
    is_ahead = copies_itself(sizes, gpu)
    line = (tile[0] + tile[1] + 8) * shares * sizes["bytes"]
    while step > 8 and (1 + is_ahead) * line * step > gpu.max_shared_memory_per_block // (2 if step > 16 else 1):
        step //= 2
    stages = 3 if gathers else 2 if tile[0] * tile[1] * step * shares >= LONG_STEP else 4
    while stages > 2 and stages * line * step > gpu.max_shared_memory_per_block // (4 if shares == 1 else 2):
        stages = 2 if gathers else stages // 2
    return {"step": step, "stages": max(1, min(stages, depth // step)) if is_ahead else 1}


def copies_itself(sizes: Mapping[str, int], gpu: GpuFacts) -> bool:
    """Whether copies of single elements can be asynchronous."""
    return gpu.compute_capability >= ASYNCHRONOUS and sizes["bytes"] in COPY_BYTES


def bind_results(sch: Schedule, out: str, config: Config, is_tile: bool = False) -> LoopRV:
    """Give tiles of the block that writes the result to blocks, and its elements to threads; the innermost of these.

    is_tile   the block writes a block's tile already, below a loop over shares, each of threads of its own
    """
    *batch, m, n = sch.get_loops(out)
    threads_m, deep, wide = _threads(config)
    group_m, group_n = _groups(config)
    m_tile, m_far, m_thread, m_near = sch.split(m, [None, config["per_row"] // group_m, threads_m, group_m])
    n_tile, n_far, n_deep, n_wide, n_near = sch.split(n, [None, config["per_column"] // group_n, deep, wide, group_n])
    if is_tile:
        share, group = batch[-2:]
        sch.reorder(group, m_tile, n_tile, m_far, n_far, n_deep, share, m_thread, n_wide, m_near, n_near)
        m_thread = sch.fuse(share, m_thread)
    else:
        sch.reorder(*batch, m_tile, n_tile, m_far, n_far, n_deep, m_thread, n_wide, m_near, n_near)
        if batch:
            sch.bind(fused(sch, batch, out), BLOCK_Z)
        bind_tiles(sch, m_tile, n_tile, config.get("group", 1))
    for loop, axis in (
        (m_far, VTHREAD_Y), (n_far, VTHREAD_X), (n_deep, THREAD_Z), (m_thread, THREAD_Y), (n_wide, THREAD_X),
    ):  # fmt: skip
        sch.bind(loop, axis)
    sch.unroll(m_near)
    sch.vectorize(n_near)
    return n_wide


def split_terms(sch: Schedule, product: str, config: Config) -> tuple[LoopRV, LoopRV]:
    """The loop over tiles of k and the one within a tile, whose body is unrolled."""
    at_once = min(config["step"], UNROLLED)
    if 2 * UNROLLED * config["per_row"] * config["per_column"] <= MOST_UNROLLED and config["step"] > UNROLLED:
        at_once *= 2
    if config.get(SHARES, 1) > 1:
        *_, m_in, n_in, k_tile, k = sch.get_loops(product)
        whole = True
        k_far, k_in = sch.split(k, [None, at_once])
    else:
        *_, m_in, n_in, k = sch.get_loops(product)
        whole = as_int(sch.get(k).extent) % config["step"] == 0
        k_tile, k_far, k_in = sch.split(k, [None, config["step"] // at_once, at_once])
    sch.reorder(k_tile, k_far, k_in, m_in, n_in)
    for loop in (k_in, m_in, n_in):
        sch.unroll(loop)
    if whole and config["stages"] > 1:
        sch.annotate(k_tile, "keep_whole", True)
    return k_tile, k_in


def reads_along(config: Config) -> bool:
    """Whether threads read four terms of each of their rows at once: rows of shared memory are not turned."""
    return not config.get(TURN, 1)


def stage_operands(
    sch: Schedule, product: str, copies: Sequence[SharedCopy], at: tuple[LoopRV, LoopRV], config: Config, item: int
) -> None:
    """Both operands through shared memory to registers, in as many stages as the configuration has."""
    k_tile, k_in = at
    k_four = k_in
    if any(copy.along for copy in copies):
        k_four, k_in = sch.split(k_in, [None, GROUP])
        sch.unroll(k_four)
        sch.unroll(k_in)
    threads = block_threads(config)
    for copy in copies:
        if copy.turned:
            sch.transform_layout(copy.block, ("write", 0), lambda *i: (*i[:-2], i[-1], i[-2]))
            sch.storage_align(copy.block, 0, -2, BANKS, VECTOR_BYTES // item)
        elif copy.along:  # eight rows lie in different banks
            sch.storage_align(copy.block, 0, -2, 2 * GROUP, GROUP)
        tile = sch.get(sch.get_block(copy.block) if isinstance(copy.block, str) else copy.block).writes[0].buffer
        fragment = sch.cache_read(product, read_index(sch, product, tile.name), "local")
        sch.compute_at(fragment, k_four if copy.along else k_in, True)
        if copy.along or copy.group > 1:
            sch.vectorize(sch.get_loops(fragment)[-1])
        sch.compute_at(copy.block, k_tile, True)
        steps = copy_together(sch, copy.block, 2, threads, copy.vector)
        if config["stages"] > 1 and as_int(sch.get(steps).extent) <= MOST_COPIES:
            sch.unroll(steps)  # places then differ by what an instruction adds by itself
    if config["stages"] > 1:
        sch.annotate(k_tile, "software_pipeline_stage", [0, 0, config["stages"] - 1])
        sch.annotate(k_tile, "software_pipeline_order", [0, 1, 2])
        sch.annotate(k_tile, "software_pipeline_async_stages", [0])


def block_threads(config: Config) -> tuple[int, int, int]:
    """Threads of a block along z, y and x."""
    threads_m, deep, wide = _threads(config)
    return deep, config.get(SHARES, 1) * threads_m, wide


def _threads(config: Config) -> tuple[int, int, int]:
    """Threads over rows, and those over columns: slow ones and the two that are neighbours."""
    threads_m, threads_n = config["rows"] // config["per_row"], config["columns"] // config["per_column"]
    deep = min(MOST_DEEP, max(1, threads_n // 2))
    return threads_m, deep, threads_n // deep


def _groups(config: Config) -> tuple[int, int]:
    return 1 if reads_along(config) else math.gcd(config["per_row"], GROUP), math.gcd(config["per_column"], GROUP)


__all__ = [
    "BANKS",
    "GROUP",
    "L2_BYTES_PER_CYCLE",
    "LAUNCH_S",
    "LEAST_TERMS_OF_A_PART",
    "SHARES",
    "SPLITS",
    "TURN",
    "Cut",
    "SharedCopy",
    "bind_results",
    "block_threads",
    "copies_itself",
    "default_cut",
    "default_pipeline",
    "default_tile",
    "reads_along",
    "split_terms",
    "stage_operands",
    "tile_cycles",
]
