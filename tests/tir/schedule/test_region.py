"""Intervals of index expressions, against enumeration."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.tir import IntImm, PrimExpr, Var, const, floordiv, floormod
from autosched.tir.functor import substitute
from autosched.tir.schedule.region import Interval, clip, hull, interval_of
from autosched.tir.simplify import Analyzer

OUTER, LEFT, RIGHT = Var("o"), Var("i"), Var("j")
RANGES = {OUTER: 5, LEFT: 3, RIGHT: 4}
INNER = frozenset({LEFT, RIGHT})


def number(x: PrimExpr, **at: int) -> int:
    values = {v: IntImm(at[v.name]) for v in RANGES if v.name in at}
    result = Analyzer().simplify(substitute(x, values))
    assert isinstance(result, IntImm)
    return result.value


def check(x: PrimExpr, *, exact: bool) -> None:
    found = interval_of(x, INNER, Analyzer({v: (0, n) for v, n in RANGES.items()}))
    assert found is not None
    for o in range(5):
        reached = {number(x, o=o, i=i, j=j) for i in range(3) for j in range(4)}
        base = number(found.base, o=o)
        assert base <= min(reached) and max(reached) < base + found.width
        if exact:
            assert (base, found.width) == (min(reached), max(reached) - min(reached) + 1)


def test_affine_expressions_are_exact() -> None:
    for x in (
        OUTER * 4 + RIGHT,
        OUTER * 3 + LEFT + RIGHT - 1,
        OUTER * 2 - RIGHT,
        LEFT * 2 + RIGHT,
        OUTER + 3,
        (OUTER * 4 + RIGHT) // 4,
        (OUTER * 4 + RIGHT) // 2,
        (OUTER * 4 + RIGHT) % 4,
    ):
        check(x, exact=True)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nothing_is_missed(data: st.DataObject) -> None:
    small = st.integers(-3, 5)
    x: PrimExpr = OUTER * data.draw(small) + LEFT * data.draw(small) + RIGHT * data.draw(small) + data.draw(small)
    for _ in range(data.draw(st.integers(0, 2))):
        x = (floordiv if data.draw(st.booleans()) else floormod)(x, data.draw(st.integers(1, 5)))
        x = x + OUTER * data.draw(small) if data.draw(st.booleans()) else x
    check(x, exact=False)


def test_clip() -> None:
    size = const(8)

    clipped = clip(Interval(const(-1), 4), size)
    assert clipped is not None and (clipped.const_base, clipped.width) == (0, 3)
    whole = clip(Interval(OUTER * 4, 9), size)
    assert whole is not None and (whole.const_base, whole.width) == (0, 8)
    nothing = clip(None, size)
    assert nothing is not None and nothing.width == 8
    assert clip(None, Var("n")) is None


def test_hull() -> None:
    analyzer = Analyzer({OUTER: (0, 5)})
    joined = hull(Interval(OUTER * 2, 3), Interval(OUTER * 2 + 2, 3), analyzer)
    assert joined is not None and joined.width == 5
    assert hull(Interval(OUTER, 1), Interval(OUTER * 2, 1), analyzer) is None
