"""Allocates every intermediate buffer in the innermost loop that holds all its uses, as large as is used there.

Before:  alloc T[128, 512] at the root;  for i: (for j: T[i, j] = …), (for j: … T[i, j])
After:   for i: alloc T[1, 512]; (for j: T[0, j] = …), (for j: … T[0, j])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from autosched.codegen.lower.align import Alignments, aligned_strides
from autosched.codegen.lower.loops import enter
from autosched.errors import CodegenError
from autosched.ir.node import Node, children, map_children
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import CmpOp, IntImm, PrimExpr, Var, const_int
from autosched.tir.functor import free_vars, rewrite, statements
from autosched.tir.schedule.iter_map import is_injective
from autosched.tir.simplify import Analyzer, Linear, split_conditions
from autosched.tir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, LoopKind, Stmt

STACK_BYTES = 32 * 1024  # larger "local" buffers live in the scratch block: a stack has its limits
PROMOTED_BYTES = 2048  # a smaller buffer inside one loop nest becomes "local": registers or the stack


@dataclass(slots=True)
class _Access:
    path: tuple[Stmt, ...]  # statements from the root to the access, inclusive
    indices: tuple[PrimExpr, ...]
    is_store: bool
    analyzer: Analyzer  # of loops
    guarded: Analyzer  # and of the conditions on threads around it
    _forms: dict[int, Linear] = field(default_factory=dict)

    def form(self, axis: int) -> Linear:
        """The index in one dimension, not to be changed."""
        if axis not in self._forms:
            self._forms[axis] = self.analyzer.linear(self.indices[axis])
        return self._forms[axis]


@dataclass(slots=True)
class _Dim:
    """Where the accesses lie in one dimension: base + [low, high], or anywhere (base None)."""

    base: PrimExpr | None
    low: int = 0
    high: int = 0
    is_loose: bool = False  # loads without use may lie outside of the buffer


@dataclass(slots=True)
class _Plan:
    buffer: Buffer
    new: Buffer
    bases: tuple[PrimExpr, ...]
    at: int  # id of the statement to wrap


@dataclass(slots=True)
class _Collector:
    wanted: set[Buffer]
    threads: Set[Var]
    found: dict[Buffer, list[_Access]] = field(default_factory=dict)

    def visit(self, node: Node, path: tuple[Stmt, ...], analyzer: Analyzer, guarded: Analyzer) -> None:
        if isinstance(node, Stmt):
            path = (*path, node)
        if isinstance(node, For):
            self.visit(node.start, path, analyzer, guarded)
            self.visit(node.extent, path, analyzer, guarded)
            inside = enter(analyzer, node)
            self.visit(node.body, path, inside, inside if guarded is analyzer else enter(guarded, node))
            return
        if isinstance(node, IfThenElse) and (few := self._fewer_threads(node.condition, path)):
            inner = guarded.copy()
            for fact in few:
                inner.assume(fact)
            self.visit(node.condition, path, analyzer, guarded)
            self.visit(node.then_case, path, analyzer, inner)
            if node.else_case is not None:
                self.visit(node.else_case, path, analyzer, guarded)
            return
        if isinstance(node, BufferStore | BufferLoad) and node.buffer in self.wanted:
            access = _Access(path, node.indices, isinstance(node, BufferStore), analyzer, guarded)
            self.found.setdefault(node.buffer, []).append(access)
        for child in children(node):
            if not isinstance(child, Buffer):
                self.visit(child, path, analyzer, guarded)

    def _fewer_threads(self, condition: PrimExpr, path: tuple[Stmt, ...]) -> list[PrimExpr]:
        """What a condition says of threads, or of them and lanes of vectors, alone: a part of them copies."""
        lanes = {s.loop_var for s in path if isinstance(s, For) and s.kind == LoopKind.VECTORIZED}
        conditions = [x for x in split_conditions(condition) if not _loads(x)]
        return [x for x in conditions if free_vars(x) & self.threads and free_vars(x) - lanes <= self.threads]


class Sharing:
    """Who has a copy of a buffer: on a CPU every worker; see `DeviceSharing` for threads of a GPU."""

    ranges: Mapping[Var, tuple[int, int]] = {}  # (first value, number of values) of variables bound to threads
    apart: frozenset[Var] = frozenset()  # those of them that are blocks or threads
    unguarded: frozenset[Var] = frozenset()  # loads whose indices depend on these may leave the buffer, for no use

    def fixed(self, buffer: Buffer) -> frozenset[Var]:
        """The variables that have one value for all who share the buffer."""
        return frozenset()

    def whole(self, buffer: Buffer, shape: Sequence[PrimExpr], is_own: bool) -> bool:
        """Whether the buffer stays as it is and is allocated elsewhere; `is_own`: they read what they wrote."""
        return False

    def scope(self, buffer: Buffer, shape: Sequence[PrimExpr], path: tuple[Stmt, ...], is_own: bool) -> str:
        """Where the compacted buffer lives."""
        return _scope(buffer.scope, shape, buffer.dtype, path)


def compact_buffers(
    body: Stmt,
    buffers: Sequence[Buffer],
    alignments: Mapping[Buffer, Alignments] | None = None,
    sharing: Sharing | None = None,
) -> Stmt:
    """`body` with an Allocate for every buffer that it uses; some with the strides that `alignments` wants."""
    sharing = sharing or Sharing()
    collector = _Collector(set(buffers), sharing.ranges.keys())
    known = Analyzer(sharing.ranges)
    collector.visit(body, (), known, known)
    wanted = alignments or {}
    made = [_plan(b, collector.found[b], wanted.get(b, ()), sharing) for b in buffers if b in collector.found]
    plans = [p for p in made if p is not None]
    if not plans:
        return body
    moved = {p.buffer: p for p in plans}
    wraps: dict[int, list[Buffer]] = {}
    for p in plans:
        wraps.setdefault(p.at, []).append(p.new)
    return _rebuild(body, moved, wraps)


def _rebuild(node: Stmt, moved: dict[Buffer, _Plan], wraps: dict[int, list[Buffer]]) -> Stmt:
    def shift(indices: tuple[PrimExpr, ...], plan: _Plan) -> tuple[PrimExpr, ...]:
        return tuple(E.sub(i, b) for i, b in zip(indices, plan.bases, strict=True))

    def expression(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in moved:
            return BufferLoad(moved[x.buffer].new, shift(x.indices, moved[x.buffer]))
        return x

    def child(x: object) -> object:
        if isinstance(x, Stmt):
            return _rebuild(x, moved, wraps)
        return rewrite(x, expression) if isinstance(x, PrimExpr) else x

    new = map_children(node, child)
    if isinstance(new, BufferStore) and new.buffer in moved:
        plan = moved[new.buffer]
        new = BufferStore(plan.new, new.value, shift(new.indices, plan))
    for buffer in reversed(wraps.get(id(node), [])):
        new = Allocate(buffer, new)  # type: ignore[assignment]
    return new


def _plan(buffer: Buffer, accesses: list[_Access], alignments: Alignments, sharing: Sharing) -> _Plan | None:
    path = _common_path(accesses)
    while True:
        path = _outside_lanes(path)
        outer = ({s.loop_var for s in path if isinstance(s, For)} - _own_vars(path)) | sharing.fixed(buffer)
        loose = sharing.unguarded
        dims = [_dim(buffer, axis, accesses, outer, loose=loose) for axis in range(buffer.ndim)]
        enclosing = [i for i, s in enumerate(path[:-1]) if isinstance(s, For)]
        is_own = _written_here(buffer, accesses, outer)
        if not enclosing or is_own:
            break
        path = path[: enclosing[-1] + 1]
    is_own = is_own and _written_by_all(accesses, sharing.apart & sharing.fixed(buffer), sharing.ranges)
    shape: list[PrimExpr] = []
    bases: list[PrimExpr] = []
    for dim, size in zip(dims, buffer.shape, strict=True):
        full = const_int(size)
        used = dim.high - dim.low + 1
        is_moved = dim.base is not None and bool(free_vars(dim.base) & sharing.fixed(buffer))  # each has its own place
        if dim.base is None and dim.is_loose:
            low, high = _reach(buffer, len(shape), accesses)
            low, high = min(low, 0), max(high, low if full is None else full - 1)
            shape.append(IntImm(high - low + 1, size.dtype))
            bases.append(IntImm(low, size.dtype))
        elif dim.base is None or (full is not None and used >= full and not dim.is_loose and not is_moved):
            shape.append(size)
            bases.append(IntImm(0, size.dtype))
        else:
            shape.append(IntImm(used, size.dtype))
            bases.append(E.add(dim.base, E.const(dim.low, dim.base.dtype)))
    if sharing.whole(buffer, shape, is_own):
        return None
    scope = sharing.scope(buffer, shape, path, is_own)
    strides = aligned_strides(shape, alignments) if alignments and scope != "local" else buffer.strides
    new = dataclasses.replace(buffer, shape=tuple(shape), scope=scope, strides=strides)
    return _Plan(buffer, new, tuple(bases), id(path[-1]))


def _reach(buffer: Buffer, axis: int, accesses: list[_Access]) -> tuple[int, int]:
    """The least and the largest index of accesses without conditions. Raises CodegenError where that is not known."""
    lows, highs = list[int](), list[int]()
    for access in (a for a in accesses if _may_leave(buffer, a)):
        low, high = access.guarded._linear_bound(access.form(axis))
        if low is None or high is None:
            raise CodegenError(
                f"reads of '{buffer.name}' may leave it by no known number of elements",
                hint="schedule it so that its indices are sums of loop variables",
            )
        lows, highs = [*lows, low], [*highs, high]
    return min(lows), max(highs)


def _may_leave(buffer: Buffer, access: _Access) -> bool:
    """Whether an access may have lost its condition: stores to shared memory keep theirs."""
    return buffer.scope == "local" or not access.is_store


def _own_vars(path: tuple[Stmt, ...]) -> set[Var]:
    """The variable of the loop that is wrapped itself is inner: the allocation stands outside that loop."""
    last = path[-1]
    return {last.loop_var} if isinstance(last, For) else set()


def _common_path(accesses: list[_Access]) -> tuple[Stmt, ...]:
    first = accesses[0].path
    depth = min(len(a.path) for a in accesses)
    for other in accesses[1:]:
        depth = min(depth, next((i for i in range(depth) if first[i] is not other.path[i]), depth))
    return first[:depth]


def _outside_lanes(path: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Not inside a vectorised loop, whose iterations run side by side and would share the buffer."""
    at = next((i for i, s in enumerate(path) if isinstance(s, For) and s.kind == LoopKind.VECTORIZED), None)
    return path if at is None else path[: at + 1]


def _split(form: Linear, outer: set[Var]) -> tuple[Linear, Linear] | None:
    """(part over outer variables, rest); None where one term mixes both."""
    fixed, inner = Linear(), Linear(form.const)
    for key, (c, atom) in form.terms.items():
        used = free_vars(atom)
        if used <= outer and not _loads(atom):
            fixed.terms[key] = (c, atom)
        elif used & outer:
            return None
        else:
            inner.terms[key] = (c, atom)
    return fixed, inner


def _loads(atom: PrimExpr) -> bool:
    from autosched.ir.node import preorder

    return any(isinstance(x, BufferLoad) for x in preorder(atom))


def _dim(
    buffer: Buffer, axis: int, accesses: list[_Access], outer: set[Var], only: bool | None = None,
    loose: frozenset[Var] = frozenset(),
) -> _Dim:  # fmt: skip
    """The union of what the accesses (`only` stores, only loads, or all) touch in one dimension."""
    result: _Dim | None = None
    base_terms: Linear | None = None
    chosen = [access for access in accesses if only in (None, access.is_store)]

    def may_leave(access: _Access) -> bool:
        return bool(loose) and _may_leave(buffer, access) and bool(free_vars(access.indices[axis]) & loose)

    unknown = _Dim(None, is_loose=any(map(may_leave, chosen)))
    for access in chosen:
        parts = _split(access.form(axis), outer)
        if parts is None:
            return unknown
        fixed, inner = parts
        low, high = access.guarded._linear_bound(inner)
        if not fixed.terms and not may_leave(access):  # a condition that is not seen here keeps it inside the buffer
            size = const_int(buffer.shape[axis])
            low = 0 if low is None else max(low, 0)
            high = high if size is None else size - 1 if high is None else min(high, size - 1)
        if low is None or high is None:
            return unknown
        if result is None:
            result, base_terms = _Dim(fixed.build(buffer.shape[axis].dtype), low, high), fixed
        elif base_terms is not None and _same_terms(base_terms, fixed):
            result.low, result.high = min(result.low, low), max(result.high, high)
        else:
            return unknown
    if result is None:
        return unknown
    result.is_loose = unknown.is_loose
    return result


def _same_terms(a: Linear, b: Linear) -> bool:
    return a.terms.keys() == b.terms.keys() and all(a.terms[k][0] == b.terms[k][0] for k in a.terms)


def _written_here(buffer: Buffer, accesses: list[_Access], outer: set[Var]) -> bool:
    """Whether what is read in one iteration of the enclosing loops is written there too, and not in an earlier one."""
    if not any(a.is_store for a in accesses):
        return False
    for axis in range(buffer.ndim):
        stored, loaded = (_dim(buffer, axis, accesses, outer, only) for only in (True, False))
        if loaded.base is None:
            if any(not a.is_store for a in accesses) and stored.base is not None:
                size = const_int(buffer.shape[axis])
                if size is None or stored.high - stored.low + 1 < size or free_vars(stored.base):
                    return False  # not the whole dimension, or each a part of its own
            continue
        both = _dim(buffer, axis, accesses, outer)
        if both.base is None or both.low < stored.low or both.high > stored.high:
            return False
    return True


def _written_by_all(accesses: list[_Access], threads: Set[Var], ranges: Mapping[Var, tuple[int, int]]) -> bool:
    """Whether all threads that come to a load come to a store of what is read there."""
    stores = [(a, _few(a, threads)) for a in accesses if a.is_store]
    for load in (a for a in accesses if not a.is_store and stores):
        for store, few in stores:
            left = [c for c in few if not load.guarded.can_prove(c)]
            if all(_is_of_one(store, {v: ranges[v] for v in free_vars(c)}) for c in left):
                break
        else:
            return False
    return True


def _few(access: _Access, threads: Set[Var]) -> list[PrimExpr]:
    """The conditions around an access that let some threads through, as `tx < 4`: no bounds of what is accessed."""
    around = [s.condition for s, inner in pairwise(access.path) if isinstance(s, IfThenElse) and inner is s.then_case]
    parts = (c for condition in around for c in split_conditions(condition))
    return [c for c in parts if isinstance(c, CmpOp) and c.a in threads and const_int(c.b) is not None]


def _is_of_one(store: _Access, threads: Mapping[Var, tuple[int, int]]) -> bool:
    """Whether an element tells which of the threads stores it: who reads it is the one that does."""
    loops = {s.loop_var: (0, n) for s in store.path if isinstance(s, For) and (n := const_int(s.extent)) is not None}
    ranges = {**threads, **loops}
    return is_injective(store.indices, {v: n for v, (_, n) in ranges.items()}, Analyzer(ranges))


def _scope(scope: str, shape: Sequence[PrimExpr], dtype: str, path: tuple[Stmt, ...]) -> str:
    sizes = [const_int(s) for s in shape]
    if any(s is None for s in sizes):
        return "global"
    size = int(np.prod([s for s in sizes if s is not None], dtype=np.int64)) * item_bytes(dtype)
    if scope == "local":
        return "global" if size > STACK_BYTES else "local"
    in_a_loop = any(isinstance(s, For) for s in path[:-1])
    shares_tasks = any(isinstance(s, For) and s.kind == LoopKind.PARALLEL for s in _below(path[-1]))
    return "local" if in_a_loop and not shares_tasks and size <= PROMOTED_BYTES else "global"


def _below(stmt: Stmt) -> list[Stmt]:
    return [n for n in statements(stmt) if isinstance(n, For | LetStmt)]
