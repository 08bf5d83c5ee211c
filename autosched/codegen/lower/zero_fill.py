"""Gives the elements of shared memory that a guarded copy leaves out the value 0.

Before:  if by * 64 + ty < 130: A_shared[ty] = A[by * 64 + ty]
After:   A_shared[ty] = A[by * 64 + ty] if by * 64 + ty < 130 else 0
What is computed of them is used by nobody, but it is the same in every run, and an asynchronous copy can do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autosched.codegen.lower.instructions import COPY
from autosched.codegen.lower.loops import enter, guarded
from autosched.codegen.lower.shared_memory import is_shared
from autosched.ir.node import map_children, preorder
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_float
from autosched.tir.expr import Call, FloatImm, IntImm, PrimExpr, Var, all_of, const_int
from autosched.tir.functor import free_vars
from autosched.tir.schedule.iter_map import is_injective
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import Allocate, BufferStore, For, IfThenElse, SeqStmt, Stmt

Conditions = tuple[PrimExpr, ...]


def zero_fill(stmt: Stmt, analyzer: Analyzer, threads: Mapping[Var, int]) -> Stmt:
    """The statement with guarded copies into shared memory as copies of a value or 0, where they stay inside of it.

    threads   the variables that tell the threads of a block apart, with their extents
    """
    stores: dict[Buffer, int] = {}
    for node in preorder(stmt):
        if isinstance(node, BufferStore) and is_shared(node.buffer):
            stores[node.buffer] = stores.get(node.buffer, 0) + 1
        elif isinstance(node, Call) and node.op == COPY and isinstance(node.args[0], BufferLoad):
            stores[node.args[0].buffer] = 2  # what it writes is to stay
    copied = frozenset(buffer for buffer, count in stores.items() if count == 1)
    return _Filler(copied, threads).visit(stmt, analyzer) if copied else stmt


@dataclass(slots=True)
class _Filler:
    copied: frozenset[Buffer]
    threads: Mapping[Var, int]
    inside: dict[Buffer, frozenset[Var]] = field(default_factory=dict)  # loops that a buffer outlives an iteration of

    def visit(self, stmt: Stmt, a: Analyzer) -> Stmt:
        if isinstance(stmt, For):
            body = self.visit(stmt.body, enter(a, stmt))
            return map_children(stmt, lambda c: body if c is stmt.body else c)
        if isinstance(stmt, Allocate):
            inner = {n.loop_var for n in preorder(stmt.body) if isinstance(n, For)}
            self.inside[stmt.buffer] = frozenset(inner)
        if isinstance(stmt, IfThenElse) and stmt.else_case is None and _is_copy(stmt.then_case, self.copied):
            return self.filled(stmt, a, (), self.threads)
        return map_children(stmt, lambda c: self.visit(c, a) if isinstance(c, Stmt) else c)

    def filled(self, stmt: Stmt, a: Analyzer, conditions: Conditions, own: Mapping[Var, int]) -> Stmt:
        """`own` are the variables of threads and of the copy's loops."""
        match stmt:
            case For():
                inner = {**own, stmt.loop_var: const_int(stmt.extent) or 0}
                body = self.filled(stmt.body, enter(a, stmt), conditions, inner)
                return map_children(stmt, lambda c: body if c is stmt.body else c)
            case IfThenElse():
                return self.filled(stmt.then_case, a, (*conditions, *split_conditions(stmt.condition)), own)
            case SeqStmt():
                return SeqStmt(tuple(self.filled(s, a, conditions, own) for s in stmt.seq))
            case BufferStore() if _stays_inside(stmt, a) and self.is_of_the_element(conditions, stmt, own, a):
                zero = FloatImm(0.0, stmt.value.dtype) if is_float(stmt.value.dtype) else IntImm(0, stmt.value.dtype)
                value = Call("if_then_else", (all_of(*conditions), stmt.value, zero), stmt.value.dtype)
                return BufferStore(stmt.buffer, value, stmt.indices)
        return guarded(all_of(*conditions), stmt)

    def is_of_the_element(
        self, conditions: Conditions, store: BufferStore, own: Mapping[Var, int], a: Analyzer
    ) -> bool:
        """Whether an element has one answer to the conditions for as long as it lives.

        `if tx == 0: S[0] = …` has one writer of many, `if k == 0: S[tx] = …` keeps what the first iteration wrote.
        """
        asked = {v for c in conditions for v in free_vars(c)}
        if (asked - own.keys()) & self.inside.get(store.buffer, frozenset()):
            return False
        asked &= own.keys()
        indexed = {v: own[v] for i in store.indices for v in free_vars(i) if v in own}
        return asked <= indexed.keys() and (not asked or is_injective(store.indices, indexed, a))


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
            reads = {x.buffer for x in preorder(stmt.value) if isinstance(x, BufferLoad)}
            return stmt.buffer in copied and not any(is_shared(b) for b in reads)
    return False


def _stays_inside(store: BufferStore, a: Analyzer) -> bool:
    for index, size in zip(store.indices, store.buffer.shape, strict=True):
        low, high = a.bound(index)
        extent = const_int(size)
        if low is None or high is None or extent is None or low < 0 or high >= extent:
            return False
    return True
