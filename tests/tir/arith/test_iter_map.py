"""Iterators as digits: detect_iter_map and what is built on it, against counting."""

from __future__ import annotations

import itertools
import random

import pytest

from autosched import arith
from autosched.errors import InvalidValueError
from autosched.ir import structural_equal
from autosched.tir import SizeVar, Var, all, const, floordiv, floormod
from autosched.tir.axis import Range
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import substitute

A, B, C = (Var(name, "int32") for name in "abc")


def evaluate(x: PrimExpr, at: dict[Var, int]) -> int:
    value = const_int(arith.Analyzer().simplify(substitute(x, {v: const(n, "int32") for v, n in at.items()})))
    assert value is not None, x
    return int(value)


def ranges(**extents: int) -> dict[Var, Range]:
    return {v: Range(0, extents[v.name]) for v in (A, B, C) if v.name in extents}


def points(doms: dict[Var, Range], predicate: PrimExpr | bool = True) -> list[dict[Var, int]]:
    every = [
        dict(zip(doms, p, strict=True))
        for p in itertools.product(*(range(const_int(r.extent) or 0) for r in doms.values()))
    ]
    return [p for p in every if isinstance(predicate, bool) or evaluate(predicate, p)]


def values(x: PrimExpr, at: list[dict[Var, int]]) -> list[int]:
    return [int(evaluate(x, p)) for p in at]


def check_by_counting(
    indices: list[PrimExpr], doms: dict[Var, Range], predicate: PrimExpr | bool = True, level: str = "surjective"
) -> bool:
    """Whether a map is found; what is found says what counting says."""
    found = arith.detect_iter_map(indices, doms, predicate, check_level=level)
    if not found.indices:
        assert found.errors
        return False
    at = points(doms, predicate)
    boxes = []
    for x, s in zip(indices, found.indices, strict=True):
        assert values(arith.normalize_iter_map_to_expr(s), at) == values(x, at)
        assert len(s.args) <= 1
        base, n = const_int(s.base), const_int(s.args[0].extent) if s.args else 1
        step = const_int(s.args[0].scale) if s.args else 1
        assert None not in (base, n, step)
        boxes.append([base + step * i for i in range(n)])  # type: ignore[operator, arg-type]
    reached = list(zip(*(values(x, at) for x in indices), strict=True))
    assert set(reached) == set(itertools.product(*boxes))
    if level == "bijective":
        assert len(reached) == len(set(reached))
    return True


@pytest.mark.parametrize("level", ["bijective", "surjective"])
def test_digits_and_fused_iterators(level: str) -> None:
    doms = ranges(a=12, b=5)
    for indices in (
        [A, B],
        [A * 5 + B],
        [A // 4, B, A % 4],
        [A // 6 * 5 + B, A % 6 // 2, A % 2],
        [(A * 5 + B) // 10, (A * 5 + B) % 10],
    ):
        assert check_by_counting(list(indices), doms, level=level)
    for indices in ([A, A], [A * 6 + B], [A // 4, A // 2, B], [B * B, A]):
        assert not check_by_counting(list(indices), doms, level=level)


def test_what_a_bijective_map_must_not_leave_out_or_repeat() -> None:
    doms = ranges(a=12, b=5)
    for indices in ([A], [A // 4, B], [A * 4 + B], [A + B]):
        assert not check_by_counting(list(indices), doms, level="bijective")
    assert check_by_counting([A], doms) and check_by_counting([A // 4, B], doms)
    assert check_by_counting([A + B], doms)  # each of 16 values, some more than once


def test_quotients_that_do_not_divide_are_padded_unless_each_value_is_wanted_once() -> None:
    for indices in ([(A + 5) // 8], [A // 7], [A % 7], [A // 3 % 4, A % 3]):
        assert check_by_counting(list(indices), ranges(a=26))
        assert not check_by_counting(list(indices), ranges(a=26), level="bijective")
    assert not check_by_counting([A % 32], ranges(a=26))
    assert not check_by_counting([A // 4, A % 4], ranges(a=26))
    found = arith.detect_iter_map([A // 7], ranges(a=26))
    assert [evaluate(found.padding_predicate, {A: i}) for i in (25, 26, 27)] == [0, 1, 1]


def test_conditions_bound_iterators() -> None:
    doms = ranges(a=13, b=10)
    flat = A * 10 + B
    for predicate in (
        flat < 128,
        flat > 5,
        all(flat >= 6, flat <= 99),
        A * 10 < 128 - B,
        all(flat < 64, flat < 90),
        A < 7,
        all(A >= 2, B < 4, flat < 90),
    ):
        check_by_counting([flat], doms, predicate)
    assert check_by_counting([flat], doms, all(flat >= 6, flat < 127))
    assert check_by_counting([A % 4, A // 4], ranges(a=64), all(A % 4 >= 1, A % 4 < 3, A // 4 >= 2), level="bijective")
    assert not check_by_counting([A, B], doms, flat < 128)


def test_random_maps_are_as_counting_says() -> None:
    rng = random.Random(3)
    n_found = 0
    for _ in range(150):
        doms = ranges(a=rng.choice((2, 3, 4, 6, 8)), b=rng.choice((1, 2, 3, 5)), c=rng.choice((2, 4)))
        flat = (A * const_int(doms[B].extent) + B) * const_int(doms[C].extent) + C  # type: ignore[operator, arg-type]
        pieces = [A, B, C, flat, A * 2 + C, B * 4 + A, flat + rng.randrange(5)]
        x = rng.choice(pieces)
        d, e = rng.choice((2, 3, 4, 6)), rng.choice((2, 3))
        indices = rng.choice(([x], [x // d, x % d], [x // d // e, x // d % e, x % d], [x % d], [x // d], [x, B]))
        limit = rng.randrange(3, 30)
        predicate = rng.choice((True, flat < limit, x < limit))
        n_found += check_by_counting(list(indices), doms, predicate, rng.choice(("bijective", "surjective")))
    assert n_found > 40


def test_symbols() -> None:
    n, m = SizeVar("n", "int32"), SizeVar("m", "int32")
    found = arith.detect_iter_map([A // n, A % n], {A: Range(0, m * n)}).indices
    assert [s.args[0].extent for s in found] == [m, n]
    (flat,) = arith.detect_iter_map([A * n + B], {A: Range(0, 4), B: Range(0, n)}).indices
    assert arith.Analyzer().can_prove_equal(flat.args[0].extent, n * 4)
    simple = arith.iter_map_simplify([A // (n * n) * (n * n) + A // n % n * n + A % n], {A: Range(0, n * n * 8)})
    assert simple[0] is A


def test_nothing_is_lost_of_an_iterator_that_does_not_begin_at_zero() -> None:
    doms = {A: Range(3, 8), B: Range(-2, 4)}
    (found,) = arith.detect_iter_map([A * 4 + B], doms, check_level="bijective").indices
    assert (const_int(found.args[0].extent), const_int(found.base)) == (32, 10)
    x = arith.normalize_iter_map_to_expr(found)
    assert [evaluate(x, {A: a, B: b}) for a in (3, 10) for b in (-2, 1)] == [10, 13, 38, 41]


def test_normalize_to_iter_sum_orders_by_factor_and_joins_digits() -> None:
    n = Var("n", "int32")
    found = arith.normalize_to_iter_sum(C * 2 + A // 3 * (n * 3) + A % 3 * n + 7, ranges(a=9, c=4))
    assert len(found.args) == 2 and structural_equal(found.args[0].scale, n) and const_int(found.args[1].scale) == 2
    assert found.args[0].source.source is A and const_int(found.base) == 7


def test_subspace_divide() -> None:
    doms = ranges(a=4, b=6, c=5)
    (outer, inner), conditions = arith.subspace_divide([(A * 6 + B) * 5 + C + 1], doms, [C])
    whole = arith.normalize_iter_map_to_expr(outer.source) * inner.extent + arith.normalize_iter_map_to_expr(
        inner.source
    )
    at = points(doms)
    assert values(whole, at) == values((A * 6 + B) * 5 + C + 1, at)
    assert [const_int(c.extent) for c in conditions] == [1, 1]
    first, second, _ = arith.subspace_divide([(A * 6 + B) // 3, (A * 6 + B) % 3], doms, [B])
    assert [const_int(m.extent) for m in (*first, *second)] == [4, 2, 1, 3]
    assert arith.subspace_divide([A * 6 + B], doms, [A]) == []
    divided = arith.subspace_divide([(A * 6 + B) * 5 + C], doms, [C], A * 6 + B < 20)
    assert str(divided[-1][0].extent) == "a * 6 + b < 20" and const_int(divided[-1][1].extent) == 1


def test_inverse() -> None:
    doms = ranges(a=16, b=4)
    indices = [A % 4 * 4 + B, A // 4]
    found = arith.detect_iter_map(indices, doms, check_level="bijective").indices
    u, v = Var("u", "int32"), Var("v", "int32")
    back = arith.inverse_affine_iter_map(found, [u, v])
    for p in points(doms):
        there = {u: values(indices[0], [p])[0], v: values(indices[1], [p])[0]}
        assert {x: int(evaluate(e, there)) for x, e in back.items()} == p
    with pytest.raises(InvalidValueError, match="outputs"):
        arith.inverse_affine_iter_map(found, [u])


def test_iter_map_simplify_keeps_what_it_does_not_understand() -> None:
    odd = floormod(A * A, const(5, "int32")) + floordiv(B, const(2, "int32"))
    (found,) = arith.iter_map_simplify([odd], ranges(a=4, b=4))
    assert values(found, points(ranges(a=4, b=4))) == values(odd, points(ranges(a=4, b=4)))


def test_unknown_level() -> None:
    with pytest.raises(InvalidValueError, match="check_level"):
        arith.detect_iter_map([A], ranges(a=4), check_level="sometimes")
