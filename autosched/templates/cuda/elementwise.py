"""Everything without an anchor: each remaining block is a launch of its own, an element or a short vector a thread.

Element-wise blocks fold into their consumers. Axes that every access reads in the order of memory become one flat axis,
whose vectors are one access each. Where few values of the slowest axis lie side by side in what is read, as the places
of a window in packed weights do, a thread takes them all: neighbouring threads then read whole sectors together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import alike_axes, blocks_of, extents, is_injective, is_reduction, spatial
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import VECTOR_BYTES, bind_flat, fused, inline_injective, ordered_loops
from autosched.tir import Block, BufferStore, PrimFunc, as_int
from autosched.tir import expr as E
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer

DEFAULT_THREADS = 256
BLOCKS_PER_SM = 2  # below that a vector a thread leaves parts of the device without work
MOST_SIDE_BY_SIDE = 32  # elements that a thread reads one by one


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


def lies_across(block: Block) -> bool:
    """Whether the few values of a block's slowest axis lie side by side in the one tensor that it reads."""
    if not is_injective(block) or not isinstance(block.body, BufferStore) or len(block.iter_vars) < 2:
        return False
    axes, sizes = [iv.var for iv in spatial(block)], extents(spatial(block))
    outer = next((n for n, size in enumerate(sizes[:-1]) if size > 1), None)
    read = loads(block.body.value)
    if outer is None or sizes[outer] > MOST_SIDE_BY_SIDE or len(read) != 1:
        return False
    indices, shape = read[0].indices, [const_int(n) for n in read[0].buffer.shape]
    if None in shape or read[0].buffer.strides or len({i.dtype for i in indices}) != 1:
        return False
    analyzer = Analyzer()
    for var, size in zip(axes, sizes, strict=True):
        analyzer.bind(var, (0, size))
    place = indices[0]
    for i, own in zip(indices[1:], shape[1:], strict=True):
        place = E.add(E.mul(place, own or 0), i)
    factors = {atom: factor for factor, atom in analyzer.linear(place).terms.values()}
    return factors.get(axes[outer]) == 1 and factors.get(axes[-1], 0) >= sizes[outer]


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
        if kind == "elementwise" and lies_across(blocks[-1]):
            sizes["widest"] = 1
        return Anchor("", kind, sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, default_knobs(anchor.sizes, target))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        sch = Schedule(func)
        inline_injective(sch, func)
        for block in blocks_of(sch.func):
            outer, _ = ordered_loops(sch, block)
            if config["vector"] == 1 and lies_across(block):
                slowest = next(x for x in outer if as_int(sch.get(x).extent) > 1)
                outer = [x for x in outer if x is not slowest]
                sch.reorder(*outer, slowest)
                sch.unroll(slowest)
            whole = fused(sch, outer, block.name_hint)
            vector = math.gcd(config["vector"], widest_vector(block))
            bind_flat(sch, whole, config["block_size"], vector)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())
