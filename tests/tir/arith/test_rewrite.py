"""`Analyzer.rewrite_simplify` and its kin: each rule holds for numbers, results have TVM's form."""

from __future__ import annotations

import ast
import random

import pytest

from autosched import ir, tir
from autosched.arith import Analyzer, ModularSet, detect_linear_equation
from autosched.tir import expr as E
from autosched.tir.arith.rewrite import rules
from autosched.tir.arith.rules import RULES

x, y, z = (tir.Var(name, "int32") for name in "xyz")
p, q = (tir.Var(name, "bool") for name in "pq")
LINES = [line for line in RULES.splitlines() if line]


def _div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if a * b >= 0 else -1)


FUNCTIONS = {
    "div": _div,
    "mod": lambda a, b: a - _div(a, b) * b,
    "select": lambda c, a, b: a if c else b,
    "nonneg": lambda a: a >= 0,
    "within": lambda a, c: 0 <= a < c,
    "equal": lambda a, b: a == b,
    "constant": lambda a: True,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("line", LINES)
def test_rule_holds_for_numbers(line: str) -> None:
    left, right = line.replace(" => ", " -> ").split(" -> ")
    right, _, condition = right.partition(" if ")
    names = {n.id for n in ast.walk(ast.parse(left)) if isinstance(n, ast.Name)} - set(FUNCTIONS)
    before_code, after_code = compile(left, "left", "eval"), compile(right, "right", "eval")
    holds = compile(condition or "True", "condition", "eval")
    values = random.Random(0)
    tried = 0
    for _ in range(20000):
        numbers = {n: values.random() < 0.5 if n in "pqr" else values.randint(-12, 12) for n in sorted(names)}
        try:
            if not eval(holds, FUNCTIONS | numbers):
                continue
            before = eval(before_code, FUNCTIONS | numbers)
        except ZeroDivisionError:
            continue
        tried += 1
        assert before == eval(after_code, FUNCTIONS | numbers), (line, numbers)
        if tried == 60:
            break
    assert tried >= 3


def test_every_line_is_a_rule() -> None:
    assert sum(len(each) for each in rules().values()) == len(LINES)


REWRITTEN = [
    (tir.min(x, y) - x, "T.min(0, y - x)"),
    (x - tir.max(x + y, y), "T.min(0, x) - y"),
    (tir.min(x + 10, y + 10) - tir.min(x, y), "10"),
    (y * x + y * z, "(x + z) * y"),
    (x - x // 5 * 5, "x % 5"),
    (tir.truncdiv(x, 5) * 5 - x, "0 - T.truncmod(x, 5)"),
    (2 * (x + 1), "(x + 1) * 2"),
    ((x + 3) * 2 - 6, "x * 2"),
    (tir.min(10 - x, 10 - y), "10 - T.max(x, y)"),
    (tir.min(x // -10, y // -10), "T.max(x, y) // -10"),
    (tir.max((x + 3) // 4 * 4, x), "(x + 3) // 4 * 4"),
    ((x // 2 + 1) // 3, "(x + 2) // 6"),
    ((x + 11) % 2, "(x + 1) % 2"),
    (x // 2 < 3, "x < 6"),
    (x // 2 > 3, "7 < x"),
    (x // 4 * 4 < x, "0 < x % 4"),
    (x // 4 * 4 <= x, "T.bool(True)"),
    (x * -2 < -10, "5 < x"),
    (x + 1 <= y, "x < y"),
    (tir.all(x < 3, x >= 3), "T.bool(False)"),
    (tir.all(x <= 3, x >= 3), "x <= 3 and 3 <= x"),
    (tir.any(x < 3, x >= 3), "T.bool(True)"),
    (tir.Not(tir.all(p, q)), "not p or not q"),
    (tir.Select(p, tir.Select(p, x, y), z), "T.Select(p, x, z)"),
    (tir.Select(x > 10, 1, x) - tir.Select(x > 10, 3, z), "T.Select(10 < x, -2, x - z)"),
    (x * 4 == 9, "T.bool(False)"),
]


@pytest.mark.parametrize(("before", "after"), REWRITTEN, ids=[a for _, a in REWRITTEN])
def test_rewritten(before: E.PrimExpr, after: str) -> None:
    assert str(Analyzer().rewrite_simplify(before)) == after


CANONICAL = [
    ((2 - x) + 3, "5 - x"),
    (x - (y + x), "0 - y"),
    (y + x * 4, "x * 4 + y"),
    ((x * 8 + y) // 8, "y // 8 + x"),
    (x // 8 * 8 + x % 8 // 4 * 4 + x % 4, "x"),
    (x // 16 * 4 + x % 16 // 4, "x // 4"),
    (x // 2 * 2 % 4, "x % 4 // 2 * 2"),
    (x * y // y, "x"),
    (x * y % y, "0"),
    (tir.min(x, tir.min(x, y)), "T.min(x, y)"),
]


@pytest.mark.parametrize(("before", "after"), CANONICAL, ids=[a for _, a in CANONICAL])
def test_canonical(before: E.PrimExpr, after: str) -> None:
    assert str(Analyzer().canonical_simplify(before)) == after


def test_ranges_decide() -> None:
    ana = Analyzer()
    ana.bind(x, ir.Range(0, 16))
    assert str(ana.rewrite_simplify((y * 16 + x) // 16)) == "y"
    assert str(ana.rewrite_simplify((y * 16 + x) % 16)) == "x"
    assert str(ana.simplify(tir.truncdiv(x, 16))) == "0"
    assert str(ana.simplify(tir.if_then_else(x >= 16, y, z))) == "z"
    assert ana.const_int_bound(x >> 1).max_value == 7
    assert ana.const_int_bound(x & 7).max_value == 7
    assert (ana.const_int_bound(y & 7).min_value, ana.const_int_bound(y & 7).max_value) == (0, 7)


def test_residues() -> None:
    ana = Analyzer()
    assert ana.modular_set(tir.min(x * 4, y * 6)) == ModularSet(2, 0)
    assert ana.modular_set(tir.Select(p, x * 4 + 1, y * 6 + 3)) == ModularSet(2, 1)
    assert ana.modular_set(x * 2 * y * 3) == ModularSet(6, 0)
    assert ana.modular_set((x * 4 + 3) % 8) == ModularSet(4, 3)


def test_linear_equations_with_symbols() -> None:
    assert [str(c) for c in detect_linear_equation(x * y + 3, [x])] == ["y", "3"]
    assert [str(c) for c in detect_linear_equation(x * 4 + y * 3 + 2, [x, y])] == ["4", "3", "2"]
    assert detect_linear_equation(x * x, [x]) == []
    assert detect_linear_equation(x // 2, [x]) == []
