"""Turns virtual threads into unrolled loops around the statements that use them.

Before:  for vy in vthread(2): for k in 8: (A_shared[…] = …), (C[vy * 16 + i] = …)
After:   for k in 8: (A_shared[…] = …), (for vy in unroll(2): C[vy * 16 + i] = …)
What does not depend on the virtual thread runs once. Statements keep their order, so that barriers stand between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard, TypeVar

from autosched.ir.node import map_children, preorder
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
    relative to it: what the virtual threads of one thread hold need not lie side by side.
    """
    loops = [n for n in preorder(stmt) if _is_virtual(n)]
    extents = {n.loop_var: as_int(n.extent) for n in loops if as_int(n.extent) > 1}
    new = {buffer: own for buffer in local if (own := _private(buffer, stmt, extents)) is not None}

    def expression(x: object) -> object:
        return BufferLoad(new[x.buffer].buffer, new[x.buffer].at(x.indices)) if _uses(x, new, BufferLoad) else x

    def step(x: object) -> object:
        if _uses(x, new, BufferStore):
            own = new[x.buffer]
            return BufferStore(own.buffer, x.value, own.at(x.indices))
        return expression(x)

    kept = [new[b].buffer if b in new else b for b in buffers]
    registers = frozenset(new[b].buffer if b in new else b for b in local)
    return _lowered(rewrite(stmt, step) if new else stmt), kept, registers


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
