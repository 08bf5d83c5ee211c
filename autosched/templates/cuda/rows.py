"""Reductions along the innermost axis and what hangs on them: softmax, LayerNorm, mean, sum.

    for rows in blockIdx.x: for row in threadIdx.y: block by block of the computation:
        for k, threads in threadIdx.x: total += x[row, k * threads + thread]     # added up over the threads
        for k, threads in threadIdx.x: out[row, …] = …                           # whole vectors

Everything between the reductions of a row stays in the block's shared memory, or is computed again where it is needed.
Where threads divide a row evenly, each of them keeps its elements in registers (`held`): those of arguments that
several blocks of the computation read, which then are read once, those that a sum reads, which come in whole vectors,
and those between that serve their own places only.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from operator import is_

from autosched.codegen.lower.launches import MIN_BLOCKS
from autosched.errors import ScheduleError
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import require
from autosched.templates.classify import blocks_of, extents, is_injective, is_reduction, spatial
from autosched.templates.cuda.elementwise import widest_vector
from autosched.templates.cuda.pairs import is_over_pairs
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.sum_parts import best_parts, can_be_cut
from autosched.templates.cuda.threads import (
    BLOCK_X,
    THREAD_X,
    THREAD_Y,
    dividing,
    power_of_two_above,
    power_of_two_below,
    read_index,
)
from autosched.templates.row_blocks import Rows, inline_cheap, match_rows
from autosched.tir import Block, Buffer, PrimFunc, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.schedule import LoopRV, Schedule

ELEMENTS_PER_THREAD = 8  # of a row: enough accesses in flight, few enough steps of the reduction
MOST_THREADS = 512  # of a row by default
LEAST_THREADS = 128  # in a block: short rows share one
MOST_HELD = 32  # elements of a row in a thread's registers
OTHER_REGISTERS = 32  # of a thread, beside those elements


@dataclass(frozen=True)
class Held:
    """How threads divide a row: each takes `vector` neighbours, then those `threads` vectors further on."""

    threads: int
    vector: int
    length: int

    @property
    def steps(self) -> int:
        """Vectors of a thread."""
        return self.length // (self.threads * self.vector)

    def place(self, *indices: PrimExpr) -> tuple[PrimExpr, ...]:
        """Where the elements of a row lie: those of a thread along dimensions of their own."""
        *row, k = indices
        whole = self.threads * self.vector
        return (*row, k // whole, k % whole // self.vector, k % self.vector)


class RowReduction:
    """Softmax, LayerNorm, RMSNorm and plain reductions over the last axis."""

    name = "rows"
    version: int = 3

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        anchor = match_rows(func, squares=True)
        if anchor is None or not _needs_own_row(anchor.details) or is_over_pairs(func, target):
            return None
        if _has_few_results(anchor, target):
            return None
        return anchor

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, most_held=MOST_HELD, bytes=_widest(anchor))

    def default(self, anchor: Anchor, target: Target) -> Config:
        gpu, rows, length = target.gpu, anchor.sizes["rows"], anchor.sizes["length"]
        threads = power_of_two_below(max(1, length // ELEMENTS_PER_THREAD))
        threads = min(max(threads, gpu.warp_size), MOST_THREADS)
        together = max(1, LEAST_THREADS // threads)
        while together > 1 and rows // together < gpu.sm_count:
            together //= 2
        keep = length * _widest(anchor) * together <= gpu.static_shared // 2
        held = length % (4 * threads) == 0 and length <= MOST_HELD * threads
        knobs = {"block_size": threads, "together": together, "vector": 4, "keep": keep, "held": held}
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = match_rows(func, squares=True)
        assert anchor is not None, "apply is called on a function that matched"
        rows: Rows = anchor.details
        sch = Schedule(func)
        inline_cheap(sch, rows.blocks)
        if not config["keep"]:
            _inline_rest(sch, blocks_of(sch.func))
        held = Held(config["block_size"], config["vector"], anchor.sizes["length"])
        copies = _hold(sch, rows.row_axes, held) if config["held"] else []
        blocks = blocks_of(sch.func)
        last = blocks[-1]
        loops = sch.get_loops(last.name_hint)
        row = sch.fuse(*loops[: rows.row_axes]) if rows.row_axes > 1 else loops[0]
        block, row = sch.split(row, [None, dividing(config["together"], anchor.sizes["rows"])])
        sch.bind(block, BLOCK_X)
        sch.bind(row, THREAD_Y)
        for other in reversed(blocks[:-1]):
            sch.compute_at(other.name_hint, row)
            if other.name_hint not in copies:  # threads that share a sum have it
                by_all = is_reduction(other) and (config["held"] or held.length >= held.threads)
                sch.set_scope(other.name_hint, 0, "local" if by_all else "shared")
        for each in blocks:
            if config["held"]:
                _share_evenly(sch, each, row, held)
            else:
                _share_row(sch, each, row, config["block_size"], config["vector"])
        made = sch.func
        if config["held"] and config["block_size"] >= LEAST_THREADS:
            words = held.steps * held.vector * len(copies) * -(-_widest(anchor) // 4)
            threads = config["block_size"] * dividing(config["together"], anchor.sizes["rows"])
            made = made.with_attr({MIN_BLOCKS: _blocks_at_once(threads, words, target.gpu)})
        return Applied(made, (None,) * len(func.params), sch.trace.to_json_text())


def _blocks_at_once(threads: int, words: int, gpu: GpuFacts) -> int:
    """Blocks that an SM shall hold, where a thread keeps so many words: what is loaded early must not take their place.

    LayerNorm takes 48 registers of a thread, gamma and beta waiting in them for the sums, where 40 will do. Of few
    threads there are as many blocks as an SM takes at all, which says nothing of their registers.
    """
    return max(1, gpu.blocks_per_sm(threads, min(gpu.max_registers_per_thread, OTHER_REGISTERS + words), 0))


def _widest(anchor: Anchor) -> int:
    """Bytes of the widest value of a row."""
    return max(item_bytes(b.writes[0].buffer.dtype) for b in anchor.details.blocks)


def _has_few_results(anchor: Anchor, target: Target) -> bool:
    """Whether rows are few long sums alone, which `reduction` shares among more blocks."""
    rows, length, blocks = anchor.sizes["rows"], anchor.sizes["length"], anchor.details.blocks
    (first, *others) = [b for b in blocks if is_reduction(b)]
    behind = blocks[blocks.index(first) + 1 :]
    if others or not can_be_cut(first) or any(math.prod(extents(spatial(b))) != rows for b in behind):
        return False
    threads = rows * min(power_of_two_below(max(1, length // ELEMENTS_PER_THREAD)), MOST_THREADS)
    size = min(item_bytes(x.buffer.dtype) for x in loads(first.body) if x.buffer is not first.writes[0].buffer)
    return best_parts(rows, length, size, 1, threads, target.gpu) > 1


def _needs_own_row(rows: Rows) -> bool:
    """Whether each block needs no more of a reduction than the result for its own row."""
    results = {b.writes[0].buffer for b in rows.blocks if is_reduction(b)}
    last = rows.blocks[-1].iter_vars[rows.row_axes :]
    is_scalar = all(const_int(iv.dom.extent) == 1 for iv in last)  # the mean of a plane
    for block in rows.blocks:
        own = [iv.var for iv in block.iter_vars][: rows.row_axes]
        others = {iv.var for iv in block.iter_vars if is_scalar or const_int(iv.dom.extent) != 1}
        for load in loads(block.body):
            if load.buffer in results and load.buffer is not block.writes[0].buffer:
                if not all(i is v for i, v in zip(load.indices, own)) or any(
                    free_vars(i) & others for i in load.indices[len(own) :]
                ):
                    return False
    return True


def _inline_rest(sch: Schedule, blocks: tuple[Block, ...]) -> None:
    """Fold every element-wise block into its consumers, which compute it again."""
    kept = too_large_to_inline(blocks)
    for block in blocks[:-1]:
        if is_injective(block) and block not in kept:
            with contextlib.suppress(ScheduleError):  # it stays in shared memory
                sch.compute_inline(block.name_hint)


def _hold(sch: Schedule, row_axes: int, held: Held) -> list[str]:
    """Keep what several blocks or a sum read of a row in registers, and values between; the blocks that fill them."""
    require(held.steps * held.threads * held.vector == held.length, "threads divide a row evenly")
    blocks = blocks_of(sch.func)
    readers: dict[Buffer, list[Block]] = {}
    elsewhere: set[Buffer] = set()
    for block in blocks:
        axes = [iv.var for iv in block.iter_vars]
        for load in loads(block.body):
            if load.buffer is block.writes[0].buffer:
                continue
            own = len(axes) > row_axes and len(load.indices) == len(axes) and all(map(is_, load.indices, axes))
            if own and load.buffer.const_shape()[-1] == held.length:
                readers.setdefault(load.buffer, []).append(block)
            else:
                elsewhere.add(load.buffer)
    written = {b.writes[0].buffer: b for b in blocks}
    found = []
    for buffer, using in readers.items():
        if buffer in elsewhere or (buffer in written and not is_injective(written[buffer])):
            continue
        if buffer in written:
            name = written[buffer].name_hint
            sch.set_scope(name, 0, "local")
        elif len({id(b) for b in using}) > 1 or (held.vector > 1 and is_reduction(using[0])):
            reader = using[0].name_hint
            name = sch.get(sch.cache_read(reader, read_index(sch, reader, buffer.name), "local")).name_hint
        else:
            continue
        sch.transform_layout(name, ("write", 0), held.place)
        found.append(name)
    return found


def _share_evenly(sch: Schedule, block: Block, row: LoopRV, held: Held) -> None:
    """Give each thread the elements of a row that it holds."""
    loop = _inner_loop(sch, block, row)
    if as_int(sch.get(loop).extent) != held.length:
        sch.bind(loop, THREAD_X)
        return
    _, thread, lanes = sch.split(loop, [None, held.threads, held.vector])
    sch.bind(thread, THREAD_X)
    if is_reduction(block):
        return
    if held.vector > 1:
        sch.vectorize(lanes)


def _share_row(sch: Schedule, block: Block, row: LoopRV, threads: int, vector: int) -> None:
    """Give the elements of a row to the threads of x: a reduction's terms one by one, others in vectors."""
    loop = _inner_loop(sch, block, row)
    extent = as_int(sch.get(loop).extent)
    if is_reduction(block):
        sch.bind(sch.split(loop, [None, min(threads, power_of_two_above(extent))])[1], THREAD_X)
        return
    lanes = math.gcd(min(vector, widest_vector(block)), extent)
    if lanes > 1 and extent >= lanes * threads:
        loop, lane = sch.split(loop, [None, lanes])
        sch.vectorize(lane)
        extent //= lanes
    sch.bind(loop if extent <= threads else sch.split(loop, [None, threads])[1], THREAD_X)


def _inner_loop(sch: Schedule, block: Block, row: LoopRV) -> LoopRV:
    """The loops of a block below that over rows, as one."""
    around = sch.get_loops(block.name_hint)
    depth = next(i for i, loop in enumerate(around) if sch.get(loop) is sch.get(row))
    inner = around[depth + 1 :]
    while len(inner) > 1 and as_int(sch.get(inner[0]).extent) == 1:
        inner = inner[1:]
    if not inner:
        return sch.add_unit_loop(sch.get_block(block.name_hint))
    return sch.fuse(*inner) if len(inner) > 1 else inner[0]
