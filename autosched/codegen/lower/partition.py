"""Splits loops whose last iterations are ragged into full ones without conditions and the rest.

Before:  for i_o in 22: for i in unroll(6): if i_o * 6 + i < 130: …
After:   for i_o in 21: for i in unroll(6): …
         for i in unroll(4): … with i_o = 21
A parallel loop, or one of several that make up a condition together, gets `if full: … else: …` in its body instead.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from autosched.codegen.lower.loops import const_range, enter
from autosched.codegen.lower.tidy import difference, tidy
from autosched.ir.node import Node, children, map_children
from autosched.tir import expr as E
from autosched.tir.expr import IntImm, PrimExpr, Var, all_of
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.simplify import Analyzer, Linear, fold, form_key, split_conditions
from autosched.tir.stmt import Allocate, For, IfThenElse, LoopKind, SeqStmt, Stmt, seq

MOST_SPLITS = 12  # each may double the code below its loop

_SCALAR = (LoopKind.SERIAL, LoopKind.PARALLEL)


@dataclass(slots=True)
class _Condition:
    """A comparison that says outer + inner <= 0, where `outer` is fixed in one iteration of the loop."""

    expr: PrimExpr
    outer: Linear
    inner: Linear
    inner_low: int
    inner_high: int


@dataclass(slots=True)
class _Budget:
    left: int = MOST_SPLITS


def partition_loops(stmt: Stmt) -> Stmt:
    """The statement with ragged loops split."""
    return tidy(_visit(stmt, Analyzer(), (), _Budget()))


def _visit(stmt: Stmt, a: Analyzer, loops: tuple[For, ...], budget: _Budget) -> Stmt:
    if isinstance(stmt, For):
        if stmt.kind in _SCALAR and budget.left > 0:
            split = _split_loop(stmt, a, loops, budget)
            if split is not None:
                budget.left -= 1
                return _visit(tidy(split, a), a, loops, budget)
        inner = enter(a, stmt)
        return dataclasses.replace(stmt, body=_visit(stmt.body, inner, (*loops, stmt), budget))
    return map_children(stmt, lambda c: _visit(c, a, loops, budget) if isinstance(c, Stmt) else c)


def _split_loop(loop: For, a: Analyzer, loops: tuple[For, ...], budget: _Budget) -> Stmt | None:
    for condition in _conditions(loop.body, enter(a, loop), (*loops, loop), len(loops)):
        new = _by_range(loop, condition) if loop.kind == LoopKind.SERIAL else None
        if new is None:
            new = _by_test(loop, condition, enter(a, loop))
        if new is not None:
            return new
    return None


def _conditions(node: Node, a: Analyzer, loops: tuple[For, ...], at: int) -> list[_Condition]:
    """The comparisons below a loop (the one at position `at` of `loops`) that this loop is to be split for."""
    if isinstance(node, For):
        return _conditions(node.body, enter(a, node), (*loops, node), at)
    found: list[_Condition] = []
    if isinstance(node, IfThenElse) and node.else_case is None:
        for c in split_conditions(node.condition):
            condition = _analyse(c, a, loops, at)
            if condition is not None:
                found.append(condition)
    for child in children(node):
        if isinstance(child, Stmt):
            found += _conditions(child, a, loops, at)
    return found


def _analyse(c: PrimExpr, a: Analyzer, loops: tuple[For, ...], at: int) -> _Condition | None:
    used = free_vars(c)
    positions = [i for i, loop in enumerate(loops) if loop.loop_var in used]
    if at not in positions or at != _split_position(positions, loops):
        return None
    form = difference(c, a)
    if form is None:
        return None
    inner_vars = {loop.loop_var for loop in loops[at + 1 :]}
    outer, inner = Linear(), Linear(form.const)
    for key, (coefficient, atom) in form.terms.items():
        atom_vars = free_vars(atom)
        if not atom_vars & inner_vars:
            outer.terms[key] = (coefficient, atom)
        elif atom_vars <= inner_vars:
            inner.terms[key] = (coefficient, atom)
        else:
            return None
    low, high = a._linear_bound(inner)
    return None if low is None or high is None or not outer.terms else _Condition(c, outer, inner, low, high)


def _split_position(positions: list[int], loops: tuple[For, ...]) -> int | None:
    """Which loop to split: the innermost scalar one outside the tile's unrolled and vectorised loops."""
    scalar = [i for i in positions if loops[i].kind in _SCALAR]
    if len(scalar) == len(positions):
        return scalar[-2] if len(scalar) > 1 else None
    return scalar[-1] if scalar else None


def _by_range(loop: For, c: _Condition) -> Stmt | None:
    """Two loops, where the condition depends on this loop's variable and inner ones alone."""
    bounds = const_range(loop)
    if bounds is None or len(c.outer.terms) != 1:
        return None
    start, end = bounds[0], bounds[0] + bounds[1]
    ((k, atom),) = c.outer.terms.values()
    if atom is not loop.loop_var:
        return None
    if k > 0:  # k * o + inner <= 0 holds for all inner values below some o
        cut = min(max(-c.inner_high // k + 1, start), end)
        parts = [(start, cut, True), (cut, end, False)]
    else:
        cut = min(max(-(-c.inner_high // -k), start), end)
        parts = [(start, cut, False), (cut, end, True)]
    if any(low == high for low, high, full in parts if full):
        return None
    return seq(*(_piece(loop, low, high, c, full) for low, high, full in parts if low < high))


def _piece(loop: For, low: int, high: int, c: _Condition, full: bool) -> Stmt:
    body = replace_condition(loop.body, c.expr, IntImm(1, "bool")) if full else loop.body
    dtype = loop.extent.dtype
    return dataclasses.replace(loop, start=E.const(low, dtype), extent=E.const(high - low, dtype), body=body)


def _by_test(loop: For, c: _Condition, a: Analyzer) -> Stmt | None:
    """`if full: …  else: …` inside the loop; with one ragged value of the outer part, it is a constant there."""
    low, high = a._linear_bound(c.outer)
    if low is None or high is None or -c.inner_high < low:
        return None
    dtype = c.expr.a.dtype  # type: ignore[attr-defined]
    full = E.compare(E.LE, c.outer.build(dtype), E.const(-c.inner_high, dtype))
    step = math.gcd(*(k for k, _ in c.outer.terms.values()))
    ragged = [v for v in range((-c.inner_high // step + 1) * step, high + 1, step)][:2]
    if not ragged:
        return dataclasses.replace(loop, body=replace_condition(loop.body, c.expr, IntImm(1, "bool")))
    rest: Any = c.expr
    if len(ragged) == 1:
        rest = E.compare(E.LE, c.inner.build(dtype), E.const(-ragged[0], dtype))
    outside, stmt = _allocations(loop.body)
    body: Stmt = IfThenElse(
        full, replace_condition(stmt, c.expr, IntImm(1, "bool")), replace_condition(stmt, c.expr, rest)
    )
    if len(ragged) > 1 and rest is c.expr:
        body = IfThenElse(full, replace_condition(stmt, c.expr, IntImm(1, "bool")), _settled(stmt, c.expr))
    for allocation in outside:
        body = dataclasses.replace(allocation, body=body)
    return dataclasses.replace(loop, body=body)


def _allocations(body: Stmt) -> tuple[list[Allocate], Stmt]:
    """Allocations in scratch memory stay outside the test, so that both cases share them."""
    found: list[Allocate] = []
    while isinstance(body, Allocate) and body.buffer.scope != "local":
        found.insert(0, body)
        body = body.body
    return found, body


def _settled(stmt: Stmt, condition: PrimExpr) -> Stmt:
    """The statement with the condition in a form that is not split again."""
    return replace_condition(stmt, condition, E.logical_not(E.Not(condition)))


def replace_condition(stmt: Stmt, condition: PrimExpr, new: PrimExpr) -> Stmt:
    """Replace a conjunct of the conditions of `if` statements, wherever it occurs in its form."""
    key = form_key(condition)

    def step(node: Any) -> Any:
        if not isinstance(node, IfThenElse):
            return fold(node) if isinstance(node, PrimExpr) else node
        parts = list(split_conditions(node.condition))
        if not any(form_key(p) == key for p in parts):
            return node
        return dataclasses.replace(node, condition=all_of(*(new if form_key(p) == key else p for p in parts)))

    return rewrite(stmt, step)


__all__ = ["SeqStmt", "Var", "partition_loops", "replace_condition"]
