"""Digits of bindings: injectivity and inverses, against enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.tir import LT, IntImm, PrimExpr, Var, floordiv, floormod
from autosched.tir.expr import compare
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
        # a sum and what is left of it behind its first digits
        ([A // 6, (A % 6 * 8 + B) // 12, (A * 8 + B) % 12], {A: 12, B: 8}, True),
        ([A // 6, (A % 6 * 8 + B) // 12, (A * 8 + B) % 6], {A: 12, B: 8}, False),
        ([(A % 6 * 8 + B) // 12, (A * 8 + B) % 12], {A: 12, B: 8}, False),
        ([A // 6, (A % 3 * 8 + B) // 12, (A * 8 + B) % 12], {A: 12, B: 8}, False),
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


N, M = Var("n"), Var("m")
FLAT = A * 4 + B  # a loop over all elements, split


@pytest.mark.parametrize(
    ("exprs", "injective"),
    [
        ([FLAT // N, FLAT % N], True),
        ([FLAT // N // M, FLAT // N % M, FLAT % N], True),
        ([FLAT // 6 // N, FLAT // 6 % N, FLAT % 6], True),
        ([FLAT // N // 3, FLAT // N % 3, FLAT % N], True),
        ([FLAT // (N + M), FLAT % (N + M)], True),
        ([FLAT // N // M, FLAT % N], False),
        ([FLAT // N // M, FLAT // N % M], False),
        ([FLAT // N, FLAT % M], False),
        ([FLAT // N // 3, FLAT // N % 2, FLAT % N], False),
        ([FLAT // N, FLAT % N // 2], False),
        ([FLAT // A, FLAT % A], False),  # no symbol
    ],
)
def test_injectivity_by_sizes_that_are_open(exprs: list[PrimExpr], injective: bool) -> None:
    assert is_injective(exprs, {A: 1 << 48, B: 4}, Analyzer()) == injective


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_injectivity_by_open_sizes_is_never_claimed_wrongly(data: st.DataObject) -> None:
    """Where it is claimed, no two points have the same values, whatever the sizes are."""
    extents = {A: data.draw(st.integers(1, 6)), B: 4}
    divisors = st.sampled_from([2, 3, 4, N, M])

    def digit() -> PrimExpr:
        x: PrimExpr = FLAT
        for _ in range(data.draw(st.integers(0, 2))):
            x = floordiv(x, data.draw(divisors))
        return floormod(x, data.draw(divisors)) if data.draw(st.booleans()) else x

    exprs = [digit() for _ in range(data.draw(st.integers(1, 3)))]
    if not is_injective(exprs, {A: 1 << 48, B: 4}, Analyzer()):
        return
    for n, m in itertools.product(range(1, 6), range(1, 6)):
        found = values([substitute(e, {N: IntImm(n), M: IntImm(m)}) for e in exprs], extents)
        assert len(set(found)) == len(found), (n, m)


def test_no_inverse_by_open_sizes() -> None:
    with pytest.raises(NotAffine):
        invert([A // N, A % N], {A: 12}, [B, C])


def test_conditions_limit_what_counts() -> None:
    """Blocks of four of nine tiles: the last one is not whole, and A // 3 has three values, not four."""
    tile, extents = A * 4 + B, {A: 3, B: 4, C: 5}
    exprs = [C * 3 + floordiv(tile, 3), floormod(tile, 3)]
    analyzer = Analyzer({v: (0, n) for v, n in extents.items()})
    assert not is_injective(exprs, extents, analyzer)
    assert is_injective(exprs, extents, analyzer, [compare(LT, tile, 9)])
    assert not is_injective(exprs, extents, analyzer, [compare(LT, tile, 10)])
    assert not is_injective(exprs, extents, analyzer, [compare(LT, 8, tile)])
    alone = [C * 3 + floordiv(A, 3), floormod(A, 3)]
    assert is_injective(alone, {A: 12, C: 5}, Analyzer(), [compare(LT, A, 9)])
    assert not is_injective(alone, {A: 12, C: 5}, Analyzer())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_injectivity_below_a_limit_is_never_claimed_wrongly(data: st.DataObject) -> None:
    extents = {v: data.draw(st.integers(1, 5)) for v in (A, B, C)}
    small = st.integers(1, 6)
    whole = A * extents[B] + B
    limit = data.draw(st.integers(1, 25))
    exprs = [
        floormod(floordiv(whole, data.draw(small)), data.draw(small)) + C * data.draw(small),
        floormod(whole, data.draw(small)),
    ]
    analyzer = Analyzer({v: (0, n) for v, n in extents.items()})
    if is_injective(exprs, extents, analyzer, [compare(LT, whole, limit)]):
        every = values([*exprs, whole], extents)
        reached = [v[:-1] for v in every if v[-1] < limit]
        assert len(set(reached)) == len(reached)
