"""Digits of bindings: injectivity and inverses, against enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.tir import IntImm, PrimExpr, Var, floordiv, floormod
from autosched.tir.functor import substitute
from autosched.tir.schedule.iter_map import NotAffine, invert, is_injective
from autosched.tir.simplify import Analyzer

A, B, C = Var("a"), Var("b"), Var("c")


def values(exprs: list[PrimExpr], variables: dict[Var, int]) -> list[tuple[int, ...]]:
    """What the expressions are at every point."""
    points = itertools.product(*(range(n) for n in variables.values()))
    analyzer = Analyzer()
    result = []
    for p in points:
        at = {v: IntImm(x) for v, x in zip(variables, p, strict=True)}
        row = [analyzer.simplify(substitute(e, at)) for e in exprs]
        assert all(isinstance(x, IntImm) for x in row)
        result.append(tuple(x.value for x in row))  # type: ignore[attr-defined]
    return result


@pytest.mark.parametrize(
    ("exprs", "extents", "injective"),
    [
        ([A], {A: 4}, True),
        ([A * 4 + B], {A: 3, B: 4}, True),
        ([A * 3 + B], {A: 3, B: 4}, False),  # halo: neighbouring tiles overlap
        ([A], {A: 4, B: 2}, False),  # b does not matter
        ([A], {A: 4, B: 1}, True),
        ([A // 9, A % 9], {A: 63}, True),
        ([A // 9], {A: 63}, False),
        ([A // 12, A // 3 % 4, A % 3], {A: 60}, True),
        ([A // 12, A % 3], {A: 60}, False),
        ([(A * 8 + B) // 9, (A * 8 + B) % 9], {A: 8, B: 8}, True),
        ([(A * 8 + B) // 9], {A: 8, B: 8}, False),
        ([A + B], {A: 4, B: 4}, False),
        ([A * 4 + B, C * 2 + A % 2], {A: 2, B: 4, C: 3}, True),
        ([A * A], {A: 4}, False),  # true, and not proven
        # sums that a common factor was divided out of, as fusing and splitting leaves them
        ([(A * 12 + B) // 20, (A * 3 + B // 4) % 5, B % 4], {A: 5, B: 12}, True),
        ([(A * 12 + B) // 20, B % 4], {A: 5, B: 12}, False),
        ([(A * 2 + B // 4) // 7, (A * 4 + B // 2) % 14, B % 2], {A: 28, B: 8}, True),
        ([(A * 2 + B // 4) // 7, (A * 4 + B // 2) % 14], {A: 28, B: 8}, False),
        ([(A * 2 + B // 4) // 7, (A * 4 + B // 2) % 7, B % 2], {A: 28, B: 8}, False),
    ],
)
def test_injectivity(exprs: list[PrimExpr], extents: dict[Var, int], injective: bool) -> None:
    analyzer = Analyzer({v: (0, n) for v, n in extents.items()})
    assert is_injective(exprs, extents, analyzer) is injective
    if injective:
        reached = values(exprs, extents)
        assert len(set(reached)) == len(reached)


def test_a_shift_by_something_constant() -> None:
    """(c + y) % m tells y where y is below m, whatever c is."""
    for extent, injective in ((32, True), (14 * 8, True), (15 * 8, False)):
        analyzer = Analyzer({B: (0, extent), C: (0, 100)})
        exprs = [floordiv(C * 4 + floordiv(B, 8), 14), floormod(C * 4 + floordiv(B, 8), 14), floormod(B, 8)]
        assert is_injective(exprs, {B: extent}, analyzer) is injective
    with pytest.raises(NotAffine):
        invert([floormod(C * 4 + B, 14)], {B: 8}, [A])


def test_outer_variables_are_constants() -> None:
    analyzer = Analyzer({A: (0, 4), B: (0, 8)})
    assert is_injective([A * 3 + B], {B: 8}, analyzer)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_injectivity_is_never_claimed_wrongly(data: st.DataObject) -> None:
    extents = {v: data.draw(st.integers(1, 6)) for v in (A, B)}
    small = st.integers(1, 6)

    def expr() -> PrimExpr:
        x: PrimExpr = A * data.draw(st.integers(0, 6)) + B * data.draw(st.integers(0, 6)) + data.draw(st.integers(0, 2))
        for _ in range(data.draw(st.integers(0, 2))):
            x = (floordiv if data.draw(st.booleans()) else floormod)(x, data.draw(small))
        return x

    exprs = [expr() for _ in range(data.draw(st.integers(1, 2)))]
    if is_injective(exprs, extents, Analyzer({v: (0, n) for v, n in extents.items()})):
        reached = values(exprs, extents)
        assert len(set(reached)) == len(reached)


@pytest.mark.parametrize(
    ("exprs", "extents"),
    [
        ([A // 4, B, A % 4], {A: 8, B: 3}),
        ([A * 5 + B], {A: 3, B: 5}),
        ([A // 4, B, A % 4], {A: 7, B: 3}),
        ([B, A], {A: 4, B: 5}),
        ([(A * 3 + B) // 4, (A * 3 + B) % 4], {A: 4, B: 3}),
        ([A + 2], {A: 4}),
        ([A // 6, A // 2 % 3, A % 2], {A: 12}),
    ],
)
def test_inverse(exprs: list[PrimExpr], extents: dict[Var, int]) -> None:
    into = [Var(f"y{i}") for i in range(len(exprs))]
    back = invert(exprs, extents, into)
    analyzer = Analyzer()
    for point, image in zip(
        itertools.product(*(range(n) for n in extents.values())), values(exprs, extents), strict=True
    ):
        at = {v: IntImm(x) for v, x in zip(into, image, strict=True)}
        assert [analyzer.simplify(substitute(x, at)).value for x in back] == list(point)  # type: ignore[attr-defined]


@pytest.mark.parametrize("exprs", [[A // 2], [A % 2, A % 4], [A * 0]])
def test_no_inverse(exprs: list[PrimExpr]) -> None:
    with pytest.raises(NotAffine):
        invert(exprs, {A: 8}, [Var("y") for _ in exprs])
