"""Assertions become statements that kernels run: one that does not hold is reported, as a position out of range is.

Before:  T.Assert(n > 0, "empty"); rest       After:  assert_holds(n > 0, "n > 0, empty"); rest
"""

from __future__ import annotations

from typing import TypeVar

from autosched.tir.expr import Call, IntImm, StringImm
from autosched.tir.functor import rewrite
from autosched.tir.stmt import AssertStmt, Evaluate, Stmt, seq

ASSERT = "assert_holds"  # assert_holds(condition, what the message says)
S = TypeVar("S", bound=Stmt)


def lower_asserts(body: S) -> S:
    """A statement whose assertions are calls of `assert_holds` before what they stood around; true ones are gone."""
    return rewrite(body, _lowered)


def _lowered(x: object) -> object:
    if not isinstance(x, AssertStmt):
        return x
    if isinstance(x.condition, IntImm) and x.condition.value:
        return x.body
    what = f"{x.condition}, {x.message}" if x.message else str(x.condition)
    return seq(Evaluate(Call(ASSERT, (x.condition, StringImm(what)), "int32")), x.body)
