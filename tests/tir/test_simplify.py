"""The analyzer: what it simplifies, and that it never changes a value."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import tir
from autosched.tir import IntImm, PrimExpr, Var, const, floordiv, floormod
from autosched.tir.functor import substitute
from autosched.tir.simplify import Analyzer, form_key, simplify

X, Y, Z = Var("x"), Var("y"), Var("z")
RANGES = {X: (0, 6), Y: (0, 4)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (floordiv(X * 4 + Y, 4), X),
        (floormod(X * 4 + Y, 4), Y),
        (floordiv(X, 4) * 4 + floormod(X, 4), X),
        (X + Y - X, Y),
        (X * 2 + X * 3, X * 5),
        (floordiv(X * 8 + Y * 2, 4), X * 2 + floordiv(Y, 2)),
        (floordiv(floordiv(X, 2), 3), const(0)),
        (tir.minimum(X, const(10)), X),
        (tir.maximum(X, const(-1)), X),
        (floormod(X, 6), X),
        (floordiv(floormod(Z, 24), 6) * 6 + floormod(Z, 6), floormod(Z, 24)),
        (floordiv(Z, 24) * 24 + floordiv(floormod(Z, 24), 6) * 6 + floormod(Z, 6), Z),
        (floordiv(floormod(Z, 24), 6) * 6 + floormod(Z, 4), floordiv(floormod(Z, 24), 6) * 6 + floormod(Z, 4)),
        (floordiv(X * 4 + Y, 6) * 6 + floormod(X * 2 + floordiv(Y, 2), 3) * 2 + floormod(Y, 2), X * 4 + Y),
    ],
)  # fmt: skip
def test_simplifies(before: PrimExpr, after: PrimExpr) -> None:
    assert form_key(simplify(before, RANGES)) == form_key(after)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (X < 6, True),
        (X < 5, False),
        (X * 4 + Y < 24, True),
        (X >= 0, True),
        (X * 4 + Y < 23, False),
        (X - Y <= 5, True),
    ],
)
def test_proofs(condition: PrimExpr, holds: bool) -> None:
    assert Analyzer(RANGES).can_prove(condition) is holds


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_what_buffers_hold_may_wrap(dtype: str) -> None:
    """Comparisons, extrema and remainders of a sum do not follow from those of its terms."""
    data = tir.decl_buffer((8,), dtype, name="data")
    held, large = data[X], const(100, dtype)
    values = [
        tir.GT(held + large, held),
        tir.maximum(held + large, held),
        tir.maximum(tir.maximum(held, large) + large, large),
        floormod(held * large, const(7, dtype)),
    ]
    known = Analyzer(RANGES).for_values()
    assert [form_key(known.simplify(x)) for x in values] == [form_key(x) for x in values]
    inside = data[floordiv(X * 4 + Y, 4)] + large
    assert form_key(known.simplify(inside)) == form_key(held + large)
    if dtype in ("int32", "int64"):  # as indices
        assert Analyzer(RANGES).can_prove(tir.GT(held + large, held))


def test_units_can_be_kept() -> None:
    unit = {X: (0, 1)}
    assert isinstance(Analyzer(unit).simplify(X + Y), Var)
    kept = Analyzer(unit, keep_units=True)
    assert form_key(kept.simplify(X + Y)) == form_key(X + Y) and kept.can_prove(X < 1)
    assert kept.copy().keep_units


def _value(x: PrimExpr, at: dict[Var, PrimExpr]) -> int:
    result = substitute(x, at)
    assert isinstance(result, IntImm), f"{result} is not folded"
    return result.value


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_values_stay(data: st.DataObject) -> None:
    def expr(depth: int) -> PrimExpr:
        kind = data.draw(st.integers(0, 8 if depth else 2))
        if kind == 0:
            return X
        if kind == 1:
            return Y
        if kind == 2:
            return const(data.draw(st.integers(-4, 9)))
        left = expr(depth - 1)
        if kind == 3:
            return left + expr(depth - 1)
        if kind == 4:
            return left - expr(depth - 1)
        if kind == 5:
            return left * data.draw(st.integers(-3, 6))
        if kind == 6:
            return floordiv(left, data.draw(st.integers(1, 8)))
        if kind == 8:
            return data.draw(st.sampled_from((floordiv, floormod)))(left, X + data.draw(st.integers(1, 3)))
        return floormod(left, data.draw(st.integers(1, 8)))

    x = expr(4)
    analyzer = Analyzer(RANGES, keep_units=data.draw(st.booleans()))
    new, (low, high) = analyzer.simplify(x), analyzer.bound(x)
    for a, b in itertools.product(range(6), range(4)):
        at: dict[Var, PrimExpr] = {X: IntImm(a), Y: IntImm(b)}
        value = _value(x, at)
        assert _value(new, at) == value
        assert (low is None or low <= value) and (high is None or value <= high)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-4, 4),
    st.integers(-4, 4),
    st.integers(-9, 9),
    st.sampled_from((tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ)),
)
def test_what_a_condition_leaves_of_ranges(by_x: int, by_y: int, limit: int, compare: type[tir.CmpOp]) -> None:
    """No values outside of the ranges make a condition true; one that leaves a variable one value is seen."""
    fact = compare(X * by_x + Y * by_y, const(limit))
    analyzer = Analyzer(RANGES)
    analyzer.assume(fact)
    for a, b in itertools.product(range(6), range(4)):
        if substitute(fact, {X: IntImm(a), Y: IntImm(b)}).value:
            for var, value in ((X, a), (Y, b)):
                low, high = analyzer.bound(var)
                assert low <= value <= high


def test_a_tile_at_the_first_rows() -> None:
    analyzer = Analyzer(RANGES)
    analyzer.assume(X * 4 + Y < 4)
    assert form_key(analyzer.simplify(X * 4 + Y)) == form_key(Y)


def test_two_digits_side_by_side_become_one() -> None:
    """x // 2 % 3 * 2 + x % 2 is x % 6; digits that are not neighbours, or of other weights, stay two."""
    analyzer = Analyzer(RANGES)
    x = X * 5 + Y
    joined = analyzer.simplify(x // 2 % 3 * 10 + x % 2 * 5)
    assert form_key(joined) == form_key(analyzer.simplify(x % 6 * 5))
    for apart in (x // 3 % 3 * 2 + x % 2, x // 2 % 3 * 3 + x % 2):
        new = analyzer.simplify(apart)
        for a, b in itertools.product(range(6), range(4)):
            at: dict[Var, PrimExpr] = {X: IntImm(a), Y: IntImm(b)}
            assert _value(new, at) == _value(apart, at)


def test_a_variable_below_a_symbol() -> None:
    n, m = Var("n"), Var("m")
    analyzer = Analyzer({X: (0, 1 << 40), n: (1, 1 << 30), m: (1, 1 << 30)})
    analyzer.below[X] = n * 2
    known = (tir.LT(X, n * 2), tir.LT(X * 3 + 2, n * 6), tir.LE(X + 1, n * 2))
    assert all(map(analyzer.copy().can_prove, known))
    unknown = (tir.LT(X + 1, n * 2), tir.LT(X, n), tir.LT(X, m), tir.LT(n * 2 - X, const(5)), tir.LT(X * 3 + 3, n * 6))
    assert not any(map(analyzer.can_prove, unknown))
