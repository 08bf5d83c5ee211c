"""Reductions over any axes: pooling over whole images, sums over columns, means over several axes, windows.

Each reduction is a launch of its own with the element-wise block behind it. A short one is a thread's; the terms of a
long one are shared by threads: those of x where the terms lie side by side in memory, else those of y, and x runs over
results that lie side by side. Few long sums are cut into parts, for blocks of their own (`sum_parts.py`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence

from autosched.codegen.lower.half import HALVES
from autosched.errors import ScheduleError
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import (
    blocks_of,
    extents,
    is_injective,
    is_reduction,
    reduced,
    spatial,
)
from autosched.templates.cuda.elementwise import widest_vector
from autosched.templates.cuda.pairs import is_over_pairs
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.sum_parts import (
    KNOB,
    LINE_BYTES,
    MOST_PARTS,
    THREADS,
    Parts,
    best_parts,
    can_be_cut,
    in_parts,
    is_of_pairs,
    pairs_in_parts,
)
from autosched.templates.cuda.threads import (
    BLOCK_X,
    THREAD_X,
    THREAD_Y,
    VECTOR_BYTES,
    bind_flat,
    dividing,
    fused,
    inline_injective,
    ordered_loops,
    power_of_two_above,
    power_of_two_below,
)
from autosched.templates.nbits_form import find_nbits
from autosched.tir import Block, BufferLoad, BufferStore, PrimFunc, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import LoopRV, Schedule

LEAST_TERMS = 64  # of a sum that is worth sharing
DEFAULT_THREADS = 256
SUM_BYTES = 4  # of a sum of smaller floats, of which a vector has as many as of its terms
MOST_LANES = 8  # neighbouring terms of a thread, each with a sum of its own
SECTOR_BYTES = 32  # that device memory gives at once
ENOUGH_BLOCKS = 0.9  # of the multiprocessors: more blocks would be two rounds of them
MOST_SHARED = 256  # threads that share a result by default: more of them wait longer for each other than for memory


def terms_are_contiguous(block: Block) -> bool:
    """Whether the innermost reduction axis runs along the last dimension of what is read: of the largest buffer."""
    k = reduced(block)[-1].var
    return any(k in free_vars(x.indices[-1]) for x in _largest_reads(block))


def _largest_reads(block: Block) -> list[BufferLoad]:
    """What a reduction reads of its largest argument."""
    if not isinstance(block.body, BufferStore):
        return []
    reads = [x for x in loads(block.body.value) if x.buffer is not block.body.buffer and x.indices]
    most = max((math.prod(x.buffer.const_shape()) for x in reads), default=0)
    return [x for x in reads if math.prod(x.buffer.const_shape()) == most]


def widest(block: Block) -> int:
    """How many neighbouring results of a thread one access to the largest argument serves; 1 where terms are."""
    reads = _largest_reads(block)
    if not reads or not spatial(block) or terms_are_contiguous(block):
        return 1
    axis = spatial(block)[-1]
    if any(x.indices[-1] is not axis.var for x in reads):
        return 1
    rows = [as_int(x.buffer.shape[-1]) for x in reads]
    most = VECTOR_BYTES // max(SUM_BYTES, *(item_bytes(x.buffer.dtype) for x in reads))
    return math.gcd(most, as_int(axis.dom.extent), *rows)


def lanes_of(block: Block) -> int:
    """How many neighbouring terms one access to the largest argument takes; 1 where they lie apart."""
    reads, axis = _largest_reads(block), reduced(block)[-1]
    if not reads or any(x.indices[-1] is not axis.var for x in reads):
        return 1
    rows = [as_int(x.buffer.shape[-1]) for x in reads]
    most = min(MOST_LANES, VECTOR_BYTES // max(item_bytes(x.buffer.dtype) for x in reads))
    return math.gcd(most, as_int(axis.dom.extent), *rows)


def _sizes(block: Block) -> dict[str, int]:
    """What a reduction is like.

    single, cut   whether it has one value, and whether parts of it can be combined
    """
    items = [item_bytes(x.buffer.dtype) for x in _largest_reads(block)]
    return {
        "results": math.prod(extents(spatial(block))), "terms": math.prod(extents(reduced(block))),
        "contiguous": int(terms_are_contiguous(block)), "widest": widest(block), "bytes": max(items, default=4),
        "lanes": lanes_of(block) if terms_are_contiguous(block) else 1,
        "single": int(isinstance(block.body, BufferStore)), "cut": int(can_be_cut(block) or is_of_pairs(block)),
    }  # fmt: skip


class GeneralReduction:
    """Functions of reductions and element-wise blocks, where no other template knows the form."""

    name = "reduction"
    version: int = 4

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        blocks = blocks_of(func)
        reductions = [b for b in blocks if is_reduction(b)]
        of_words = find_nbits(func)
        if not reductions or is_over_pairs(func, target) or (of_words is not None and of_words.has_few_rows):
            return None  # `matmul_nbits` has those
        if not all(is_injective(b) or (is_reduction(b) and b.init is not None) for b in blocks):
            return None
        largest = max(reductions, key=lambda b: math.prod(extents(reduced(b))))
        return Anchor(largest.name_hint, "reduce", _sizes(largest))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, most_parts=MOST_PARTS)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """One launch, or two where those of few results are expected to take less time."""
        s, gpu = anchor.sizes, target.gpu
        alone = self._of_one_launch(s, gpu)
        if not s["cut"] or s["terms"] < LEAST_TERMS:
            return alone
        if not s["single"]:
            return self._of_pairs(s, gpu)
        vector = 1 if s["contiguous"] else s["widest"]
        groups = -(-s["results"] // vector)
        together = 1
        if not s["contiguous"]:
            together = min(max(1, LINE_BYTES // (vector * s["bytes"])), power_of_two_above(groups))
        shared = alone["shared"]
        threads = groups * shared if shared > 1 else groups
        parts = best_parts(
            s["results"], s["terms"] // s["lanes"], s["bytes"] * s["lanes"], together, threads, gpu, vector
        )
        if parts == 1:
            return alone
        knobs = {"shared": THREADS // together, "block_size": THREADS, "vector": vector, KNOB: parts}
        return Config(self.name, knobs)

    def _of_one_launch(self, s: Mapping[str, int], gpu: GpuFacts) -> Config:
        """Threads enough to fill the device; where terms lie far apart, at least a sector of results for a block."""
        terms, results, vector = s["terms"], s["results"], s["widest"]
        if terms < LEAST_TERMS or not s["single"]:
            return self._config(1, DEFAULT_THREADS, 1)
        wanted = max(1, gpu.sm_count * gpu.max_threads_per_sm // 2 // max(results, 1))
        if s["contiguous"]:
            shared = min(power_of_two_below(max(1, terms // 8)), power_of_two_below(wanted), DEFAULT_THREADS)
            return self._config(max(shared, gpu.warp_size), DEFAULT_THREADS, 1)
        shared = min(power_of_two_below(max(1, terms // 8)), power_of_two_below(wanted * vector))
        least = max(1, SECTOR_BYTES // (vector * s["bytes"]))
        fewest = ENOUGH_BLOCKS * vector * gpu.sm_count
        together = next((n for n in (16, 8, 4, 2) if n > least and results >= n * fewest), least)
        shared = min(shared, MOST_SHARED * least // together)
        return self._config(shared, min(max(gpu.warp_size, shared * together), gpu.max_threads_per_block), vector)

    def _of_pairs(self, s: Mapping[str, int], gpu: GpuFacts) -> Config:
        """Pairs are kept by threads alone: as many go through a part as then go through the parts."""
        wanted = max(1, gpu.sm_count * gpu.max_threads_per_sm // 2 // s["results"])
        parts = min(power_of_two_below(wanted), power_of_two_below(math.isqrt(s["terms"])))
        threads = power_of_two_below(max(gpu.warp_size, s["results"] * parts // gpu.sm_count))
        return self._config(1, min(DEFAULT_THREADS, threads), 1).with_knobs(**{KNOB: parts})

    def _of_parts(self, s: Mapping[str, int], gpu: GpuFacts) -> Config:
        """How parts are combined: by all multiprocessors, where there are results enough."""
        config = self._of_one_launch(s, gpu)
        if config["shared"] > 1:
            return config
        threads = power_of_two_below(max(gpu.warp_size, s["results"] // gpu.sm_count))
        return config.with_knobs(block_size=min(DEFAULT_THREADS, threads))

    def _config(self, shared: int, block_size: int, vector: int) -> Config:
        return Config(self.name, {"shared": shared, "block_size": block_size, "vector": vector, KNOB: 1})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        sch = Schedule(func)
        inline_injective(sch, func)
        cut = _in_parts(sch.func, config)
        if cut:
            sch = Schedule(cut[-1].func)
        partial, final = {c.partial: c for c in cut}, {c.final for c in cut}
        outputs = [b for b in func.buffers]
        blocks = list(blocks_of(sch.func))
        while blocks:
            block = blocks.pop(0)
            if block.name_hint in partial:
                found = partial[block.name_hint]
                behind = blocks.pop(0) if found.n_lanes > 1 else None
                self._bind_reduction(sch, block, behind, config, found)
                continue
            behind = blocks[0] if blocks and _hangs_on(blocks[0], block, outputs) else None
            own = self._of_parts(_sizes(block), target.gpu) if block.name_hint in final else config
            if not is_reduction(block):
                self._bind_elements(sch, block, config)
            elif behind is not None:
                blocks.pop(0)
                self._bind_reduction(sch, block, behind, own)
            else:
                self._bind_reduction(sch, block, None, own)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())

    def _bind_elements(self, sch: Schedule, block: Block, config: Config) -> None:
        outer, _ = ordered_loops(sch, block)
        bind_flat(sch, fused(sch, outer, block.name_hint), config["block_size"], math.gcd(4, widest_vector(block)))

    def _bind_reduction(
        self, sch: Schedule, block: Block, behind: Block | None, config: Config, parts: Parts | None = None
    ) -> None:
        """Results to blocks and one axis of threads, the terms to the other; `behind` is computed with its result.

        parts   what the block's results are parts of: a block takes those of one place, `behind` combines their lanes
        """
        vector = math.gcd(config["vector"], widest(block))
        shared = min(config["shared"], power_of_two_below(math.prod(extents(reduced(block)))))
        if not isinstance(block.body, BufferStore):
            shared = 1  # of several values: threads do not combine them
        elif shared == 1 and behind is None and block.body.buffer.dtype in HALVES:  # sums in registers are not rounded
            with contextlib.suppress(ScheduleError):  # others in its loops read it
                behind = sch.get(sch.cache_write(block.name_hint, 0, "local"))
        along = THREAD_X if terms_are_contiguous(block) else THREAD_Y
        across = THREAD_Y if along == THREAD_X else THREAD_X
        last = block if behind is None else behind
        outer, terms = ordered_loops(sch, last)
        whole = fused(sch, outer, last.name_hint)
        lane = None
        if vector > 1:
            whole, lane = sch.split(whole, [None, vector])
            sch.vectorize(lane)
        results = as_int(sch.get(whole).extent) // (parts.count if parts is not None and shared > 1 else 1)
        together = dividing(config["block_size"] // shared, results, shared)
        group, result = sch.split(whole, [None, together])
        sch.bind(group, BLOCK_X)
        sch.bind(result, across if shared > 1 else THREAD_X)
        if behind is not None:
            sch.compute_at(block.name_hint, result, preserve_unit_loops=True)
            sch.set_scope(block.name_hint, 0, "local")  # all threads that share a sum have it
            terms = list(_terms(sch, block))
            if lane is not None or (parts is not None and parts.n_lanes > 1):
                lane = sch.get_loops(block.name_hint)[-len(terms) - 1]
                sch.vectorize(lane)
        whole_sum = sch.fuse(*terms) if len(terms) > 1 else terms[0]
        steps = [whole_sum]
        if shared > 1:
            steps = list(sch.split(whole_sum, [None, shared]))
            sch.bind(steps[1], along)
        if lane is not None:
            sch.reorder(*steps, lane)
        if behind is not None and shared > 1:
            sch.bind(sch.add_unit_loop(sch.get_block(behind.name_hint)), along)


def _in_parts(func: PrimFunc, config: Config) -> list[Parts]:
    """The function with its long reductions in parts: what was done, one after the other."""
    done: list[Parts] = []
    wanted, least = config.get(KNOB, 1), 2 * config["shared"]
    for block in blocks_of(func) if wanted > 1 else ():
        if is_reduction(block) and is_of_pairs(block) and math.prod(extents(reduced(block))) >= 2 * wanted:
            done.append(pairs_in_parts(done[-1].func if done else func, block.name_hint, wanted))
        elif is_reduction(block) and can_be_cut(block):
            n_lanes = lanes_of(block) if terms_are_contiguous(block) else 0
            most = math.prod(extents(reduced(block))) // (least * max(n_lanes, 1))
            if most > 1:
                parts = min(wanted, power_of_two_below(most))
                done.append(in_parts(done[-1].func if done else func, block.name_hint, parts, n_lanes))
    return done


def _terms(sch: Schedule, block: Block) -> Sequence[LoopRV]:
    return sch.get_loops(block.name_hint)[-len(reduced(block)) :]


def _hangs_on(block: Block, reduction: Block, outputs: Sequence[object]) -> bool:
    """Whether an element-wise block needs, for each of its elements, just the result at the same place."""
    if not is_reduction(reduction) or not is_injective(block) or reduction.writes[0].buffer in outputs:
        return False
    if extents(spatial(block)) != extents(spatial(reduction)):
        return False
    assert isinstance(block.body, BufferStore)
    result = reduction.writes[0].buffer
    reads = [x for x in loads(block.body.value) if x.buffer is result]
    return bool(reads) and all(
        len(x.indices) == len(block.body.indices)
        and all(a is b for a, b in zip(x.indices, block.body.indices, strict=True))
        for x in reads
    )
