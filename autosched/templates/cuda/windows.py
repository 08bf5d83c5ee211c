"""Windows that slide over images: depthwise convolutions and pooling, what neighbouring results share in registers.

    for images, channels, groups of rows and columns in blockIdx.x, threadIdx.x:
        window = what `rows` results below each other read      # registers: each element loaded once
        for kh, kw: acc[rows] = acc[rows] + weight[kh, kw] * window
        out = epilogue(acc)

Neighbouring threads compute neighbouring results of a row, so that their accesses lie side by side. Where rows are
whole vectors of float32, a thread may compute four neighbours of each row (`window_vectors.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.ir.node import preorder
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import (
    blocks_of,
    extents,
    is_injective,
    is_reduction,
    producers_of,
    reduced,
    spatial,
)
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import bind_flat, ordered_loops, read_index
from autosched.templates.cuda.window_vectors import LANES, Vectors, find_vectors, wide_windows
from autosched.tir import Block, BufferLoad, BufferStore, PrimExpr, PrimFunc, Var, as_int
from autosched.tir.expr import FloorMod, add, const_int, sub
from autosched.tir.functor import free_vars, loads, substitute
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import simplify

DEFAULT_THREADS = 256
MOST_TERMS = 64  # of a window: they are written out
MOST_ROWS = 8  # of a thread by default: more of them share little more
MOST_UNEVEN = 2  # where the last thread has fewer: each row is then under a condition
MOST_ELEMENTS = 96  # of a thread's window: each is a register
MOST_LOADED = 152  # elements of vectors and sums of a thread: of a vector at the edge one or two are kept
USUALLY_LOADED = 140  # by default, which leaves registers for three blocks of an SM
THREADS_PER_SM = 512  # that hide what loads wait for


@dataclass(frozen=True)
class Window:
    """A reduction over the places of a window.

    chain   what is around it
    data    what the window slides over
    down    the position among the result's axes of the one that a thread goes along
    vectors  how it lies over vectors, where a thread may take these
    """

    chain: Chain
    data: BufferLoad
    down: int
    vectors: Vectors | None


class SlidingWindow:
    """Depthwise convolutions and pooling whose windows overlap."""

    name = "window"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        reductions = [b for b in blocks_of(func) if is_reduction(b)]
        if len(reductions) != 1 or reductions[0].init is None:
            return None
        (block,) = reductions
        chain = chain_around(func, block)
        if chain is None or not all(is_injective(b) for b in chain.before):
            return None
        terms = math.prod(extents(reduced(block)))
        data = _slides_over(block)
        if data is None or terms > MOST_TERMS:
            return None
        down = _overlapping(block, data)
        if down is None:
            return None
        at, stride, reach, along = down
        axes = extents(spatial(block))
        sizes = {"results": math.prod(axes), "extent": axes[at], "terms": terms}
        sizes |= {"stride": stride, "reach": reach, "across": terms // along}
        vectors = find_vectors(chain, data, at)
        sizes["vectors"] = 0 if vectors is None else vectors.count
        return Anchor(block.name_hint, "window", sizes, Window(chain, data, at, vectors))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, most=MOST_ELEMENTS, most_loaded=MOST_LOADED)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The most rows that leave threads enough for the device: those that divide the results, else a few."""
        s = anchor.sizes
        threads = target.gpu.sm_count * THREADS_PER_SM
        wide = [n for n in range(2, MOST_ROWS + 1) if s["vectors"] and self._fits_vectors(s, n)]
        if wide := [n for n in wide if s["results"] >= n * LANES * threads]:
            return Config(self.name, {"rows": wide[-1], "columns": LANES, "block_size": DEFAULT_THREADS})

        def fits(rows: int) -> bool:
            elements = ((rows - 1) * s["stride"] + s["reach"]) * s["across"]
            return s["results"] >= rows * threads and elements <= MOST_ELEMENTS and rows <= s["extent"]

        fitting = [n for n in range(1, MOST_ROWS + 1) if n == 1 or fits(n)]
        even = max(n for n in fitting if s["extent"] % n == 0)
        rows = even if even > 1 else max(n for n in fitting if n <= MOST_UNEVEN)
        return Config(self.name, {"rows": rows, "columns": 1, "block_size": DEFAULT_THREADS})

    @staticmethod
    def _fits_vectors(s: Mapping[str, int], rows: int) -> bool:
        """Whether the vectors under a thread's results leave registers for other blocks."""
        height = (rows - 1) * s["stride"] + s["reach"]
        return s["extent"] % rows == 0 and LANES * (height * s["vectors"] + rows) <= USUALLY_LOADED

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        window: Window = anchor.details
        if config.get("columns", 1) > 1:
            assert window.vectors is not None, "the space says so"
            made = wide_windows(func, window.chain, window.data, window.vectors, config["rows"], config["block_size"])
            return Applied(made, (None,) * len(func.params), Schedule(func).trace.to_json_text())
        sch = Schedule(func)
        name = window.chain.anchor.name_hint
        filling = [b.name_hint for b in producers_of(func, window.data)]
        for block in window.chain.before:
            if block.name_hint not in filling:
                sch.compute_inline(block.name_hint)
        out = schedule_epilogue(sch, window.chain)
        outer, _ = ordered_loops(sch, sch.get(sch.get_block(out)))
        tile, row = sch.split(outer[window.down], [None, config["rows"]])
        around = [*outer[: window.down], tile, *outer[window.down + 1 :]]
        sch.reorder(*around, row)
        thread = bind_flat(sch, sch.fuse(*around), config["block_size"])
        sch.unroll(row)
        sch.compute_at(name, thread, True)
        own = sch.get_loops(name)
        n_terms = len(reduced(window.chain.anchor))
        results, terms = own[-n_terms - len(outer) : -n_terms], own[-n_terms:]
        sch.reorder(*terms, *results)
        for loop in (*terms, *results):
            sch.unroll(loop)
        if filling:
            sch.set_scope(filling[0], 0, "local")
        copy = filling[0] if filling else sch.cache_read(name, read_index(sch, name, window.data.buffer.name), "local")
        sch.compute_at(copy, thread, True)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _slides_over(block: Block) -> BufferLoad | None:
    """The one load that is another for each term, and moves with all axes of the results."""
    if not isinstance(block.body, BufferStore):
        return None
    terms = {iv.var for iv in reduced(block)}
    results = {iv.var for iv in spatial(block)}
    reads = [x for x in loads(block.body.value) if x.buffer is not block.body.buffer]
    moving = [x for x in reads if any(free_vars(i) & terms and free_vars(i) & results for i in x.indices)]
    if len(moving) != 1 or any(isinstance(x, FloorMod) for i in moving[0].indices for x in preorder(i)):
        return None  # with remainders, what a thread reads is not seen to be what it copied
    used = set().union(*map(free_vars, moving[0].indices))
    wanted = terms | {iv.var for iv in spatial(block) if as_int(iv.dom.extent) > 1}
    return moving[0] if wanted <= used else None


def _overlapping(block: Block, data: BufferLoad) -> tuple[int, int, int, int] | None:
    """(axis, stride, reach, terms) of the last axis before the innermost one whose neighbours share elements.

    The stride is that between neighbours' windows, the reach is a window's along this axis, of so many terms.
    """
    axes, terms = spatial(block), {iv.var: as_int(iv.dom.extent) for iv in reduced(block)}
    for at in range(len(axes) - 2, -1, -1):
        axis = axes[at].var
        found = [i for i in data.indices if axis in free_vars(i)]
        along = [v for v in terms if len(found) == 1 and v in free_vars(found[0])]
        if not along or free_vars(found[0]) != {axis, *along}:
            continue
        steps = [_step(found[0], v) for v in (axis, *along)]
        if any(step is None or step <= 0 for step in steps):
            continue
        stride, *inner = [step or 0 for step in steps]
        reach = 1 + sum((terms[v] - 1) * step for v, step in zip(along, inner, strict=True))
        if stride < reach:
            return at, stride, reach, math.prod(terms[v] for v in along)
    return None


def _step(index: PrimExpr, axis: Var) -> int | None:
    """How far an index moves with an axis; None where that is not the same everywhere."""
    return const_int(simplify(sub(substitute(index, {axis: add(axis, 1)}), index)))
