"""Simplifies lowered statements with the ranges of their loops.

Constant conditions go, loops of one iteration become their body, conditions that do not depend on a loop move out of
it, and a condition that only shortens its loop (`for v in 8: if v < 5`) becomes the loop's extent.
"""

from __future__ import annotations

import dataclasses

from autosched.codegen.lower.loops import NOTHING, WARP_STAGES, const_range, enter, is_nothing
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import PrimExpr, Var, all_of, const_int
from autosched.tir.functor import substitute, uses
from autosched.tir.simplify import Analyzer, Linear, form_key, split_conditions
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip


def tidy(stmt: Stmt, analyzer: Analyzer | None = None) -> Stmt:
    """An equal statement, simpler where the ranges of loops allow."""
    a = analyzer or Analyzer()
    match stmt:
        case SeqStmt():
            return _factor(_sequence([tidy(s, a) for s in stmt.seq]))
        case For():
            return _loop(stmt, a)
        case IfThenElse():
            return _branch(stmt, a)
        case BufferStore():
            indices = tuple(a.simplify(i) for i in stmt.indices)
            return BufferStore(stmt.buffer, a.for_values().simplify(stmt.value), indices)
        case Allocate() | AssertStmt():
            body = tidy(stmt.body, a)
            if is_nothing(body):
                return NOTHING
            if isinstance(stmt, Allocate) and isinstance(body, IfThenElse) and body.else_case is None:
                if _may_move(body.condition, body):
                    return IfThenElse(body.condition, dataclasses.replace(stmt, body=body.then_case))
            return dataclasses.replace(stmt, body=body)
        case LetStmt():
            value = a.simplify(stmt.value)
            inner = a.copy()
            if is_int(value.dtype):
                inner.bind(stmt.var, value)
            body = tidy(stmt.body, inner)
            return NOTHING if is_nothing(body) else LetStmt(stmt.var, value, body)
        case While():
            return While(a.simplify(stmt.condition), tidy(stmt.body, a))
        case Evaluate():
            value = a.simplify(stmt.value)
            return NOTHING if const_int(value) is not None else Evaluate(value)
    return stmt


def _sequence(parts: list[Stmt]) -> Stmt:
    flat: list[Stmt] = []
    for part in parts:
        flat.extend(part.seq if isinstance(part, SeqStmt) else (part,))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def _factor(stmt: Stmt) -> Stmt:
    """Take conditions that guard every statement of a sequence out of it."""
    if not isinstance(stmt, SeqStmt) or not stmt.seq:
        return stmt
    if not all(isinstance(s, IfThenElse) and s.else_case is None for s in stmt.seq):
        return stmt
    guards = [{form_key(c): c for c in split_conditions(s.condition)} for s in stmt.seq]  # type: ignore[attr-defined]
    common = {key: c for key, c in guards[0].items() if all(key in g for g in guards) and _may_move(c, stmt)}
    if not common:
        return stmt
    parts: list[Stmt] = []
    for s, guard in zip(stmt.seq, guards, strict=True):
        assert isinstance(s, IfThenElse), "seen above"
        rest = [c for key, c in guard.items() if key not in common]
        parts.append(IfThenElse(all_of(*rest), s.then_case) if rest else s.then_case)
    return IfThenElse(all_of(*common.values()), _sequence(parts))


def _may_move(condition: PrimExpr, body: Stmt) -> bool:
    """Whether running `body` cannot change the condition."""
    read = {x.buffer for x in preorder(condition) if isinstance(x, BufferLoad)}
    return not read or not any(isinstance(x, BufferStore) and x.buffer in read for x in preorder(body))


def _loop(loop: For, a: Analyzer) -> Stmt:
    start, extent = a.simplify(loop.start), a.simplify(loop.extent)
    count = const_int(extent)
    if count is not None and count <= 0:
        return NOTHING
    if count == 1 and loop.kind != LoopKind.THREAD_BINDING and WARP_STAGES not in loop.annotations:
        body = loop.body
        if const_int(start) is None:
            return tidy(substitute(body, {loop.loop_var: start}), a)
        inner = a.copy()
        inner.bounds[loop.loop_var] = (const_int(start), const_int(start))
        return tidy(substitute(body, {loop.loop_var: E.cast(loop.loop_var.dtype, start)}), inner)
    loop = dataclasses.replace(loop, start=start, extent=extent)
    body = tidy(loop.body, enter(a, loop))
    if is_nothing(body):
        return NOTHING
    if isinstance(body, IfThenElse) and body.else_case is None:
        return _shorten(dataclasses.replace(loop, body=body), body, a)
    return dataclasses.replace(loop, body=body)


def _branch(stmt: IfThenElse, a: Analyzer) -> Stmt:
    conditions = [a.simplify(c) for c in split_conditions(stmt.condition)]
    condition = all_of(*conditions)
    value = const_int(condition)
    if value is not None:
        taken = stmt.then_case if value else stmt.else_case
        return NOTHING if taken is None else tidy(taken, a)
    then_case = tidy(stmt.then_case, a)
    else_case = None if stmt.else_case is None else tidy(stmt.else_case, a)
    if else_case is not None and is_nothing(else_case):
        else_case = None
    if else_case is None and is_nothing(then_case):
        return NOTHING
    if else_case is None and isinstance(then_case, IfThenElse) and then_case.else_case is None:
        return IfThenElse(all_of(condition, then_case.condition), then_case.then_case)
    return IfThenElse(condition, then_case, else_case)


def _shorten(loop: For, body: IfThenElse, a: Analyzer) -> Stmt:
    """A loop whose whole body is guarded: conditions without its variable move out, upper limits become its extent."""
    bounds = const_range(loop)
    kept: list[PrimExpr] = []
    outside: list[PrimExpr] = []
    end = None if bounds is None else bounds[0] + bounds[1]
    for condition in split_conditions(body.condition):
        limit = upper_limit(condition, loop.loop_var, a)
        if not uses(condition, {loop.loop_var}) and _may_move(condition, body):
            outside.append(condition)
        elif limit is not None and end is not None:
            end = min(end, limit)
        else:
            kept.append(condition)
    inner: Stmt = IfThenElse(all_of(*kept), body.then_case) if kept else body.then_case
    if bounds is not None and end is not None:
        if end <= bounds[0]:
            return NOTHING
        loop = dataclasses.replace(loop, extent=E.const(end - bounds[0], loop.extent.dtype))
    new: Stmt = dataclasses.replace(loop, body=inner)
    if end is not None and bounds is not None and end - bounds[0] == 1:
        new = tidy(new, a)
    return IfThenElse(all_of(*outside), new) if outside else new


def difference(condition: PrimExpr, a: Analyzer) -> Linear | None:
    """For an integer comparison other than == and !=: the L for which it says L <= 0; None for other conditions."""
    if not isinstance(condition, E.LT | E.LE | E.GT | E.GE) or not is_int(condition.a.dtype):
        return None
    left, right = a.linear(condition.a), a.linear(condition.b)
    if isinstance(condition, E.GT | E.GE):
        left, right = right, left
    result = Linear().add(left).add(right, -1)
    if isinstance(condition, E.LT | E.GT):
        result.const += 1
    return result


def upper_limit(condition: PrimExpr, var: Var, a: Analyzer) -> int | None:
    """The c for which the condition says `var < c`, else None."""
    form = difference(condition, a)
    if form is None or len(form.terms) != 1:
        return None
    ((coefficient, atom),) = form.terms.values()
    if atom is not var or coefficient <= 0:
        return None
    return -form.const // coefficient + 1
