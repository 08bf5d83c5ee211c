"""Conditions without some of their loops, compared with trying all values."""

from __future__ import annotations

import pytest

from autosched.tir import PrimExpr, Var
from autosched.tir import expr as E
from autosched.tir.functor import substitute
from autosched.tir.schedule.project import holds_somewhere
from autosched.tir.simplify import Analyzer

ROW, K, L = Var("i"), Var("k"), Var("l")
ANALYZER = Analyzer({ROW: (0, 9), K: (0, 4), L: (0, 3)})


def holds(condition: PrimExpr, **values: int) -> bool:
    named = {v: E.const(values[v.name]) for v in (ROW, K, L) if v.name in values}
    return bool(Analyzer().simplify(substitute(condition, named)))


@pytest.mark.parametrize(
    "condition",
    [
        ROW * 4 + K < 30, ROW * 4 - K < 20, ROW - K * 2 + L >= 5, E.compare(E.LE, 12, ROW * 2 + K), K * 3 + L < 10,
        ROW * 2 + K // 2 > 12, ROW < 5,
    ],
)  # fmt: skip
def test_exists(condition: PrimExpr) -> None:
    seen = holds_somewhere(condition, {K, L}, ANALYZER)
    assert seen is not None
    for i in range(9):
        expected = any(holds(condition, i=i, k=k, l=x) for k in range(4) for x in range(3))
        assert holds(seen, i=i) == expected


@pytest.mark.parametrize("condition", [(ROW + K) // 2 < 3, ROW.equal(K), E.any_of(ROW < 3, K < 2)])
def test_unknown(condition: PrimExpr) -> None:
    assert holds_somewhere(condition, {K, L}, ANALYZER) is None
