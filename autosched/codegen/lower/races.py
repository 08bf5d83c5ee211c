"""Refuses launches whose threads meet at one element where nothing orders what they do there.

Refused:  for tx in threadIdx.x(8): B[tx // 2] = B[tx // 2] + A[tx]         or: C[tx] = …, … C[7 - tx]
Right:    for tx in threadIdx.x(8): B[tx // 2] = A[tx // 2]                 those who meet store the same

In device memory nothing orders the threads of a launch. In shared memory barriers do, but none stands inside of a
statement, or in loops that only write. The accesses are evaluated for all threads and iterations, of long loops for the
first and the last ones, and for one choice of the sizes that come with the call.

Of accesses whose indices, or conditions around them, depend on data, sums are refused that data may let meet, as in
`B[I[tx]] = B[I[tx]] + A[tx]`: T.atomic_add is right whatever the data are. Others are the program's word, which the
emulator holds against the data of a run: a permutation's stores never meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.flops import evaluate_index
from autosched.codegen.lower.fragments import is_fragment
from autosched.codegen.lower.instructions import MBARRIERS
from autosched.codegen.lower.launches import LoweredLaunch, ThreadAxis
from autosched.codegen.lower.loops import enter
from autosched.errors import CodegenError
from autosched.ir.node import Node, children, preorder
from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.atomic import added
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import Call, PrimExpr, Var
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import BufferStore, For, IfThenElse, LetStmt, Stmt

THREADS = 1 << 10  # that are looked at
SIZES = (13, 5, 7, 3)  # what sizes are that come with the call
POINTS = 1 << 14  # of one access: threads and iterations
_FACTOR = np.int64(0x5851F42D4C957F2D)  # an odd number with bits all over
Numbers = np.ndarray
Range = tuple[Var, int, int]  # a variable, its least and its largest value


def check_races(launch: LoweredLaunch, body: Stmt, buffers: frozenset[Buffer], shared: frozenset[Buffer]) -> None:
    """Raises CodegenError where a thread writes an element that another one reads, or writes another value to.

    buffers  in device memory
    shared   buffers of a block
    """
    nodes = list(preorder(body))
    written = {n.buffer for n in nodes if isinstance(n, BufferStore)} & (buffers | shared)
    if not written:
        return
    axes, known, body = _at_sizes(launch, body)
    if any(a.extent < 1 for a in axes):
        return
    waits = any(is_barrier(n) if isinstance(n, Stmt) else isinstance(n, Call) and n.op in MBARRIERS for n in nodes)
    collector = _Collector(written)
    collector.visit(body, _Around(), known)
    for buffer, accesses in collector.found.items():
        of_warps = any(isinstance(n, BufferLoad) and is_fragment(n.buffer) for a in accesses for n in preorder(a.node))
        threads = [a for a in axes if a.tag.startswith("threadIdx") and not (of_warps and a.tag == "threadIdx.x")]
        blocks = [a for a in axes if not a.tag.startswith("threadIdx")]
        if buffer in buffers:
            _check(buffer, accesses, axes, blocks if waits else [*blocks, *threads])
            continue
        for store in (a.node for a in accesses if isinstance(a.node, BufferStore)):
            own = [a for a in accesses if a.store is store and (a.node.buffer is buffer)]
            adds = len(own) > 1
            fixed = [v for v, _, _ in own[0].around.loops if adds or waits or buffer in collector.read.get(v, ())]
            _check(buffer, own, axes, threads, [*(a.var for a in blocks), *fixed])


def _at_sizes(launch: LoweredLaunch, body: Stmt) -> tuple[Sequence[ThreadAxis], Analyzer, Stmt]:
    """(axes, what is known of them, the body) with numbers for the sizes that come with the call."""
    if not launch.sizes:
        return launch.axes, launch.analyzer(), body
    numbers = zip(itertools.cycle(SIZES), launch.sizes.items())
    values: dict[Var, PrimExpr] = {
        v: E.const(max(least, min(n, least + count - 1)), v.dtype) for n, (v, (least, count)) in numbers
    }
    sizes = ((a, a.extent if a.size is None else evaluate_index(substitute(a.size, values), {})) for a in launch.axes)
    axes = tuple(replace(a, extent=0 if n is None else int(n), size=None) for a, n in sizes)
    return axes, Analyzer({a.var: (0, a.extent) for a in axes}), substitute(body, values)


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and definitions around a node, and the conditions there."""

    loops: tuple[Range, ...] = ()
    lets: tuple[tuple[Var, PrimExpr], ...] = ()
    conditions: tuple[PrimExpr, ...] = ()


@dataclass(frozen=True, slots=True)
class _Access:
    """`store`: the statement whose value a load is part of."""

    node: BufferLoad | BufferStore
    around: _Around
    store: BufferStore | None

    @property
    def is_sum(self) -> bool:
        """Whether this reads the element that its statement then writes."""
        return isinstance(self.node, BufferLoad) and self.store is not None and is_own(self.node, self.store)


@dataclass(slots=True)
class _Collector:
    wanted: set[Buffer]
    found: dict[Buffer, list[_Access]] = field(default_factory=dict)
    read: dict[Var, set[Buffer]] = field(default_factory=dict)  # what loops read
    seen: set[Hashable] = field(default_factory=set)  # expressions share parts

    def visit(self, node: Node, around: _Around, known: Analyzer, store: BufferStore | None = None) -> None:
        if isinstance(node, PrimExpr):
            key = id(node), id(store), around
            if key in self.seen:
                return
            self.seen.add(key)
        if isinstance(node, BufferStore):
            store = node
        match node:
            case For():
                known = enter(known, node)
                low, high = known.bounds[node.loop_var]
                if low is None or high is None:
                    return
                end = E.add(node.start, node.extent)
                bounds = (E.compare(E.LE, node.start, node.loop_var), E.compare(E.LT, node.loop_var, end))
                limits = tuple(b for b in bounds if free_vars(b) - {node.loop_var})
                loops = (*around.loops, (node.loop_var, low, high))
                around = replace(around, loops=loops, conditions=(*around.conditions, *limits))
                self.visit(node.body, around, known)
                return
            case LetStmt():
                self.visit(node.value, around, known)
                self.visit(node.body, replace(around, lets=(*around.lets, (node.var, node.value))), known)
                return
            case IfThenElse() | E.Select() | Call(op="if_then_else"):
                condition, *cases = node.args if isinstance(node, Call) else children(node)
                assert isinstance(condition, PrimExpr), "the condition comes first"
                self.visit(condition, around, known, store)
                for holds, case in zip((condition, E.Not(condition)), cases, strict=False):
                    self.visit(case, replace(around, conditions=(*around.conditions, holds)), known, store)
                return
            case BufferStore() | BufferLoad() if node.buffer in self.wanted:
                self.found.setdefault(node.buffer, []).append(_Access(node, around, store))
                for var, _, _ in around.loops if isinstance(node, BufferLoad) else ():
                    self.read.setdefault(var, set()).add(node.buffer)
        total = added(node) if isinstance(node, BufferStore) else None
        parts = children(node) if total is None else [total]
        for child in parts:
            if not isinstance(child, Buffer):
                self.visit(child, around, known, store)


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """An access by each thread in each iteration: numbers of the element, the thread, the value that is stored."""

    access: _Access
    places: Numbers
    threads: Numbers
    values: Numbers

    @property
    def is_store(self) -> bool:
        return isinstance(self.access.node, BufferStore)


def _check(
    buffer: Buffer, accesses: Sequence[_Access], axes: Sequence[ThreadAxis], apart: Sequence[ThreadAxis],
    fixed: Sequence[Var] = (),
) -> None:  # fmt: skip
    """Refuse what threads do along the axes `apart` with one value of the variables that are `fixed`."""
    words: dict[Hashable, int] = {}
    with np.errstate(all="ignore"):
        found = [p for a in accesses if (p := _points(a, axes, apart, fixed, words)) is not None and p.threads.size]
        for sum_of in (a for a in accesses if a.is_sum and _points(a, axes, apart, fixed, words) is None):
            _check_sum(buffer, _points(sum_of, axes, apart, fixed, words, data_are_0=True))
    stores, loads = [p for p in found if p.is_store], [p for p in found if not p.is_store]
    if not stores:
        return
    at = np.concatenate([p.places for p in stores])
    order = np.argsort(at, kind="stable")
    elements, starts = np.unique(at[order], return_index=True)

    def extremes(numbers: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
        ordered = np.concatenate(numbers)[order]
        return np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)

    first, last = extremes([p.threads for p in stores])
    for load in loads:
        i = np.minimum(np.searchsorted(elements, load.places), len(elements) - 1)
        meets = (elements[i] == load.places) & ((first[i] != load.threads) | (last[i] != load.threads))
        if meets.any():
            if load.access.is_sum:
                raise CodegenError(
                    f"several threads may add up to one element of '{buffer.name}'",
                    hint="bind the loops of its result, not those it adds up, or let T.atomic_add add",
                )
            raise CodegenError(
                f"threads read elements of '{buffer.name}' that others of the launch write at the same time",
                hint="give one of the blocks a nest of its own, or the same threads to the same elements",
            )
    if all(added(p.access.node) is not None for p in stores if isinstance(p.access.node, BufferStore)):
        return
    least, most = extremes([p.values for p in stores])
    if ((first != last) & (least != most)).any():
        raise CodegenError(
            f"threads write different values to one element of '{buffer.name}'",
            hint="give one of the blocks a nest of its own, or the same threads to the same elements",
        )


def _check_sum(buffer: Buffer, points: _Points | None) -> None:
    """Refuse what adds to elements that data name, where threads meet if data are the same for all of them."""
    if points is None or not points.threads.size:
        return
    order = np.argsort(points.places, kind="stable")
    _, starts = np.unique(points.places[order], return_index=True)
    threads = points.threads[order]
    if (np.minimum.reduceat(threads, starts) != np.maximum.reduceat(threads, starts)).any():
        raise CodegenError(
            f"several threads may add up to one element of '{buffer.name}', which data name",
            hint="let T.atomic_add add",
        )


def _parts(condition: PrimExpr) -> Sequence[PrimExpr]:
    """The conditions that hold together where this one does."""
    if isinstance(condition, E.And):
        return *_parts(condition.a), *_parts(condition.b)
    return (condition,)


def _without_data(e: PrimExpr) -> PrimExpr:
    """The expression for data that are 0."""
    found: PrimExpr = rewrite(e, lambda x: E.const(0, x.dtype) if isinstance(x, BufferLoad) else x)
    return found


def _points(
    access: _Access, axes: Sequence[ThreadAxis], apart: Sequence[ThreadAxis], fixed: Sequence[Var],
    words: dict[Hashable, int], data_are_0: bool = False,
) -> _Points | None:  # fmt: skip
    """The access as it is made; None where that depends on data. words: numbers for what values are made of.

    data_are_0  whether indices are for such data; conditions of data hold
    """
    node, around = access.node, access.around
    indices_of_data: Sequence[PrimExpr] = node.indices
    if data_are_0:
        lets_of_0 = tuple((v, _without_data(x)) for v, x in around.lets)
        around = replace(around, lets=lets_of_0, conditions=tuple(p for c in around.conditions for p in _parts(c)))
        indices_of_data = [_without_data(i) for i in node.indices]
    lets = dict(around.lets)
    used = {*fixed, *(v for e in (*node.indices, *around.conditions) for v in free_vars(e))}
    used |= free_vars(node) if isinstance(node, BufferStore) else set()
    while more := {v for x in used & lets.keys() for v in free_vars(lets[x])} - used:
        used |= more
    threads = _sampled([(a.var, 0, a.extent - 1) for a in axes], THREADS)
    loops = _sampled([r for r in around.loops if r[0] in used], POINTS // math.prod(map(len, threads.values())))
    grids = np.meshgrid(*threads.values(), *loops.values(), indexing="ij", sparse=True)
    values: dict[Var, Numbers] = dict(zip((*threads, *loops), grids, strict=True))
    for var, value in around.lets:
        if (known := evaluate_index(value, values)) is not None:
            values[var] = np.asarray(known)
    conditions = [evaluate_index(c, values) for c in around.conditions]
    if data_are_0:
        conditions = [c for c in conditions if c is not None]
    indices = [evaluate_index(i, values) for i in indices_of_data]
    if any(x is None for x in (*conditions, *indices)):
        return None
    shape = np.broadcast_shapes(*(g.shape for g in grids))
    holds = np.ones(shape, bool)
    for condition in conditions:
        holds &= np.asarray(condition, bool)
    thread: Numbers = np.zeros((), np.int64)
    for axis in apart:
        thread = thread * axis.extent + values[axis.var]
    told = _told(node.value, values, words, {}) if isinstance(node, BufferStore) else np.zeros((), np.int64)
    place = _mixed(*(np.asarray(x) for x in (*indices, *(values[v] for v in fixed))))
    rows = [np.broadcast_to(x, shape)[holds] for x in (place, thread, told)]
    return _Points(access, *rows)


def _mixed(*parts: Numbers) -> Numbers:
    """A number that tells tuples of numbers apart."""
    found: Numbers = np.zeros((), np.int64)
    for part in parts:
        found = found * _FACTOR + part
    return found


def _sampled(ranges: Sequence[Range], most: int) -> dict[Var, Numbers]:
    """Some of the first and the last values of each variable, at most so many combinations."""
    counts = [high - low + 1 for _, low, high in ranges]
    while math.prod(counts) > max(most, 1) and max(counts) > 1:
        counts[counts.index(max(counts))] = -(-max(counts) // 2)
    return {
        v: np.concatenate((np.arange(low, low + n - n // 2), np.arange(high + 1 - n // 2, high + 1)))
        for (v, low, high), n in zip(ranges, counts, strict=True)
    }


def _told(e: Node, values: Mapping[Var, Numbers], words: dict[Hashable, int], memo: dict[int, Numbers]) -> Numbers:
    """Numbers that are the same where an expression is; what registers hold counts as the same."""
    if id(e) in memo:
        return memo[id(e)]
    known = evaluate_index(e, values) if isinstance(e, PrimExpr) and is_int(e.dtype) else None
    if known is not None:
        return np.asarray(known, np.int64)
    parts: Sequence[Node] = [c for c in children(e) if not isinstance(c, Buffer)]
    if isinstance(e, BufferLoad):
        parts = () if e.buffer.scope == "local" else e.indices
    word = (
        type(e),
        *(x for x in (getattr(e, n, None) for n in ("dtype", "op", "value", "buffer")) if not isinstance(x, PrimExpr)),
    )
    name = np.asarray(words.setdefault(word, len(words)))
    memo[id(e)] = _mixed(name, *(_told(part, values, words, memo) for part in parts))
    return memo[id(e)]
