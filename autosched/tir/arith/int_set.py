"""Intervals of expressions, whose ends may be expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.expr import ExprLike, PrimExpr, Var, to_expr
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, split_conditions


class IntSet:
    """A set of integers."""

    @staticmethod
    def vector(vec: object) -> IntervalSet:
        """The interval of a range."""
        return interval(vec)

    @staticmethod
    def single_point(point: object) -> IntervalSet:
        """The set of one value."""
        return IntervalSet(point, point)


class IntervalSet(IntSet):
    """[min_value, max_value], both included; None is unbounded."""

    def __init__(self, min_value: object, max_value: object):
        self.min_value = None if min_value is None else to_expr(min_value)
        self.max_value = None if max_value is None else to_expr(max_value)

    def is_nothing(self) -> bool:
        """Whether the set is empty."""
        low, high = E.const_int(self.min_value), E.const_int(self.max_value)
        return low is not None and high is not None and low > high

    def is_everything(self) -> bool:
        """Whether nothing bounds the set."""
        return self.min_value is None and self.max_value is None

    def __repr__(self) -> str:
        low = "neg_inf" if self.min_value is None else self.min_value
        high = "pos_inf" if self.max_value is None else self.max_value
        return f"IntervalSet[{low}, {high}]"


def interval(x: object) -> IntervalSet:
    """A range, an interval or a value as an interval."""
    if isinstance(x, IntervalSet):
        return x
    if isinstance(x, Range):
        return IntervalSet(x.min, Analyzer().simplify(E.sub(E.add(x.min, x.extent), 1)))
    return IntervalSet(x, x)


def interval_of(x: PrimExpr, dom_map: Mapping[Var, object], analyzer: Analyzer) -> IntervalSet:
    """The interval of an expression while variables run over the intervals of `dom_map`; others stay names."""
    domains = {var: interval(dom) for var, dom in dom_map.items()}
    linear = analyzer.linear(x)
    low: PrimExpr | None = E.const(linear.const, x.dtype)
    high = low
    known = analyzer.copy()
    for var, dom in domains.items():
        lowest = None if dom.min_value is None else analyzer.bound(dom.min_value)[0]
        highest = None if dom.max_value is None else analyzer.bound(dom.max_value)[1]
        known.bounds[var] = (lowest, highest)
    for scale, atom in linear.terms.values():
        if isinstance(atom, Var) and atom in domains:
            ends: tuple[ExprLike | None, ExprLike | None] = (domains[atom].min_value, domains[atom].max_value)
        elif free_vars(atom) & domains.keys():
            ends = known.bound(atom)
        else:
            ends = (atom, atom)
        first, last = ends if scale > 0 else ends[::-1]
        low = None if low is None or first is None else E.add(low, E.mul(first, scale))
        high = None if high is None or last is None else E.add(high, E.mul(last, scale))
    return IntervalSet(
        None if low is None else analyzer.simplify(low), None if high is None else analyzer.simplify(high)
    )


def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: object = True
) -> list[IntervalSet]:
    """Intervals around what ranges cover while variables run over `var_dom`, where the predicate holds."""
    found = []
    inside = _narrowed(var_dom, E.to_expr(predicate, "bool"))
    for r in region:
        first = interval_of(r.min, inside, Analyzer())
        last = interval_of(E.sub(E.add(r.min, r.extent), 1), inside, Analyzer())
        found.append(IntervalSet(first.min_value, last.max_value))
    return found


def _narrowed(var_dom: Mapping[Var, Range], predicate: E.PrimExpr) -> dict[Var, Range]:
    """The domains without what a predicate leaves out, where it bounds single variables by numbers."""
    analyzer = Analyzer({v: r for v, r in var_dom.items()})
    before = dict(analyzer.bounds)
    for fact in split_conditions(predicate):
        analyzer.assume(fact)
    narrowed = dict(var_dom)
    for v, (low, high) in analyzer.bounds.items():
        if v in narrowed and before[v] != (low, high) and low is not None and high is not None:
            narrowed[v] = Range(E.const(low, v.dtype), E.const(max(high - low + 1, 0), v.dtype))
    return narrowed


estimate_region_lower_bound = estimate_region_strict_bound = estimate_region_upper_bound

__all__ = [
    "IntSet", "IntervalSet", "estimate_region_lower_bound", "estimate_region_strict_bound",
    "estimate_region_upper_bound", "interval", "interval_of",
]  # fmt: skip
