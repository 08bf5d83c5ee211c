"""Turns virtual threads into unrolled loops around the statements that use them.

Before:  for vy in vthread(2): for k in 8: (A_shared[…] = …), (C[vy * 16 + i] = …)
After:   for k in 8: (A_shared[…] = …), (for vy in unroll(2): C[vy * 16 + i] = …)
What does not depend on the virtual thread runs once. Statements keep their order, so that barriers stand between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard, TypeVar

from autosched.ir.node import children, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var, as_int
from autosched.tir.functor import free_vars, rewrite, uses
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import BufferStore, For, IfThenElse, LoopKind, SeqStmt, Stmt

_Use = TypeVar("_Use", BufferLoad, BufferStore)


def lower_vthreads(
    stmt: Stmt, buffers: list[Buffer], local: frozenset[Buffer]
) -> tuple[Stmt, list[Buffer], frozenset[Buffer]]:
    """(the statement without loops bound to virtual threads, its buffers, those of them in registers).

    A register buffer gets a leading dimension for each virtual thread that its indices depend on, and is addressed
    relative to it: what the virtual threads of one thread hold need not lie side by side. So does one whose contents
    alone depend on it.
    """
    loops = {n.loop_var: n for n in preorder(stmt) if _is_virtual(n) and as_int(n.extent) > 1}
    extents = {v: as_int(loop.extent) for v, loop in loops.items()}
    new = {buffer: own for buffer in local if (own := _private(buffer, stmt, extents)) is not None}
    stmt, buffers, local = _replaced(stmt, buffers, local, new)
    while apart := {b: own for b in local if (own := _by_contents(b, stmt, loops)) is not None}:
        stmt, buffers, local = _replaced(stmt, buffers, local, apart)
    return _lowered(stmt), buffers, local


def _replaced(
    stmt: Stmt, buffers: list[Buffer], local: frozenset[Buffer], new: Mapping[Buffer, _Private]
) -> tuple[Stmt, list[Buffer], frozenset[Buffer]]:
    def expression(x: object) -> object:
        return BufferLoad(new[x.buffer].buffer, new[x.buffer].at(x.indices)) if _uses(x, new, BufferLoad) else x

    def step(x: object) -> object:
        if _uses(x, new, BufferStore):
            own = new[x.buffer]
            return BufferStore(own.buffer, x.value, own.at(x.indices))
        return expression(x)

    kept = [new[b].buffer if b in new else b for b in buffers]
    registers = frozenset(new[b].buffer if b in new else b for b in local)
    return rewrite(stmt, step) if new else stmt, kept, registers


def _is_virtual(node: object) -> TypeGuard[For]:
    return (
        isinstance(node, For)
        and node.kind == LoopKind.THREAD_BINDING
        and node.thread.startswith(("vthread", "cthread"))
    )


def _uses(x: object, new: Mapping[Buffer, _Private], kind: type[_Use]) -> TypeGuard[_Use]:
    return isinstance(x, kind) and x.buffer in new


@dataclass(frozen=True, slots=True)
class _Private:
    """A register buffer with dimensions for virtual threads: index `i` of an axis becomes i less `shifts` of them."""

    buffer: Buffer
    variables: tuple[Var, ...]
    shifts: tuple[Mapping[Var, int], ...]

    def at(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        a = Analyzer()
        inner = []
        for index, shift in zip(indices, self.shifts, strict=True):
            rest = index
            for var, factor in shift.items():
                rest = E.sub(rest, E.mul(E.cast(index.dtype, var), factor))
            inner.append(a.simplify(rest))
        return (*self.variables, *inner)


def _private(buffer: Buffer, stmt: Stmt, extents: Mapping[Var, int]) -> _Private | None:
    """The buffer with a copy for each virtual thread; None where its accesses do not agree on how they depend on it."""
    shifts: list[dict[Var, int]] | None = None
    for node in preorder(stmt):
        if not isinstance(node, BufferLoad | BufferStore) or node.buffer is not buffer:
            continue
        found = []
        for index in node.indices:
            terms = Analyzer().linear(index).terms
            mine = {v: terms[form_key(v)][0] for v in extents if form_key(v) in terms}
            if any(v in free_vars(atom) for c, atom in terms.values() for v in extents if atom is not v):
                return None
            found.append(mine)
        if shifts is not None and shifts != found:
            return None
        shifts = found
    used = [v for v in extents if any(v in shift for shift in shifts or ())]
    if not used:
        return None
    sizes = tuple(E.const(extents[v], v.dtype) for v in used)
    return _Private(replace(buffer, shape=(*sizes, *buffer.shape), strides=()), tuple(used), tuple(shifts or ()))


def _by_contents(buffer: Buffer, stmt: Stmt, loops: Mapping[Var, For]) -> _Private | None:
    """The buffer with a copy for each virtual thread that alone decides what is in it; None where there is none."""
    for var, loop in loops.items():
        if _accesses(stmt, buffer) == _accesses(loop.body, buffer) and _depends(loop.body, buffer, var):
            shape = (E.const(as_int(loop.extent), var.dtype), *buffer.shape)
            return _Private(replace(buffer, shape=shape, strides=()), (var,), ({},) * buffer.ndim)
    return None


def _accesses(stmt: Stmt, buffer: Buffer) -> int:
    return sum(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in preorder(stmt))


def _depends(stmt: Stmt, buffer: Buffer, var: Var, by_place: bool = False) -> bool:
    """Whether a store to the buffer, at an index without the variable, depends on it by its value or by its place."""
    match stmt:
        case BufferStore() if stmt.buffer is buffer:
            by_index = any(var in free_vars(i) for i in stmt.indices)
            return not by_index and (by_place or var in free_vars(stmt.value))
        case IfThenElse():
            by_place = by_place or var in free_vars(stmt.condition)
        case For():
            by_place = by_place or bool({var} & (free_vars(stmt.start) | free_vars(stmt.extent)))
    return any(isinstance(c, Stmt) and _depends(c, buffer, var, by_place) for c in children(stmt))


def _lowered(stmt: Stmt) -> Stmt:
    if _is_virtual(stmt):
        loop = replace(stmt, kind=LoopKind.UNROLLED, thread="")
        return _sunk(loop, _lowered(stmt.body))
    return map_children(stmt, lambda c: _lowered(c) if isinstance(c, Stmt) else c)


def _sunk(loop: For, stmt: Stmt) -> Stmt:
    var = {loop.loop_var}
    if not uses(stmt, var):
        return stmt
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(_sunk(loop, s) for s in stmt.seq))
    if isinstance(stmt, For) and not uses(stmt.start, var) and not uses(stmt.extent, var):
        if stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
            return replace(stmt, body=_sunk(loop, stmt.body))
    if isinstance(stmt, IfThenElse) and stmt.else_case is None and not uses(stmt.condition, var):
        return IfThenElse(stmt.condition, _sunk(loop, stmt.then_case))
    return replace(loop, body=stmt)
