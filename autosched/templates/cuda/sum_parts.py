"""Long reductions of few results, cut into parts for all multiprocessors; a second launch combines them.

Before:  out[s] = combine x[s, k] for k in 1000000                     few blocks have work
After:   out_parts[s, p, v] = combine x[s, (p * 31 + t) * 4 + v] for t in …        v: lanes of a vector
         out_lanes[s, p] = out_parts[s, p, 0] + … + out_parts[s, p, 3]
         out[s] = combine out_lanes[s, p] for p                        a second launch

Parts are neighbours in memory and are combined in their order, so that results are the same each time. Sums of halves
are float32 until the last one. Where the terms of a result lie far apart, `p` comes first and there are no lanes: those
of a vector are neighbouring results.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.codegen.lower.half import HALVES, WIDE, widened
from autosched.errors import ScheduleError
from autosched.ir.node import map_children, preorder
from autosched.target.gpus import GpuFacts
from autosched.templates.classify import blocks_of, extents, reduced, spatial
from autosched.templates.core_nests import indices_of
from autosched.templates.cuda.core_tiles import LAUNCH_S
from autosched.tir import expr as E
from autosched.tir.access import is_own, point
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Select, Var, as_int
from autosched.tir.extrema import KEEP_NAN, LastingMax, LastingMin, from_infinity
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import loads, rewrite, rewrite_down, substitute
from autosched.tir.schedule.inline import with_regions
from autosched.tir.simplify import form_key
from autosched.tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    seq,
)

KNOB = "sum_parts"
MOST_PARTS = 4096
THREADS = 256  # of a block that computes parts
LEAST_STEPS = 8  # accesses of a thread to a part
LEAST_FAR_STEPS = 16  # where threads combine their sums through shared memory alone
SUM_BYTES = 4
LINE_BYTES = 128
IDENTITIES = {E.Add: 0, E.Mul: 1}
SECOND_LAUNCH_S = 2 * LAUNCH_S  # the launch, and waiting for memory once with nothing beside it
FULL_THREADS = 512  # of a multiprocessor, with a vector each under way
RAMP = 0.4  # of the time of a wave of so many threads goes by until memory is busy, and when they end together


def seconds(size_bytes: float, threads: int, gpu: GpuFacts) -> float:
    """How long it takes to read so many bytes by so many threads in all.

    An H200 takes 39 µs for the sums of the columns of 8192 x 4096 floats by 131,072 threads, 31 for those of the rows
    by four million, and 2213 by 256 threads.
    """
    waves = threads / (gpu.sm_count * FULL_THREADS)
    return size_bytes / gpu.memory_bandwidth * (1 + RAMP / waves)


def best_parts(
    results: int, terms: int, size_bytes: int, together: int, threads: int, gpu: GpuFacts, vector: int = 1
) -> int:
    """How many parts each sum gets.

    size_bytes        of a term
    together, vector  accesses side by side of a block of THREADS threads that computes parts, and results of each
    threads           of one launch without parts
    """
    moved, groups = float(results * terms * size_bytes), -(-results // (together * vector))
    least = (LEAST_STEPS if together == 1 else LEAST_FAR_STEPS) * (THREADS // together)  # accesses of a part

    def cost(parts: int) -> float:
        if parts == 1:
            return seconds(moved, threads, gpu)
        between = 2 * SUM_BYTES * results * parts
        return seconds(moved + between, groups * parts * THREADS, gpu) + SECOND_LAUNCH_S

    choices = [1 << n for n in range(1, MOST_PARTS.bit_length()) if (1 << n) * least <= terms]
    return min([1, *choices], key=cost)


@dataclass(frozen=True)
class Parts:
    """The function with one reduction in parts.

    partial, final   the block of parts, behind which stands the one that combines their lanes, and that of the results
    count, n_lanes   parts of a result, lanes of a part
    """

    func: PrimFunc
    partial: str
    final: str
    count: int
    n_lanes: int


def can_be_cut(block: Block) -> bool:
    """Whether a reduction is a sum, product, maximum or minimum of one value."""
    return _term(block) is not None


def _term(block: Block) -> tuple[type[E.BinaryOp], PrimExpr] | None:
    """(how a reduction combines, what it combines)."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(block.init, BufferStore):
        return None
    value = store.value
    if not isinstance(value, E.Add | E.Mul | E.Max | E.Min):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if is_own(own, store) and not any(x.buffer is store.buffer for x in loads(term)):
            return type(value), term
    return None


def is_of_pairs(block: Block) -> bool:
    """Whether a reduction keeps one of two tuples, as an argmax does."""
    return _pair(block) is not None


@dataclass(frozen=True)
class _Pair:
    """What a reduction of several values stores where it starts and at each step, and the terms that it compares."""

    stores: tuple[BufferStore, ...]
    starts: tuple[PrimExpr, ...]
    terms: tuple[PrimExpr, ...]


def _pair(block: Block) -> _Pair | None:
    """A reduction whose every value is `Select(condition, own, term)`; None for any other."""
    values, body = {}, block.body
    while isinstance(body, LetStmt):
        values[body.var] = body.value
        body = body.body
    if not isinstance(body, SeqStmt) or not isinstance(block.init, SeqStmt):
        return None
    stores = tuple(x for x in body.seq if isinstance(x, BufferStore))
    starts = {x.buffer: x.value for x in block.init.seq if isinstance(x, BufferStore)}
    if len(stores) != len(body.seq) or starts.keys() != {x.buffer for x in stores}:
        return None
    terms = []
    for x in stores:
        made = values.get(x.value) if isinstance(x.value, Var) else None
        if not isinstance(made, Select) or not is_own(made.true_value, x):
            return None
        if any(y.buffer in starts for y in loads(made.false_value)):
            return None
        terms.append(made.false_value)
    pair = _Pair(stores, tuple(starts[x.buffer] for x in stores), tuple(terms))
    zeros = [E.const(0, t.dtype) for t in terms]
    left = _with_terms(block.body, pair, zeros)
    axes = {iv.var for iv in reduced(block)}
    return None if any(x in axes for x in preorder(left) if isinstance(x, Var)) else pair


def _with_terms(body: Stmt, pair: _Pair, terms: Sequence[PrimExpr]) -> Stmt:
    """The step of a reduction with other terms."""
    keys = [(form_key(old), new) for old, new in zip(pair.terms, terms, strict=True)]

    def step(x: object) -> PrimExpr | None:
        if not isinstance(x, PrimExpr):
            return None
        return next((new for key, new in keys if new.dtype == x.dtype and form_key(x) == key), None)

    made: Stmt = rewrite_down(body, step)
    return made


def pairs_in_parts(func: PrimFunc, name: str, parts: int) -> Parts:
    """The same for a reduction of pairs. Parts follow each other, as what stands first may count."""
    block = next(b for b in blocks_of(func) if b.name_hint == name)
    pair = _pair(block)
    if pair is None:
        raise ScheduleError(f"the reduction '{name}' has no parts that can be combined", hint=f"use {KNOB}=1")
    dtype, sizes = reduced(block)[0].var.dtype, extents(reduced(block))
    steps = -(-math.prod(sizes) // parts)
    part, step, last = (_axis(n, size, dtype, kind) for n, size, kind in (
        ("part", parts, SPATIAL), ("step", steps, REDUCE), ("part", parts, REDUCE)))  # fmt: skip
    shape = tuple(E.const(n, dtype) for n in (*extents(spatial(block)), parts))
    partial = {x.buffer: Buffer(f"{x.buffer.name}_parts", shape, x.buffer.dtype) for x in pair.stores}
    at = E.add(E.mul(part.var, E.const(steps, dtype)), step.var)
    own = _fresh(spatial(block))
    places = (*(E.cast(dtype, iv.var) for iv in own), part.var)
    values: dict[Var, PrimExpr] = {a.var: b.var for a, b in zip(spatial(block), own, strict=True)}
    values |= {iv.var: E.cast(iv.var.dtype, i) for iv, i in zip(reduced(block), indices_of(at, sizes), strict=True)}
    terms = [substitute(x, values) for x in pair.terms]
    if steps * parts != math.prod(sizes):
        inside = E.compare(E.LT, at, E.const(math.prod(sizes), dtype))
        starts = [substitute(x, values) for x in pair.starts]
        terms = [E.if_then_else(inside, x, start) for x, start in zip(terms, starts, strict=True)]

    def moved(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in partial:
            return BufferLoad(partial[x.buffer], places)
        return BufferStore(partial[x.buffer], x.value, places) if isinstance(x, BufferStore) else x

    assert block.init is not None, "a pair starts with something"
    body = rewrite(substitute(_with_terms(block.body, pair, terms), values), moved)
    init = rewrite(substitute(block.init, values), moved)
    first = Block((*own, part, step), (), (), (), f"{name}_parts", body, init)
    own = _fresh(spatial(block))
    values = {a.var: b.var for a, b in zip(spatial(block), own, strict=True)}
    source = (*(E.cast(dtype, iv.var) for iv in own), last.var)
    found = [BufferLoad(partial[x.buffer], source) for x in pair.stores]
    second = dataclasses.replace(
        block, iter_vars=(*own, last), body=substitute(_with_terms(block.body, pair, found), values),
        init=substitute(block.init, values),
    )  # fmt: skip
    root = func.root
    nests: list[Stmt] = []
    for nest in root.body.seq if isinstance(root.body, SeqStmt) else (root.body,):
        is_it = any(x is block for x in preorder(nest))
        nests.extend(map(_nest, map(with_regions, (first, second))) if is_it else (nest,))
    made = make_root(seq(*nests), (*root.alloc_buffers, *partial.values()), root.annotations)
    return Parts(func.with_body(made), first.name_hint, name, parts, 1)


def in_parts(func: PrimFunc, name: str, parts: int, n_lanes: int) -> Parts:
    """Cut the reduction of a block, whose loops are its axes, into parts.

    n_lanes  neighbouring terms that a thread reads at once, where these lie side by side; 0 where results do
    Raises   ScheduleError for a reduction that is no sum, product, maximum or minimum.
    """
    block = next(b for b in blocks_of(func) if b.name_hint == name)
    if _term(block) is None:
        raise ScheduleError(f"the reduction '{name}' has no parts that can be combined", hint=f"use {KNOB}=1")
    return _Cut(func, block, parts, n_lanes).result()


class _Cut:
    """One reduction in parts."""

    def __init__(self, func: PrimFunc, block: Block, parts: int, n_lanes: int):
        found = _term(block)
        assert found is not None and isinstance(block.body, BufferStore) and isinstance(block.init, BufferStore)
        self.func, self.block, self.parts, self.lanes = func, block, parts, n_lanes
        self.kind, self.term = found
        start = from_infinity(block).init
        assert isinstance(start, BufferStore), "it has a start as before"
        self.sums, self.start = block.body.buffer, start.value
        self.dtype = self.sums.dtype
        if self.dtype in HALVES and self.kind in IDENTITIES:
            self.dtype, self.term, self.start = WIDE, widened(self.term, set()), E.cast(WIDE, self.start)
        self.index = reduced(block)[0].var.dtype
        # a maximum may begin anew in each part; what a sum begins with counts once
        self.identity = E.const(IDENTITIES[self.kind], self.dtype) if self.kind in IDENTITIES else self.start

    def result(self) -> Parts:
        name = self.block.name_hint
        partial, whole = self.partial(f"{name}_parts")
        blocks, buffers = [partial], [whole]
        if self.lanes > 1:
            shape = whole.const_shape()[:-1]
            buffers.append(self.buffer(f"{self.sums.name}_lanes", shape))
            blocks.append(self.fold(f"{name}_lanes", whole, buffers[-1]))
        sums = self.sums if self.dtype == self.sums.dtype else dataclasses.replace(
            self.sums, name=f"{self.sums.name}_wide", dtype=self.dtype)  # fmt: skip
        blocks.append(self.final(buffers[-1], sums))
        if sums is not self.sums:
            buffers.append(sums)
            if self.sums in self.func.buffers:
                blocks.append(self.rounded(f"{name}_rounded", sums))
        return Parts(self.replaced(blocks, buffers, sums), partial.name_hint, name, self.parts, self.lanes)

    def buffer(self, name: str, shape: Sequence[int]) -> Buffer:
        return Buffer(name, tuple(E.const(n, self.index) for n in shape), self.dtype)

    def combined(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """Of two values that are no step of a reduction."""
        lasting = {E.Max: LastingMax, E.Min: LastingMin} if self.block.annotations.get(KEEP_NAN) else {}
        return lasting.get(self.kind, self.kind)(a, b)

    def partial(self, name: str) -> tuple[Block, Buffer]:
        """The block of parts, and the buffer that it writes."""
        own = _fresh(spatial(self.block))
        sizes, n_lanes = extents(reduced(self.block)), max(self.lanes, 1)
        groups = math.prod(sizes) // n_lanes  # of terms that are read at once
        steps = -(-groups // self.parts)
        part, step, lane = (_axis(n, size, self.index, kind) for n, size, kind in (
            ("part", self.parts, SPATIAL), ("step", steps, REDUCE), ("lane", n_lanes, SPATIAL)))  # fmt: skip
        group = E.add(E.mul(part.var, E.const(steps, self.index)), step.var)
        *outer, last = indices_of(group, (*sizes[:-1], sizes[-1] // n_lanes))
        if n_lanes > 1:
            last = E.add(E.mul(last, E.const(n_lanes, self.index)), lane.var)
        values: dict[Var, PrimExpr] = {
            iv.var: E.cast(iv.var.dtype, v) for iv, v in zip(reduced(self.block), (*outer, last), strict=True)
        }
        values |= {old.var: new.var for old, new in zip(spatial(self.block), own, strict=True)}
        term, identity = substitute(self.term, values), substitute(self.identity, values)
        if steps * self.parts != groups:
            term = E.if_then_else(E.compare(E.LT, group, E.const(groups, self.index)), term, identity)
        axes = (*own, part) if self.lanes else (part, *own)
        axes = (*axes, lane) if n_lanes > 1 else axes
        buffer = self.buffer(f"{self.sums.name}_parts", extents(axes))
        return self.reduction(name, axes, step, buffer, tuple(iv.var for iv in axes), term, identity), buffer

    def reduction(
        self, name: str, axes: tuple[IterVar, ...], step: IterVar, buffer: Buffer, at: tuple[PrimExpr, ...],
        term: PrimExpr, start: PrimExpr,
    ) -> Block:  # fmt: skip
        body = BufferStore(buffer, self.kind(BufferLoad(buffer, at), term), at)
        reads = tuple(point(x.buffer, x.indices) for x in _distinct(loads(term)))
        return Block(
            (*axes, step), (), (point(buffer, at), *reads), (point(buffer, at),), name, body,
            BufferStore(buffer, start, at), annotations=self.block.annotations,
        )  # fmt: skip

    def fold(self, name: str, whole: Buffer, out: Buffer) -> Block:
        """The block that combines the lanes of a part."""
        axes = tuple(_axis(f"i{n}", size, self.index) for n, size in enumerate(out.const_shape()))
        at = tuple(iv.var for iv in axes)
        each: list[PrimExpr] = [BufferLoad(whole, (*at, E.const(n, self.index))) for n in range(self.lanes)]
        reads = tuple(point(whole, x.indices) for x in each if isinstance(x, BufferLoad))
        value = functools.reduce(self.combined, each[1:], each[0])
        return Block(axes, (), reads, (point(out, at),), name, BufferStore(out, value, at))

    def final(self, source: Buffer, sums: Buffer) -> Block:
        """The block that combines parts, with the name and the axes of the whole reduction."""
        own = _fresh(spatial(self.block))
        values: dict[Var, PrimExpr] = {a.var: b.var for a, b in zip(spatial(self.block), own, strict=True)}
        step = _axis("part", self.parts, self.index, REDUCE)
        assert isinstance(self.block.body, BufferStore)
        at = tuple(substitute(i, values) for i in self.block.body.indices)
        places = tuple(E.cast(self.index, iv.var) for iv in own)
        term = BufferLoad(source, (*places, step.var) if self.lanes else (step.var, *places))
        start = substitute(self.start, values)
        return self.reduction(self.block.name_hint, own, step, sums, at, term, start)

    def rounded(self, name: str, sums: Buffer) -> Block:
        """The block that rounds sums to the type that was asked for."""
        axes = tuple(_axis(f"i{n}", as_int(s), s.dtype) for n, s in enumerate(sums.shape))
        at = tuple(iv.var for iv in axes)
        value = E.cast(self.sums.dtype, BufferLoad(sums, at))
        return Block(axes, (), (point(sums, at),), (point(self.sums, at),), name, BufferStore(self.sums, value, at))

    def replaced(self, blocks: Sequence[Block], buffers: Sequence[Buffer], sums: Buffer) -> PrimFunc:
        """The function with these blocks in place of the reduction."""
        root = self.func.root

        def rounding(x: object) -> object:
            if isinstance(x, BufferLoad) and x.buffer is self.sums:
                return E.cast(self.sums.dtype, BufferLoad(sums, x.indices))
            return BufferRegion(sums, x.region) if isinstance(x, BufferRegion) and x.buffer is self.sums else x

        def reading(stmt: Stmt) -> Stmt:
            if isinstance(stmt, BlockRealize):
                return dataclasses.replace(stmt, block=rewrite(stmt.block, rounding))
            return map_children(stmt, lambda c: reading(c) if isinstance(c, Stmt) else c)

        nests: list[Stmt] = []
        for nest in root.body.seq if isinstance(root.body, SeqStmt) else (root.body,):
            if any(x is self.block for x in preorder(nest)):
                nests.extend(map(_nest, blocks))
            else:
                nests.append(nest if sums is self.sums else reading(nest))
        kept = tuple(b for b in root.alloc_buffers if b is not self.sums or sums is self.sums)
        return self.func.with_body(make_root(seq(*nests), (*kept, *buffers), root.annotations))


def _axis(name: str, extent: int, dtype: str, kind: str = SPATIAL) -> IterVar:
    return IterVar(Range(E.const(0, dtype), E.const(extent, dtype)), Var(name, dtype), kind)


def _fresh(axes: Sequence[IterVar]) -> tuple[IterVar, ...]:
    return tuple(IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.kind) for iv in axes)


def _distinct(found: Sequence[BufferLoad]) -> list[BufferLoad]:
    return list({id(x): x for x in found}.values())


def _nest(block: Block) -> Stmt:
    """A block with a loop for each of its axes."""
    loops = [Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars]
    stmt: Stmt = BlockRealize(tuple(loops), E.const(1, "bool"), block)
    for v, iv in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        stmt = For(v, E.const(0, v.dtype), iv.dom.extent, LoopKind.SERIAL, stmt)
    return stmt
