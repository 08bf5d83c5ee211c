"""`subspace_divide`: indices divided into what iterators outside and inside of a part of a nest contribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autosched.tir import expr as E
from autosched.tir.arith.analyzer import Analyzer
from autosched.tir.arith.iter_map import knowing, level_of, map_of, ranges_of
from autosched.tir.arith.iter_mapper import IterMapLevel, Mapper, NoMap, altered
from autosched.tir.arith.iter_nodes import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr, plain
from autosched.tir.axis import Range
from autosched.tir.expr import ExprLike, PrimExpr, Var, const_int
from autosched.tir.functor import free_vars


@dataclass(slots=True)
class _Part:
    """An index divided into `outer * inner_extent + inner`."""

    outer: PrimExpr
    inner: PrimExpr
    outer_extent: PrimExpr
    inner_extent: PrimExpr

    @property
    def is_inner(self) -> bool:
        return const_int(self.outer_extent) == 1 and not isinstance(self.outer, IterMapExpr)

    @property
    def is_outer(self) -> bool:
        return const_int(self.inner_extent) == 1 and not isinstance(self.inner, IterMapExpr)


@dataclass(slots=True)
class _Divider:
    """Divides sums into what iterators outside and inside of a part of the nest contribute."""

    mapper: Mapper
    inside: frozenset[Var]
    parts: dict[int, tuple[IterMark | None, IterMark | None, PrimExpr, PrimExpr]] = field(default_factory=dict)
    outer_conditions: list[PrimExpr] = field(default_factory=list)
    inner_conditions: list[PrimExpr] = field(default_factory=list)

    def divide(self, x: IterSumExpr, limit: PrimExpr | None = None) -> _Part:
        """`limit`: the sum stays below it, although its iterators could make more."""
        zero, one = E.const(0, x.dtype), E.const(1, x.dtype)
        outer: list[IterSplitExpr] = []
        inner: list[IterSplitExpr] = []
        outer_size, inner_size = one, one
        for split in reversed(x.args):  # by growing factor: what lies inside comes first
            o, i = self.split(split)
            if i is not None:
                if outer:
                    raise NoMap("an inner iterator above an outer one")
                inner.insert(0, i)
                inner_size = self.mapper.simple(E.mul(inner_size, i.extent))
            if o is not None:
                outer.insert(0, o)
                outer_size = self.mapper.simple(E.mul(outer_size, o.extent))
        smallest = x.args[-1].scale if x.args else one
        step = self.mapper.simple(E.mul(inner_size, smallest)) if inner else (outer[-1].scale if outer else one)
        outer_sum: PrimExpr = zero
        if outer:
            outer_sum = IterSumExpr(tuple(altered(s, scale=self.mapper.quotient(s.scale, step)) for s in outer), zero)
        inner_sum: PrimExpr = IterSumExpr(tuple(inner), x.base) if inner else x.base
        if not inner and outer and const_int(x.base) != 0:
            inner_sum = x.base
        if limit is not None and not self.mapper.equal(E.mul(outer_size, inner_size), limit):
            if inner and outer:
                raise NoMap("a condition on iterators outside and inside together")
            where, value = (self.inner_conditions, inner_sum) if inner else (self.outer_conditions, outer_sum)
            where.append(E.compare(E.LT, plain(value), limit))
            if inner:
                inner_size = limit
            else:
                outer_size = limit
        return _Part(outer_sum, inner_sum, outer_size, inner_size)

    def split(self, s: IterSplitExpr) -> tuple[IterSplitExpr | None, IterSplitExpr | None]:
        """(the outer, the inner part) of a digit, both with a factor of the whole."""
        mark = s.source
        source = mark.source
        if not isinstance(source, IterSumExpr):
            return (None, s) if free_vars(source) & self.inside else (s, None)
        if id(mark) not in self.parts:
            part = self.divide(source, mark.extent)
            outer = None if not isinstance(part.outer, IterMapExpr) else IterMark(part.outer, part.outer_extent)
            inner = None if not isinstance(part.inner, IterMapExpr) else IterMark(part.inner, part.inner_extent)
            self.parts[id(mark)] = (outer, inner, part.outer_extent, part.inner_extent)
        outer, inner, _, size = self.parts[id(mark)]
        if outer is None:
            return None, s if inner is None else IterSplitExpr(inner, s.lower_factor, s.extent, s.scale)
        if inner is None:
            return IterSplitExpr(outer, s.lower_factor, s.extent, s.scale), None
        m = self.mapper
        end = m.simple(E.mul(s.lower_factor, s.extent))
        if m.is_one(s.lower_factor) and m.equal(end, mark.extent):
            return IterSplitExpr(outer, scale=m.simple(E.mul(s.scale, size))), IterSplitExpr(inner, scale=s.scale)
        if m.divides(size, end):  # the digit lies in the inner part
            return None, IterSplitExpr(inner, s.lower_factor, s.extent, s.scale)
        if m.divides(s.lower_factor, size):
            return IterSplitExpr(outer, m.quotient(s.lower_factor, size), s.extent, s.scale), None
        if m.divides(size, s.lower_factor) and m.divides(end, size):
            low = m.quotient(size, s.lower_factor)
            high = IterSplitExpr(outer, E.const(1, s.dtype), m.quotient(s.extent, low), m.simple(E.mul(s.scale, low)))
            return high, IterSplitExpr(inner, s.lower_factor, low, s.scale)
        raise NoMap("a digit of iterators outside and inside together")


def subspace_divide(
    bindings: Sequence[ExprLike],
    input_iters: Mapping[Var, Range],
    sub_iters: Sequence[Var],
    predicate: ExprLike = True,
    check_level: IterMapLevel | str | int = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[list[IterMark]]:
    """Divide each binding into `outer * inner_extent + inner`, where inner depends on `sub_iters` alone.

    Returns [outer, inner] per binding and, last, marks whose extents are the conditions on the outer and on the inner
    iterators; an empty list where there is no such division.
    """
    ranges, level = ranges_of(input_iters), level_of(check_level)
    exprs, condition = [E.to_expr(x) for x in bindings], E.to_expr(predicate)
    try:
        mapper, sums = map_of(
            exprs, ranges, condition, level, knowing(ranges, analyzer), simplify_trivial_iterators, merges_padding=True
        )
        divider = _Divider(mapper, frozenset(sub_iters))
        parts = [divider.divide(x) for x in sums]
    except NoMap:
        return []
    found = [[IterMark(_as_sum(p.outer), p.outer_extent), IterMark(_as_sum(p.inner), p.inner_extent)] for p in parts]
    true, zero = E.const(True, "bool"), E.const(0, "int32")
    marks = []
    for conditions in (divider.outer_conditions, divider.inner_conditions):
        mark = IterMark(zero, zero)
        object.__setattr__(mark, "extent", E.all_of(*conditions) if conditions else true)
        marks.append(mark)
    return [*found, marks]


def _as_sum(x: PrimExpr) -> IterSumExpr:
    """A plain expression as a sum without splits."""
    return x if isinstance(x, IterSumExpr) else IterSumExpr((), x)
