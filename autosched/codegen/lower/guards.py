"""Turns reductions over padded data into guarded ones: what is added only pads the sum is left out.

Before:  s = s + if_then_else(inside, x[i], 0) * w        After:  if inside: s = s + x[i] * w
Before:  s = max(s, if_then_else(inside, x[i], lowest))   After:  if inside: s = max(s, x[i])

The condition then moves out of loops, and loops are split for it, as for the guards of ragged tiles. Weights are taken
to be finite: infinity times a padding zero would have been no number. In loops that are split for open sizes
(FULL_APART) a condition may differ between lanes.
"""

from __future__ import annotations

import math

import numpy as np

from autosched.codegen.lower.partition import FULL_APART
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


def _visit(stmt: Stmt, lanes: frozenset[Var], is_apart: bool = False) -> Stmt:
    """lanes: variables of vectors in which a condition must not differ."""
    if isinstance(stmt, BufferStore):
        return _guarded(stmt, lanes)
    if isinstance(stmt, For) and stmt.annotations.get(FULL_APART):
        is_apart = True
    if isinstance(stmt, For) and stmt.kind == LoopKind.VECTORIZED and not is_apart:
        lanes = lanes | {stmt.loop_var}
    return map_children(stmt, lambda c: _visit(c, lanes, is_apart) if isinstance(c, Stmt) else c)


def _guarded(store: BufferStore, lanes: frozenset[Var]) -> Stmt:
    value = store.value
    if not isinstance(value, E.Add | E.Max | E.Min | E.Mul) or not is_own(value.a, store):
        return store
    term, choice = value.b, _choice(value.b)
    if choice is None or not _is_neutral(choice.args[2], value):
        return store
    if not isinstance(value, E.Add) and term is not choice:
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


def _is_neutral(padding: PrimExpr, update: E.Add | E.Max | E.Min | E.Mul) -> bool:
    """Whether the value outside leaves the reduction as it is."""
    if not isinstance(padding, E.FloatImm | E.IntImm):
        return False
    if isinstance(update, E.Add | E.Mul):
        return padding.value == int(isinstance(update, E.Mul))
    least, most = _range(padding.dtype)
    return padding.value in ((-math.inf, least) if isinstance(update, E.Max) else (math.inf, most))


def _range(dtype: str) -> tuple[float, float]:
    """The least and the largest finite number of a type."""
    if is_float(dtype):
        return -largest_finite(dtype), largest_finite(dtype)
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
