"""`detect_iter_map` and what is built on it: whether indices are independent digits of their iterators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.errors import InvalidTypeError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.arith.analyzer import Analyzer
from autosched.tir.arith.iter_conditions import bounds_of, narrowed
from autosched.tir.arith.iter_mapper import IterMapLevel, Mapper, NoMap
from autosched.tir.arith.iter_nodes import IterSplitExpr, IterSumExpr, normalize_iter_map_to_expr
from autosched.tir.axis import Range
from autosched.tir.expr import ExprLike, PrimExpr, Var, const_int


@dataclass(frozen=True, slots=True)
class IterMapResult:
    """What `detect_iter_map` found.

    indices            a sum for each index; empty where the map is not of the kind that was asked for
    errors             why
    padding_predicate  holds for values of the iterators that only padding reaches
    """

    indices: tuple[IterSumExpr, ...]
    errors: tuple[str, ...]
    padding_predicate: PrimExpr


def _divides_unevenly(x: PrimExpr) -> bool:
    """`x % 255 // 16`: the remainder's last part is shorter."""
    return any(
        isinstance(n, E.FloorDiv) and isinstance(n.a, E.FloorMod)
        and None not in (a := const_int(n.a.b), b := const_int(n.b)) and a % b  # type: ignore[operator]
        for n in preorder(x)
    )  # fmt: skip


def _size(x: PrimExpr) -> int:
    return sum(1 for _ in preorder(x))


def level_of(check_level: IterMapLevel | str | int) -> IterMapLevel:
    """A level given in any of its forms. Raises InvalidValueError."""
    return IterMapLevel.from_str(check_level) if isinstance(check_level, str) else IterMapLevel(check_level)


def ranges_of(input_iters: Mapping[Var, Range]) -> dict[Var, Range]:
    """The iterators, checked. Raises InvalidTypeError."""
    for v, r in input_iters.items():
        if not isinstance(v, Var) or not isinstance(r, Range):
            raise InvalidTypeError("input_iters: expected a mapping from Var to Range")
    return dict(input_iters)


def _mapper(
    input_iters: Mapping[Var, Range], predicate: PrimExpr, level: IterMapLevel, analyzer: Analyzer, drops_units: bool
) -> Mapper:
    ranges, rest = narrowed(bounds_of(predicate, input_iters), input_iters, analyzer)
    mapper = Mapper(analyzer, level)
    for v, r in ranges.items():
        mapper.add_iterator(v, r, drops_units=drops_units)
    for x, low, high in sorted(rest, key=lambda c: _size(c[0])):
        mapper.bound(x, low, high)
        if mapper.errors:
            raise NoMap(mapper.errors[0])
    return mapper


def map_of(
    indices: Sequence[PrimExpr], input_iters: Mapping[Var, Range], predicate: PrimExpr, level: IterMapLevel,
    analyzer: Analyzer, drops_units: bool, *, merges_padding: bool,
) -> tuple[Mapper, tuple[IterSumExpr, ...]]:  # fmt: skip
    """(what knows the splits, a sum for each index). Raises NoMap where the indices are no map of that level."""
    mapper = _mapper(input_iters, predicate, level, analyzer, drops_units)
    mapper.merges_padding = merges_padding
    if level != IterMapLevel.NoCheck and any(map(_divides_unevenly, indices)):
        raise NoMap("a quotient of a remainder that it does not divide")
    for _ in range(8):
        mapper.restart()
        sums = tuple(mapper.fuse(mapper.as_sum(mapper.rewrite(x))) for x in indices)
        if mapper.errors:
            raise NoMap(mapper.errors[0])
        if not mapper.grew:
            break
    if level != IterMapLevel.NoCheck:
        mapper.check(sums)
    return mapper, sums


def detect_iter_map(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """Each index as one split of iterators that are independent of each other.

    indices      expressions of the iterators; other variables count as constants
    predicate    what holds of the iterators: comparisons of such expressions with bounds
    check_level  "bijective", "surjective" or "nocheck"

        detect_iter_map([x * 10 + y], {x: Range(0, 13), y: Range(0, 10)}, x * 10 + y < 128)  ->  one split of extent 128
    """
    ranges, level = ranges_of(input_iters), level_of(check_level)
    found = [E.to_expr(x) for x in indices]
    condition = E.to_expr(predicate)
    false = E.const(False, "bool")
    why = ""
    for merges_padding in (True, False):
        known = knowing(ranges, analyzer)
        try:
            mapper, sums = map_of(
                found, ranges, condition, level, known, simplify_trivial_iterators, merges_padding=merges_padding
            )
        except NoMap as e:
            why = why or str(e)
            continue
        return IterMapResult(sums, (), mapper.padding())
    return IterMapResult((), (f"the indices are not {level.name.lower()}: {why}",), false)


def knowing(ranges: Mapping[Var, Range], analyzer: Analyzer | None) -> Analyzer:
    """An analyzer that knows the iterators, and what the given one does."""
    known = analyzer.copy() if analyzer is not None else Analyzer()
    for v, r in ranges.items():
        known.bind(v, r, allow_override=True)
    return known


def normalize_to_iter_sum(
    index: ExprLike, input_iters: Mapping[Var, Range], analyzer: Analyzer | None = None
) -> IterSumExpr:
    """An index as a sum of splits by falling factors; what is no such sum goes into the base."""
    ranges = ranges_of(input_iters)
    mapper = Mapper(knowing(ranges, analyzer), IterMapLevel.NoCheck)
    for v, r in ranges.items():
        mapper.add_iterator(v, r, drops_units=True)
    found = mapper.as_sum(mapper.rewrite(E.to_expr(index)))
    return IterSumExpr(tuple(_by_factor(found.args)), found.base)


def _by_factor(args: Sequence[IterSplitExpr]) -> list[IterSplitExpr]:
    """Splits with more symbols in their factor first, then those with larger numbers."""

    def rank(s: IterSplitExpr) -> tuple[int, int]:
        symbols, number = 0, 1
        queue = [s.scale]
        while queue:
            x = queue.pop()
            if isinstance(x, E.Mul):
                queue += [x.a, x.b]
            elif (c := const_int(x)) is not None:
                number *= c
            else:
                symbols += 1
        return -symbols, -number

    return sorted(args, key=rank)


def iter_map_simplify(
    indices: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[PrimExpr]:
    """The indices, simpler where they are sums of digits: `x // n * n + x % n` is x."""
    ranges, found = ranges_of(input_iters), [E.to_expr(x) for x in indices]
    together = detect_iter_map(found, ranges, predicate, check_level, simplify_trivial_iterators, analyzer)
    if together.indices and const_int(together.padding_predicate) == 0:
        return [normalize_iter_map_to_expr(x) for x in together.indices]
    result: list[PrimExpr] = []
    for x in found:
        known = knowing(ranges, analyzer)
        try:
            mapper = _mapper(ranges, E.to_expr(predicate), IterMapLevel.NoCheck, known, simplify_trivial_iterators)
        except NoMap:
            result.append(x)
            continue
        one = mapper.as_sum(mapper.rewrite(x))
        result.append(x if mapper.errors else normalize_iter_map_to_expr(one))
    return result
