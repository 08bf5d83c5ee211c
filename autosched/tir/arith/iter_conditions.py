"""What conditions say of iterators: bounds of sums of them, and narrower ranges of single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.tir import expr as E
from autosched.tir.arith.analyzer import Analyzer
from autosched.tir.arith.iter_mapper import NoMap
from autosched.tir.axis import Range
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer as Core
from autosched.tir.simplify import Linear, split_conditions

Bounds = tuple[PrimExpr, PrimExpr | None, PrimExpr | None]  # an expression, its lowest value, its end


def bounds_of(predicate: PrimExpr, iterators: Mapping[Var, Range]) -> list[Bounds]:
    """(expression of iterators, lowest value, end) of each comparison. Raises NoMap for other conditions."""
    found: list[Bounds] = []
    for c in split_conditions(predicate):
        if const_int(c) is not None:
            if not const_int(c):
                raise NoMap("a condition that never holds")
            continue
        if not any(v in iterators for v in free_vars(c)):
            continue
        if not isinstance(c, E.LT | E.LE | E.GT | E.GE | E.EQ):
            raise NoMap(f"a condition {c} that is no comparison")
        small, large = (c.b, c.a) if isinstance(c, E.GT | E.GE) else (c.a, c.b)
        strict = 1 if isinstance(c, E.LT | E.GT) else 0
        left, right = (any(v in iterators for v in free_vars(x)) for x in (small, large))
        if left and right:
            small, large, right = _separated(E.sub(small, large), iterators)
            left = not right
        if isinstance(c, E.EQ):
            x, y = (small, large) if left else (large, small)
            found.append((x, y, E.add(y, 1)))
        elif left:
            found.append((small, None, large if strict else E.add(large, 1)))
        else:
            found.append((large, E.add(small, 1) if strict else small, None))
    return found


def _separated(difference: PrimExpr, iterators: Mapping[Var, Range]) -> tuple[PrimExpr, PrimExpr, bool]:
    """(small, large, whether the iterators are in `large`) of `difference < 0`."""
    linear = Core().linear(difference)
    mine, rest = Linear(), Linear(linear.const)
    for key, (scale, atom) in linear.terms.items():
        (mine if free_vars(atom) & iterators.keys() else rest).add_term(key, scale, atom)
    dtype = difference.dtype
    if all(scale < 0 for scale, _ in mine.terms.values()):
        turned = Linear(0, {k: (-scale, atom) for k, (scale, atom) in mine.terms.items()})
        return rest.build(dtype), turned.build(dtype), True
    return mine.build(dtype), E.sub(0, rest.build(dtype)), False


def narrowed(
    conditions: Sequence[Bounds], iterators: Mapping[Var, Range], analyzer: Analyzer
) -> tuple[dict[Var, Range], list[Bounds]]:
    """The ranges of the iterators with what conditions say of one alone, and the other conditions."""
    ranges: dict[Var, Range] = dict(iterators)
    rest: list[Bounds] = []
    for x, low, high in conditions:
        if not isinstance(x, Var) or x not in ranges:
            rest.append((x, low, high))
            continue
        start, end = ranges[x].min, E.add(ranges[x].min, ranges[x].extent)
        if low is not None and not analyzer.can_prove(E.compare(E.LE, low, start)):
            start = analyzer.simplify(E.maximum(start, low))
        if high is not None and not analyzer.can_prove(E.compare(E.LE, end, high)):
            end = analyzer.simplify(E.minimum(end, high))
        ranges[x] = Range(start, analyzer.simplify(E.sub(end, start)))
    return ranges, rest
