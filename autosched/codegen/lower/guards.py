"""Turns reductions over padded data into guarded ones: what is added only pads the sum is left out.

Before:  s = s + if_then_else(inside, x[i], 0) * w        After:  if inside: s = s + x[i] * w
Before:  s = max(s, if_then_else(inside, x[i], lowest))   After:  if inside: s = max(s, x[i])

The condition then moves out of loops, and loops are split for it, as for the guards of ragged tiles. Weights are taken
to be finite: infinity times a padding zero would have been no number.
"""

from __future__ import annotations

import math

import numpy as np

from autosched.ir.node import map_children
from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.dtypes import is_float, largest_finite
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import free_vars, loads, rewrite
from autosched.tir.stmt import BufferStore, For, IfThenElse, LoopKind, Stmt


def guard_reductions(stmt: Stmt) -> Stmt:
    """The statement with padded terms guarded, where the condition is the same in all lanes."""
    return _visit(stmt, frozenset())


def _visit(stmt: Stmt, lanes: frozenset[Var]) -> Stmt:
    if isinstance(stmt, BufferStore):
        return _guarded(stmt, lanes)
    if isinstance(stmt, For) and stmt.kind == LoopKind.VECTORIZED:
        lanes = lanes | {stmt.loop_var}
    return map_children(stmt, lambda c: _visit(c, lanes) if isinstance(c, Stmt) else c)


def _guarded(store: BufferStore, lanes: frozenset[Var]) -> Stmt:
    value = store.value
    if not isinstance(value, E.Add | E.Max) or not is_own(value.a, store):
        return store
    term, choice = value.b, _choice(value.b)
    if choice is None or not _is_neutral(choice.args[2], value):
        return store
    if isinstance(value, E.Max) and term is not choice:
        return store
    condition, kept = choice.args[0], choice.args[1]
    if free_vars(condition) & lanes or loads(condition):
        return store
    new = rewrite(term, lambda x: kept if x is choice else x)
    return IfThenElse(condition, BufferStore(store.buffer, type(value)(value.a, new), store.indices))


def _choice(term: PrimExpr) -> E.Call | None:
    """The `if_then_else` that is the term, or a factor of it."""
    if isinstance(term, E.Call):
        return term if term.op == "if_then_else" else None
    if isinstance(term, E.Cast):
        return _choice(term.value)
    if isinstance(term, E.Mul):
        found = [c for c in (_choice(term.a), _choice(term.b)) if c is not None]
        return found[0] if len(found) == 1 else None
    return None


def _is_neutral(padding: PrimExpr, update: E.Add | E.Max) -> bool:
    """Whether the value outside leaves the reduction as it is."""
    if not isinstance(padding, E.FloatImm | E.IntImm):
        return False
    if isinstance(update, E.Add):
        return padding.value == 0
    return padding.value in (-math.inf, _lowest(padding.dtype))


def _lowest(dtype: str) -> float:
    """The least finite number of a type."""
    return -largest_finite(dtype) if is_float(dtype) else int(np.iinfo(dtype).min)
