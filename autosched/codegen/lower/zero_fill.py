"""Gives the elements of shared memory that a guarded copy leaves out the value 0.

Before:  if by * 64 + ty < 130: A_shared[ty] = A[by * 64 + ty]
After:   A_shared[ty] = A[by * 64 + ty] if by * 64 + ty < 130 else 0
What is computed of them is used by nobody, but it is the same in every run, and an asynchronous copy can do it.
"""

from __future__ import annotations

from autosched.codegen.lower.loops import enter, guarded
from autosched.codegen.lower.shared_memory import is_shared
from autosched.ir.node import map_children, walk
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_float
from autosched.tir.expr import Call, FloatImm, IntImm, PrimExpr, all_of, const_int
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import BufferStore, For, IfThenElse, SeqStmt, Stmt

Conditions = tuple[PrimExpr, ...]


def zero_fill(stmt: Stmt, analyzer: Analyzer) -> Stmt:
    """The statement with guarded copies into shared memory as copies of a value or 0, where they stay inside of it."""
    stores: dict[Buffer, int] = {}
    for node in walk(stmt):
        if isinstance(node, BufferStore) and is_shared(node.buffer):
            stores[node.buffer] = stores.get(node.buffer, 0) + 1
    copied = frozenset(buffer for buffer, count in stores.items() if count == 1)
    return _visit(stmt, analyzer, copied) if copied else stmt


def _visit(stmt: Stmt, a: Analyzer, copied: frozenset[Buffer]) -> Stmt:
    if isinstance(stmt, For):
        body = _visit(stmt.body, enter(a, stmt), copied)
        return map_children(stmt, lambda c: body if c is stmt.body else c)
    if isinstance(stmt, IfThenElse) and stmt.else_case is None and _is_copy(stmt.then_case, copied):
        return _filled(stmt, a, ())
    return map_children(stmt, lambda c: _visit(c, a, copied) if isinstance(c, Stmt) else c)


def _is_copy(stmt: Stmt, copied: frozenset[Buffer]) -> bool:
    """Whether nothing but copies into shared buffers is below, each the only one into its buffer."""
    match stmt:
        case For():
            return _is_copy(stmt.body, copied)
        case IfThenElse():
            return stmt.else_case is None and _is_copy(stmt.then_case, copied)
        case SeqStmt():
            return all(_is_copy(s, copied) for s in stmt.seq)
        case BufferStore():
            reads = {x.buffer for x in walk(stmt.value) if isinstance(x, BufferLoad)}
            return stmt.buffer in copied and not any(is_shared(b) for b in reads)
    return False


def _filled(stmt: Stmt, a: Analyzer, conditions: Conditions) -> Stmt:
    match stmt:
        case For():
            body = _filled(stmt.body, enter(a, stmt), conditions)
            return map_children(stmt, lambda c: body if c is stmt.body else c)
        case IfThenElse():
            return _filled(stmt.then_case, a, (*conditions, *split_conditions(stmt.condition)))
        case SeqStmt():
            return SeqStmt(tuple(_filled(s, a, conditions) for s in stmt.seq))
        case BufferStore() if _stays_inside(stmt, a):
            zero = FloatImm(0.0, stmt.value.dtype) if is_float(stmt.value.dtype) else IntImm(0, stmt.value.dtype)
            value = Call("if_then_else", (all_of(*conditions), stmt.value, zero), stmt.value.dtype)
            return BufferStore(stmt.buffer, value, stmt.indices)
    return guarded(all_of(*conditions), stmt)


def _stays_inside(store: BufferStore, a: Analyzer) -> bool:
    for index, size in zip(store.indices, store.buffer.shape, strict=True):
        low, high = a.bound(index)
        extent = const_int(size)
        if low is None or high is None or extent is None or low < 0 or high >= extent:
            return False
    return True
