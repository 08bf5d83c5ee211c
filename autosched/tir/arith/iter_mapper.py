"""Expressions over iterators as sums of digits: what `detect_iter_map` asks of each index.

An index such as `x * 10 + y` over x < 13 and y < 10 is one iterator of 130 values; `z // 4` and `z % 4` are two digits
of z. Each index becomes a sum of splits (`iter_nodes`) with one split at most. Where a quotient does not divide evenly
and the map need not be bijective, the iterator is padded up to a multiple of what it is divided by.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.errors import InvalidValueError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.arith import products
from autosched.tir.arith.analyzer import Analyzer
from autosched.tir.arith.iter_nodes import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr, plain
from autosched.tir.axis import Range
from autosched.tir.expr import ExprLike, PrimExpr, Var, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import form_key


class IterMapLevel(enum.IntEnum):
    """What is asked of a map: each target once, each at least once, or nothing."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        found = {"bijective": 0, "surjective": 1, "nocheck": 3}.get(name.lower())
        if found is None:
            raise InvalidValueError(f"check_level '{name}' is not known", hint="bijective, surjective or nocheck")
        return IterMapLevel(found)


class NoMap(Exception):
    """The indices are no map of digits, with the reason."""


_PLAIN: Mapping[type[E.BinaryOp], Callable[[ExprLike, ExprLike], PrimExpr]] = {
    E.Add: E.add, E.Sub: E.sub, E.Mul: E.mul, E.FloorDiv: E.floordiv, E.FloorMod: E.floormod,
}  # fmt: skip


@dataclass(slots=True)
class _Limit:
    """A sum of splits that a condition bounds, in units of its smallest scale, and the iterator that it becomes."""

    args: tuple[IterSplitExpr, ...]
    mark: IterMark
    offset: PrimExpr  # the sum is the iterator plus this


@dataclass(slots=True)
class _Padded:
    """An iterator that was made longer: `before` values at its front, up to a multiple of `factor`."""

    split: IterSplitExpr
    before: PrimExpr
    factor: PrimExpr
    mark: IterMark | None = None


@dataclass(slots=True)
class Mapper:
    """Turns expressions over iterators into sums of splits.

    merges_padding  whether quotients of a padded iterator lengthen it (else: each its own)
    """

    analyzer: Analyzer
    level: IterMapLevel
    iterators: dict[Var, PrimExpr] = field(default_factory=dict)  # a sum, or a value for one that does not vary
    marks: list[IterMark] = field(default_factory=list)  # of the variables
    fused: dict[object, IterMark] = field(default_factory=dict)
    limits: list[_Limit] = field(default_factory=list)
    padded: dict[object, _Padded] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    merges_padding: bool = True
    grew: bool = False

    # --- numbers

    def simple(self, x: PrimExpr) -> PrimExpr:
        return x if const_int(x) is not None else self.analyzer.simplify(x)

    def equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        x, y = const_int(a), const_int(b)
        if x is not None and y is not None:
            return x == y
        return a is b or products.equal(a, b) or self.analyzer.can_prove_equal(a, b)

    def divides(self, a: PrimExpr, d: PrimExpr) -> bool:
        """Whether a is a multiple of d."""
        x, y = const_int(a), const_int(d)
        if x is not None and y is not None:
            return x % y == 0
        if products.exact_quotient(a, d) is not None:
            return True
        return const_int(self.simple(E.floormod(a, d))) == 0

    def quotient(self, a: PrimExpr, d: PrimExpr) -> PrimExpr:
        exact = products.exact_quotient(a, d)
        found = self.simple(E.floordiv(a, d) if exact is None else exact)
        if const_int(found) is None:
            bound = self.analyzer.const_int_bound(found)
            if bound.min_value == bound.max_value:
                return E.const(bound.min_value, found.dtype)
        return found

    def is_one(self, a: PrimExpr) -> bool:
        return const_int(a) == 1

    # --- expressions

    def add_iterator(self, var: Var, dom: Range, *, drops_units: bool) -> None:
        if self.is_one(dom.extent) and drops_units:
            self.iterators[var] = dom.min
            return
        mark = IterMark(E.sub(var, dom.min), dom.extent)
        self.marks.append(mark)
        self.iterators[var] = IterSumExpr((IterSplitExpr(mark),), dom.min)

    def rewrite(self, x: PrimExpr) -> PrimExpr:
        """The expression as a sum of splits; itself where no iterator occurs in it or, noted as an error, where it is
        of another kind."""
        match x:
            case Var():
                return self.iterators.get(x, x)
            case E.Cast() if isinstance(x.value, PrimExpr):
                inner = self.rewrite(x.value)
                return E.cast(x.dtype, inner) if not isinstance(inner, IterMapExpr) else self._given_up(x, "a cast")
            case E.Add() | E.Sub() | E.Mul() | E.FloorDiv() | E.FloorMod():
                a, b = self.rewrite(x.a), self.rewrite(x.b)
                if not isinstance(a, IterSumExpr) and not isinstance(b, IterSumExpr):
                    return x if a is x.a and b is x.b else _PLAIN[type(x)](a, b)
                try:
                    return self._combined(type(x), a, b)
                except NoMap as e:
                    return self._given_up(x, str(e))
        if any(isinstance(v, Var) and v in self.iterators for v in preorder(x)):
            values = {v: i for v, i in self.iterators.items() if not isinstance(i, IterMapExpr)}
            known = substitute(x, values)
            return self._given_up(known, "an operator that is none of + - * // %") if self._varies(known) else known
        return x

    def _varies(self, x: PrimExpr) -> bool:
        return any(isinstance(self.iterators.get(v), IterMapExpr) for v in free_vars(x))

    def _given_up(self, x: PrimExpr, why: str) -> PrimExpr:
        self.errors.append(f"{x}: {why}")
        return x

    def _combined(self, kind: type[E.BinaryOp], a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if kind is E.Add:
            return self.sum(a, b, 1)
        if kind is E.Sub:
            return self.sum(a, b, -1)
        if kind is E.Mul:
            if isinstance(a, IterSumExpr) and isinstance(b, IterSumExpr):
                raise NoMap("a product of iterators")
            total, factor = (a, b) if isinstance(a, IterSumExpr) else (b, a)
            assert isinstance(total, IterSumExpr)
            return self.scaled(total, factor)
        if isinstance(b, IterSumExpr):
            raise NoMap("an iterator as divisor")
        assert isinstance(a, IterSumExpr)
        return self._divided(kind, a, b)

    def as_sum(self, x: PrimExpr) -> IterSumExpr:
        return x if isinstance(x, IterSumExpr) else IterSumExpr((), x)

    def sum(self, a: PrimExpr, b: PrimExpr, sign: int) -> IterSumExpr:
        left, right = self.as_sum(a), self.as_sum(b)
        args = list(left.args)
        for split in right.args:
            scale = split.scale if sign == 1 else self.simple(E.mul(split.scale, sign))
            i = next((i for i, s in enumerate(args) if self._one_digit(s, split)), None)
            if i is None:
                args.append(altered(split, scale=scale))
                continue
            scale = self.simple(E.add(args[i].scale, scale))
            args[i : i + 1] = [] if const_int(scale) == 0 else [altered(args[i], scale=scale)]
        base = E.add(left.base, right.base) if sign == 1 else E.sub(left.base, right.base)
        return self._joined(args, self.simple(base))

    def _one_digit(self, a: IterSplitExpr, b: IterSplitExpr) -> bool:
        return a.source is b.source and self.equal(a.lower_factor, b.lower_factor) and self.equal(a.extent, b.extent)

    def _joined(self, args: list[IterSplitExpr], base: PrimExpr) -> IterSumExpr:
        """The sum in which neighbouring digits of one mark are one: `x // 4 * 4 + x % 4` is x."""
        changed = True
        while changed:
            changed = False
            for high in args:
                low = next((s for s in args if s is not high and self._continues(high, s)), None)
                if low is not None:
                    extent = self.simple(E.mul(high.extent, low.extent))
                    # in the place of the one that stands further back
                    place = max(i for i, s in enumerate(args) if s is high or s is low) - 1
                    args = [s for s in args if s is not high and s is not low]
                    if self.is_one(low.lower_factor) and self._reaches(extent, low.source.extent):
                        extent = low.source.extent
                    args.insert(place, altered(low, extent=extent))
                    changed = True
                    break
        return IterSumExpr(tuple(args), base)

    def _reaches(self, extent: PrimExpr, whole: PrimExpr) -> bool:
        x, y = const_int(extent), const_int(whole)
        return x >= y if x is not None and y is not None else self.equal(extent, whole)

    def _continues(self, high: IterSplitExpr, low: IterSplitExpr) -> bool:
        return (
            high.source is low.source
            and self.equal(high.lower_factor, E.mul(low.lower_factor, low.extent))
            and self.equal(high.scale, E.mul(low.scale, low.extent))
        )

    def scaled(self, x: IterSumExpr, factor: PrimExpr) -> IterSumExpr:
        if const_int(factor) == 0:
            return IterSumExpr((), factor)
        args = tuple(altered(s, scale=self.simple(E.mul(s.scale, factor))) for s in x.args)
        return IterSumExpr(args, self.simple(E.mul(x.base, factor)))

    # --- several iterators as one

    def fuse(self, x: IterSumExpr) -> IterSumExpr:
        """The sum with one split at most. Raises NoMap where its values leave gaps, or overlap and may not."""
        args, base = self._limited(x)
        if len(args) <= 1:
            return IterSumExpr(tuple(args), base)
        scale, reach, ordered = self._ordered(args)
        units = tuple(altered(s, scale=self.quotient(s.scale, scale)) for s in reversed(ordered))
        key = tuple(map(_key, units))
        if key not in self.fused:
            self.fused[key] = IterMark(IterSumExpr(units, E.const(0, base.dtype)), reach)
        return IterSumExpr((IterSplitExpr(self.fused[key], scale=scale),), base)

    def _ordered(self, args: Sequence[IterSplitExpr]) -> tuple[PrimExpr, PrimExpr, list[IterSplitExpr]]:
        """(smallest scale, number of values in its units, the splits by growing scale)."""
        left = list(args)
        if any((c := const_int(s.scale)) is not None and c < 0 for s in left):
            raise NoMap("an iterator with a negative factor")
        numbers = [c for s in left if (c := const_int(s.scale)) is not None]
        if numbers:
            scale: PrimExpr = E.const(min(numbers), left[0].dtype)
        else:
            found = next((s for s in reversed(left) if all(self.divides(o.scale, s.scale) for o in left)), None)
            if found is None:
                raise NoMap("factors of which none divides the others")
            scale = found.scale
        ordered: list[IterSplitExpr] = []
        reach: PrimExpr = E.const(1, scale.dtype)  # values so far, in units of the smallest scale
        while left:
            expected = E.mul(reach, scale)
            fitting = [s for s in reversed(left) if self.equal(s.scale, expected)]
            nxt = next((s for s in fitting if self.is_one(s.extent)), fitting[0] if fitting else None)
            if nxt is not None:
                ordered.append(nxt)
                reach = self.simple(E.mul(reach, nxt.extent))
            else:
                nxt = self._overlapping(left, reach, scale)
                ordered.append(nxt)
                steps = E.mul(self.quotient(nxt.scale, scale), E.sub(nxt.extent, 1))
                reach = self.simple(E.add(reach, steps))
            del left[next(i for i, s in enumerate(left) if s is nxt)]
        return scale, reach, ordered

    def _overlapping(self, left: Sequence[IterSplitExpr], reach: PrimExpr, scale: PrimExpr) -> IterSplitExpr:
        """The next iterator where it reaches values again: allowed with steps of one, unless each is wanted once."""
        units = [s for s in left if self.is_one(s.extent) and self.level != IterMapLevel.Bijective]
        if units:
            return units[-1]
        if self.level != IterMapLevel.Bijective and self.is_one(scale):
            size = const_int(reach)
            known = [(c, -i, s) for i, s in enumerate(left) if (c := const_int(s.scale)) is not None]
            if size is not None and known and min(known)[0] <= size:
                return min(known, key=lambda item: item[:2])[2]
        raise NoMap("factors that leave gaps between the values, or reach them twice")

    def _limited(self, x: IterSumExpr) -> tuple[list[IterSplitExpr], PrimExpr]:
        """The splits of a sum where those that a condition bounds together are one, and the base."""
        args, base = list(x.args), x.base
        for limit in sorted(self.limits, key=lambda limit: -len(limit.args)):
            ratio: PrimExpr | None = None
            taken: list[IterSplitExpr] = []
            for part in limit.args:
                mine = next((s for s in args if self._one_digit(s, part)), None)
                if mine is None or not self.divides(mine.scale, part.scale):
                    break
                here = self.quotient(mine.scale, part.scale)
                if ratio is not None and not self.equal(ratio, here):
                    break
                ratio = here
                taken.append(mine)
            if len(taken) < len(limit.args) or ratio is None:
                continue
            chosen = {id(s) for s in taken}
            place = min(i for i, s in enumerate(args) if id(s) in chosen)
            args = [s for s in args if id(s) not in chosen]
            args.insert(place, IterSplitExpr(limit.mark, scale=ratio))
            base = self.simple(E.add(base, E.mul(limit.offset, ratio)))
        return args, base

    # --- conditions

    def bound(self, x: PrimExpr, low: PrimExpr | None, high: PrimExpr | None) -> None:
        """Take note of low <= x < high."""
        raw = self.as_sum(self.rewrite(x))
        if not raw.args:
            return
        one = self.fuse(raw)
        (split,) = one.args
        scale = split.scale
        units = tuple(altered(s, scale=self.quotient(s.scale, scale)) for s in raw.args)
        rest = self.sum(one.base, raw.base, -1).base  # what limits found before have added
        if not self.divides(rest, scale):
            raise NoMap(f"the condition on {x} cuts between its values")
        first: PrimExpr = E.const(0, scale.dtype)
        end = split.extent
        if low is not None:
            first = self._larger(first, self._up(E.sub(low, one.base), scale))
        if high is not None:
            end = self._smaller(end, self._up(E.sub(high, one.base), scale))
        size = self.simple(E.sub(end, first))
        number = const_int(size)
        if number is not None and number < 1:
            raise NoMap(f"the condition on {x} holds for none of its values")
        whole = self.is_one(split.lower_factor) and self.equal(split.extent, split.source.extent)
        inner = split.source.source if whole else None
        shift = self.simple(E.sub(0, first))
        if isinstance(inner, IterSumExpr):
            source = IterSumExpr(inner.args, self.simple(E.add(inner.base, shift)))
        else:
            source = IterSumExpr((altered(split, scale=E.const(1, scale.dtype)),), shift)
        offset = self.simple(E.add(first, E.floordiv(rest, scale)))
        self.limits = [g for g in self.limits if not self._same_args(g.args, units)]
        self.limits.append(_Limit(units, IterMark(source, size), offset))

    def _same_args(self, a: Sequence[IterSplitExpr], b: Sequence[IterSplitExpr]) -> bool:
        return {_key(s) for s in a} == {_key(s) for s in b}

    def _up(self, x: PrimExpr, scale: PrimExpr) -> PrimExpr:
        if self.is_one(scale):
            return self.simple(x)
        return self.quotient(x if self.divides(x, scale) else E.add(x, E.sub(scale, 1)), scale)

    def _larger(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return self.simple(E.maximum(a, b))

    def _smaller(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if self.analyzer.can_prove(E.compare(E.LE, b, a)):
            return b
        return self.simple(E.minimum(a, b))

    # --- quotients and remainders

    def _divided(self, kind: type[E.BinaryOp], a: IterSumExpr, d: PrimExpr) -> PrimExpr:
        if self.is_one(d):
            return a if kind is E.FloorDiv else E.const(0, d.dtype)
        one = self.fuse(a)
        base = one.base
        if not one.args:
            return self.quotient(base, d) if kind is E.FloorDiv else self.simple(E.floormod(base, d))
        (split,) = one.args
        scale = split.scale
        if self.divides(scale, d):  # the iterator moves in multiples of the divisor
            if kind is E.FloorMod:
                return IterSumExpr((), self.simple(E.floormod(base, d)))
            return IterSumExpr((altered(split, scale=self.quotient(scale, d)),), self.quotient(base, d))
        if not self.is_one(scale):
            if not self.divides(d, scale) or not self.divides(base, scale):
                raise NoMap(f"a divisor {d} that fits no factor {scale}")
            step, d, base = scale, self.quotient(d, scale), self.quotient(base, scale)
        else:
            step = scale
        unit = altered(split, scale=E.const(1, scale.dtype))
        if self.level != IterMapLevel.NoCheck:
            unit, base = self._pad(unit, base, d)
        if kind is E.FloorDiv:
            if self.equal(unit.extent, d) and self.divides(base, d):
                return IterSumExpr((), self.quotient(base, d))
            extent = self._up(unit.extent, d)
            lower = self.simple(E.mul(unit.lower_factor, d))
            return IterSumExpr((altered(unit, lower=lower, extent=extent),), self.quotient(base, d))
        if unit.source is split.source and not self.divides(base, d):  # it was not padded
            raise NoMap(f"a remainder by {d} that begins in the middle")
        found = unit if self.equal(unit.extent, d) else altered(unit, extent=d)
        return IterSumExpr((altered(found, scale=step),), E.const(0, scale.dtype))

    def _pad(self, unit: IterSplitExpr, base: PrimExpr, d: PrimExpr) -> tuple[IterSplitExpr, PrimExpr]:
        """The split, longer where `d` does not divide it, and what is added to it."""
        known = self._padding_of(unit)
        if known is None and self.divides(unit.extent, d) and self.divides(base, d):
            return unit, base
        if self.level == IterMapLevel.Bijective:
            raise NoMap(f"{unit.extent} values from {base} on, in parts of {d}")
        inner = next((p for p in self.padded.values() if p.mark is unit.source), None)
        if self.merges_padding and inner is not None and const_int(base) == 0 and const_int(d) is not None:
            if self.divides(unit.extent, d):
                return unit, base
        if self.merges_padding and inner is not None:
            self._lengthen(inner, E.mul(unit.lower_factor, d))
            return unit, base if self.divides(base, d) else E.mul(self.quotient(base, d), d)
        if known is None:
            before = self.simple(E.floormod(base, d))
            known = self.padded[(_key(unit), form_key(before))] = _Padded(unit, before, d)
            self.grew = True
        else:
            self._lengthen(known, d)
        before = self.simple(E.floormod(base, known.factor))
        if not self.equal(before, known.before):
            if len([p for p in self.padded.values() if _key(p.split) == _key(unit)]) > 1:
                raise NoMap("an iterator that is padded in two ways")
            known.before, self.grew = before, True
        if known.mark is None:
            whole = self.simple(E.add(unit.extent, known.before))
            extent = self.simple(E.mul(self._up(whole, known.factor), known.factor))
            known.mark = IterMark(IterSumExpr((unit,), known.before), extent)
        return IterSplitExpr(known.mark), self.simple(E.sub(base, known.before))

    def _padding_of(self, unit: IterSplitExpr) -> _Padded | None:
        key = _key(unit)
        return next((p for p in self.padded.values() if _key(p.split) == key), None)

    def _lengthen(self, known: _Padded, d: PrimExpr) -> None:
        """Let a padded iterator be a multiple of one more number."""
        if self.divides(known.factor, d):
            return
        x, y = const_int(known.factor), const_int(d)
        if x is not None and y is not None:
            known.factor = E.const(math.lcm(x, y), d.dtype)
        else:
            known.factor = d if self.divides(d, known.factor) else self.simple(E.mul(known.factor, d))
        known.mark = None if self.grew else known.mark
        self.grew = True

    def restart(self) -> None:
        """Forget the iterators that were made, not how long the padded ones have to be."""
        self.grew = False
        self.errors.clear()
        for p in self.padded.values():
            p.mark = None

    # --- what is asked of all indices together

    def check(self, sums: Sequence[IterSumExpr]) -> None:
        """Raises NoMap unless the splits of each mark are digits of it that do not overlap."""
        digits: dict[int, tuple[IterMark, list[IterSplitExpr]]] = {}
        queue = [s for x in sums for s in x.args]
        while queue:
            split = queue.pop()
            mark = split.source
            new = id(mark) not in digits
            digits.setdefault(id(mark), (mark, []))[1].append(split)
            if new and isinstance(mark.source, IterSumExpr):
                queue += mark.source.args
        for mark, splits in digits.values():
            self._check_digits(mark, splits)
        used = {id(m) for m in self.marks if id(m) in digits}
        for limit in self.limits:
            if id(limit.mark) not in digits and used & {id(m) for s in limit.args for m in _leaves(s.source)}:
                raise NoMap("a condition on iterators that are used one by one")
        if self.level == IterMapLevel.Bijective and any(
            id(m) not in digits for m in self.marks if not self.is_one(m.extent)
        ):
            raise NoMap("an iterator that no index uses")

    def _check_digits(self, mark: IterMark, splits: list[IterSplitExpr]) -> None:
        expected: PrimExpr = E.const(1, mark.extent.dtype)
        left = list(splits)
        while left:
            nxt = next((s for s in left if self.equal(s.lower_factor, expected)), None)
            if nxt is None and self.level != IterMapLevel.Bijective:
                nxt = self._lowest([s for s in left if self.divides(s.lower_factor, expected)])
            if nxt is None:
                raise NoMap(f"digits of {plain(mark.source)} that overlap")
            expected = self.simple(E.mul(nxt.lower_factor, nxt.extent))
            del left[next(i for i, s in enumerate(left) if s is nxt)]
        padding = next((p for p in self.padded.values() if p.mark is mark), None)
        if padding is None:
            whole = self.equal(expected, mark.extent)
            if not whole and (self.level == IterMapLevel.Bijective or not self.divides(mark.extent, expected)):
                raise NoMap(f"digits that do not make up {plain(mark.source)}")
        elif not (self.equal(expected, mark.extent) and len(splits) == 1 and self._covers_padding(padding, splits[0])):
            enough = self.analyzer.can_prove(E.compare(E.GE, padding.split.extent, expected))
            if not enough or not self.divides(mark.extent, expected):
                raise NoMap(f"digits of which the values of {plain(mark.source)} do not reach all")

    def _covers_padding(self, padding: _Padded, split: IterSplitExpr) -> bool:
        """Whether each value of a split comes of some value that is no padding."""
        assert padding.mark is not None
        behind = E.sub(E.sub(padding.mark.extent, padding.before), padding.split.extent)
        return all(self.analyzer.can_prove(E.compare(E.LT, x, split.lower_factor)) for x in (padding.before, behind))

    def _lowest(self, splits: list[IterSplitExpr]) -> IterSplitExpr | None:
        known = [s for s in splits if const_int(s.lower_factor) is not None]
        if len(known) == len(splits):
            return min(splits, key=lambda s: const_int(s.lower_factor) or 0, default=None)
        return splits[0]

    def padding(self) -> PrimExpr:
        """Holds where an iterator is outside of what it was before it was padded."""
        conditions: list[PrimExpr] = []
        for p in self.padded.values():
            if p.mark is None:
                continue
            value = plain(p.split)
            if const_int(p.before) != 0:
                conditions.append(E.compare(E.LT, value, 0))
            if not self.equal(E.add(p.before, p.split.extent), p.mark.extent):
                conditions.append(E.compare(E.LE, p.split.extent, value))
        found: PrimExpr = E.const(False, "bool")
        for c in conditions:
            found = c if const_int(found) == 0 else E.logical_or(found, c)
        return found


def altered(
    s: IterSplitExpr, *, lower: PrimExpr | None = None, extent: PrimExpr | None = None, scale: PrimExpr | None = None
) -> IterSplitExpr:
    """A split with other numbers."""
    return IterSplitExpr(
        s.source,
        s.lower_factor if lower is None else lower,
        s.extent if extent is None else extent,
        s.scale if scale is None else scale,
    )


def _key(s: IterSplitExpr) -> object:
    return id(s.source), form_key(s.lower_factor), form_key(s.extent), form_key(s.scale)


def _leaves(mark: IterMark) -> Iterable[IterMark]:
    if not isinstance(mark.source, IterSumExpr):
        yield mark
        return
    for s in mark.source.args:
        yield from _leaves(s.source)
