"""Everything without an anchor: each remaining block is a launch of its own, an element or a short vector a thread.

Element-wise blocks fold into their consumers. Axes that every access reads in the order of memory become one flat axis,
whose vectors are one access each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import alike_axes, blocks_of, extents, is_injective, is_reduction, spatial
from autosched.templates.cuda.threads import VECTOR_BYTES, bind_flat, fused, inline_injective, ordered_loops
from autosched.tir import Block, BufferStore, PrimFunc
from autosched.tir.dtypes import item_bytes
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import Schedule

DEFAULT_THREADS = 256
BLOCKS_PER_SM = 2  # below that a vector a thread leaves parts of the device without work


def widest_vector(block: Block) -> int:
    """The elements that one access of 16 bytes holds, by the widest type in use; 1 where rows do not divide so.

    Types of what is the same for a whole vector, as the position of a row, do not count.
    """
    if not is_injective(block):
        return 1
    assert isinstance(block.body, BufferStore)
    out = block.body.buffer
    along = spatial(block)[-1].var if block.iter_vars else None
    moved = [x.buffer for x in loads(block.body.value) if any(along in free_vars(i) for i in x.indices)]
    widest = max(item_bytes(b.dtype) for b in (out, *moved))
    size = math.prod(extents(spatial(block))[-alike_axes(block) :])
    vector = max(1, VECTOR_BYTES // widest)
    while vector > 1 and size % vector:
        vector //= 2
    return vector


def default_knobs(sizes: Mapping[str, int], target: Target) -> dict[str, int]:
    """The widest vectors that leave enough threads for the device."""
    elements, vector = sizes["elements"], sizes["widest"]
    while vector > 1 and elements < vector * DEFAULT_THREADS * BLOCKS_PER_SM * target.gpu.sm_count:
        vector //= 2
    return {"block_size": DEFAULT_THREADS, "vector": vector}


class Elementwise:
    """Element-wise chains, layout changes, and whatever no other template takes."""

    name = "elementwise"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        blocks = blocks_of(func)
        kind = "reduce" if any(is_reduction(b) for b in blocks) else "elementwise"
        sizes = {"elements": math.prod(extents(spatial(blocks[-1]))), "widest": widest_vector(blocks[-1])}
        return Anchor("", kind, sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        gpu = target.gpu
        values = {**anchor.sizes, "warp": gpu.warp_size, "most_threads": gpu.max_threads_per_block}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, default_knobs(anchor.sizes, target))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        sch = Schedule(func)
        inline_injective(sch, func)
        for block in blocks_of(sch.func):
            outer, _ = ordered_loops(sch, block)
            whole = fused(sch, outer, block.name_hint)
            vector = math.gcd(config["vector"], widest_vector(block))
            bind_flat(sch, whole, config["block_size"], vector)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())
