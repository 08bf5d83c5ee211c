"""Simplification of a whole function, with what loops, blocks and conditions around a place say of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

from autosched.ir.node import map_children, preorder
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite_down
from autosched.tir.schedule.tree import bind_loop
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import AssertStmt, Block, BufferStore, Evaluate, For, IfThenElse, Stmt

_NEGATED: dict[type, type[E.CmpOp]] = {
    E.LT: E.GE, E.GE: E.LT, E.LE: E.GT, E.GT: E.LE, E.EQ: E.NE, E.NE: E.EQ,
}  # fmt: skip


def simplify_function(func: PrimFunc) -> PrimFunc:
    """Simplify expressions, knowing the ranges of loops and blocks and the conditions around them.

    if i < 4:
        if i < 8: A[i] = 0      ->  if i < 4: A[i] = 0
    """
    return func.with_body(_Known(Analyzer(keep_units=True)).stmt(func.body))


class _Known:
    """What holds at a place: ranges of variables, and conditions by their form."""

    def __init__(self, analyzer: Analyzer, truths: dict[Hashable, bool] | None = None):
        self.analyzer, self.truths = analyzer, truths or {}

    def copy(self) -> _Known:
        return _Known(self.analyzer.copy(), dict(self.truths))

    def where(self, condition: PrimExpr, holds: bool) -> _Known:
        """What holds where a condition does, or does not."""
        inner = self.copy()
        facts = split_conditions(condition) if holds else [condition]
        for fact in facts:
            if any(isinstance(x, BufferLoad | E.Call) for x in preorder(fact)):
                continue  # what memory holds may change on the way
            inner.truths[form_key(fact)] = holds
            opposite = _negated(fact)
            inner.truths[form_key(opposite)] = not holds
            inner.analyzer.assume(fact if holds else opposite)
        return inner

    def expr(self, x: PrimExpr) -> PrimExpr:
        """The expression, its choices seen with what their conditions say."""

        def step(node: object) -> object:
            if isinstance(node, E.Select):
                arms = node.condition, node.true_value, node.false_value
                return self._choice(*arms, E.select)
            if isinstance(node, E.Call) and node.op == "if_then_else":
                return self._choice(node.args[0], node.args[1], node.args[2], E.if_then_else)
            return None

        return self._decided(self.analyzer.simplify(rewrite_down(x, step)))

    def _choice(
        self, condition: PrimExpr, yes: PrimExpr, no: PrimExpr, make: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    ) -> PrimExpr:
        known = self.expr(condition)
        if isinstance(known, IntImm):
            return self.expr(yes if known.value else no)
        return make(known, self.where(known, True).expr(yes), self.where(known, False).expr(no))

    def _decided(self, x: PrimExpr) -> PrimExpr:
        if x.dtype != "bool":
            return x
        if isinstance(x, E.And | E.Or):
            a, b = self._decided(x.a), self._decided(x.b)
            return x if a is x.a and b is x.b else (E.logical_and if isinstance(x, E.And) else E.logical_or)(a, b)
        truth = self.truths.get(form_key(x))
        return x if truth is None else E.const(truth, "bool")

    def stmt(self, x: object) -> Any:
        """A statement, or any node below one."""
        if isinstance(x, PrimExpr) and not isinstance(x, E.Var):
            return self.expr(x)
        if isinstance(x, Buffer | IterVar | E.Var):
            return x
        inner = self
        match x:
            case For():
                inner = self.copy()
                bind_loop(inner.analyzer, x)
            case Block():
                inner = self.copy()
                for iv in x.iter_vars:
                    inner.analyzer.bind(iv.var, iv.dom)
            case IfThenElse():
                return self._branch(x)
            case BufferStore():
                inner = _Known(self.analyzer.for_values(), dict(self.truths))
                return dataclasses.replace(x, value=inner.stmt(x.value), indices=tuple(map(self.stmt, x.indices)))
            case AssertStmt():
                condition = self.expr(x.condition)
                body = self.where(condition, True).stmt(x.body)
                return dataclasses.replace(x, condition=condition, body=body)
        return map_children(x, inner.stmt)

    def _branch(self, x: IfThenElse) -> Stmt:
        condition = self.expr(x.condition)
        if isinstance(condition, IntImm):
            taken = x.then_case if condition.value else x.else_case
            return Evaluate(IntImm(0)) if taken is None else self.stmt(taken)
        then = self.where(condition, True).stmt(x.then_case)
        other = None if x.else_case is None else self.where(condition, False).stmt(x.else_case)
        if condition is x.condition and then is x.then_case and other is x.else_case:
            return x
        return IfThenElse(condition, then, other)


def _negated(condition: PrimExpr) -> PrimExpr:
    kind = _NEGATED.get(type(condition))
    if kind is not None and isinstance(condition, E.CmpOp):
        return kind(condition.a, condition.b)
    return condition.a if isinstance(condition, E.Not) else E.logical_not(condition)
