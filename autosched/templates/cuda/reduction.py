"""Reductions over any axes: pooling over whole images, sums over columns, means over several axes, windows.

Each reduction is a launch of its own with the element-wise block behind it. A short one is a thread's; the terms of a
long one are shared by threads: those of x where the terms lie side by side in memory, else those of y, and x runs over
results that lie side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
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
    power_of_two_below,
)
from autosched.tir import Block, BufferLoad, BufferStore, PrimFunc, as_int
from autosched.tir.dtypes import item_bytes
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import LoopRV, Schedule

LEAST_TERMS = 64  # of a sum that is worth sharing
DEFAULT_THREADS = 256
SUM_BYTES = 4  # of a sum of smaller floats, of which a vector has as many as of its terms
SECTOR_BYTES = 32  # that device memory gives at once
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


class GeneralReduction:
    """Functions of reductions and element-wise blocks, where no other template knows the form."""

    name = "reduction"
    version: int = 3

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        blocks = blocks_of(func)
        reductions = [b for b in blocks if is_reduction(b)]
        if not reductions or is_over_pairs(func, target):
            return None
        if not all(is_injective(b) or (is_reduction(b) and b.init is not None) for b in blocks):
            return None
        largest = max(reductions, key=lambda b: math.prod(extents(reduced(b))))
        terms, results = math.prod(extents(reduced(largest))), math.prod(extents(spatial(largest)))
        sizes = {"results": results, "terms": terms, "contiguous": int(terms_are_contiguous(largest))}
        items = [item_bytes(x.buffer.dtype) for x in _largest_reads(largest)]
        sizes |= {"widest": widest(largest), "bytes": max(items, default=4)}
        return Anchor(largest.name_hint, "reduce", sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        gpu = target.gpu
        values = {**anchor.sizes, "warp": gpu.warp_size, "most_threads": gpu.max_threads_per_block}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        """Threads enough to fill the device; where terms lie far apart, at least a sector of results for a block."""
        gpu, terms, results = target.gpu, anchor.sizes["terms"], anchor.sizes["results"]
        if terms < LEAST_TERMS:
            return Config(self.name, {"shared": 1, "block_size": DEFAULT_THREADS, "vector": 1})
        vector = anchor.sizes["widest"]
        wanted = max(1, gpu.sm_count * gpu.max_threads_per_sm // 2 // max(results, 1))
        if anchor.sizes["contiguous"]:
            shared = min(power_of_two_below(max(1, terms // 8)), power_of_two_below(wanted), DEFAULT_THREADS)
            return Config(self.name, {"shared": max(shared, gpu.warp_size), "block_size": DEFAULT_THREADS, "vector": 1})
        shared = min(power_of_two_below(max(1, terms // 8)), power_of_two_below(wanted * vector))
        least = max(1, SECTOR_BYTES // (vector * anchor.sizes["bytes"]))
        together = next((n for n in (16, 8, 4, 2) if n > least and results >= n * vector * gpu.sm_count), least)
        shared = min(shared, MOST_SHARED * least // together)
        return Config(
            self.name, {"shared": shared, "block_size": max(gpu.warp_size, shared * together), "vector": vector}
        )

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        sch = Schedule(func)
        inline_injective(sch, func)
        outputs = [b for b in func.buffers]
        blocks = list(blocks_of(sch.func))
        while blocks:
            block = blocks.pop(0)
            behind = blocks[0] if blocks and _hangs_on(blocks[0], block, outputs) else None
            if not is_reduction(block):
                self._bind_elements(sch, block, config)
            elif behind is not None:
                blocks.pop(0)
                self._bind_reduction(sch, block, behind, config)
            else:
                self._bind_reduction(sch, block, None, config)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())

    def _bind_elements(self, sch: Schedule, block: Block, config: Config) -> None:
        outer, _ = ordered_loops(sch, block)
        bind_flat(sch, fused(sch, outer, block.name_hint), config["block_size"], math.gcd(4, widest_vector(block)))

    def _bind_reduction(self, sch: Schedule, block: Block, behind: Block | None, config: Config) -> None:
        """Results to blocks and one axis of threads, the terms to the other; `behind` is computed with its result."""
        vector = math.gcd(config["vector"], widest(block))
        shared = min(config["shared"], power_of_two_below(math.prod(extents(reduced(block)))))
        along = THREAD_X if terms_are_contiguous(block) else THREAD_Y
        across = THREAD_Y if along == THREAD_X else THREAD_X
        last = block if behind is None else behind
        outer, terms = ordered_loops(sch, last)
        whole = fused(sch, outer, last.name_hint)
        lane = None
        if vector > 1:
            whole, lane = sch.split(whole, [None, vector])
            sch.vectorize(lane)
        together = dividing(config["block_size"] // shared, as_int(sch.get(whole).extent), shared)
        group, result = sch.split(whole, [None, together])
        sch.bind(group, BLOCK_X)
        sch.bind(result, across if shared > 1 else THREAD_X)
        if behind is not None:
            sch.compute_at(block.name_hint, result, preserve_unit_loops=True)
            sch.set_scope(block.name_hint, 0, "local")  # all threads that share a sum have it
            terms = list(_terms(sch, block))
            if lane is not None:
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
