"""Index maps made of digits: whether bindings reach each point at most once, and how to undo them.

A binding such as `i_0 * 4 + i_1` or `f // 9` takes digits of loop variables: `x // low % size`. A tuple of bindings is
injective when every digit of every variable appears in it, each once, and the digits of one binding do not overlap.
Where a size is a symbol, x follows from `x // size` and `x % size` together, which have digits of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.expr import IntImm, PrimExpr, Var, const_int
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.simplify import Analyzer, Linear, form_key


@dataclass(slots=True)
class Source:
    """A value that digits are taken of: a variable, or a sum of digits that is itself injective."""

    value: PrimExpr
    extent: int
    digits: list[tuple[int, int]] = field(default_factory=list)  # (low, high): value // low % (high // low)
    linear: Linear | None = None  # of a sum


@dataclass(frozen=True, slots=True)
class Digit:
    """`source // low % (high // low)`, multiplied by `scale` in binding `binding`."""

    source: Source
    low: int
    high: int
    scale: int
    binding: object  # the position of the binding, or the compound source, that the digit is part of

    @property
    def extent(self) -> int:
        return min(self.high, -(-self.source.extent // self.low) * self.low) // self.low


@dataclass(slots=True)
class _Halves:
    """A value x and, by the type of the operation, what there is of `x // size` and `x % size`.

    step   the size where it is a number: x % size is then a digit like others
    """

    whole: Source
    step: int | None = None
    parts: dict[type[E.BinaryOp], Source] = field(default_factory=dict)

    @property
    def digit(self) -> tuple[int, int] | None:
        """The digits of x that follow from what is known of its parts."""
        if not all(map(covers, self.parts.values())) or (self.step is None and len(self.parts) < 2):
            return None
        low = self.step or 1
        return low, -(-self.whole.extent // low) * low


class NotAffine(Exception):
    """A binding that is no sum of digits."""


_Kept = tuple[dict[object, Source], dict[object, list[tuple[int, int]]], list[Digit], dict[object, _Halves]]


class DigitMap:
    """The digits of `values` over `variables` (with their extents); other variables count as constants.

    conditions  what holds of the variables: of sums that are below a number only those values count
    """

    def __init__(
        self, values: Iterable[PrimExpr], variables: Mapping[Var, int], analyzer: Analyzer,
        conditions: Iterable[PrimExpr] = (),
    ):  # fmt: skip
        self.analyzer = analyzer = analyzer.copy()
        analyzer.keep_units = False
        self.limits = [
            (analyzer.linear(_without_widening(c.a)), c.b.value)
            for c in conditions
            if isinstance(c, E.LT) and isinstance(c.b, IntImm)
        ]
        self.variables = {v: n for v, n in variables.items() if n > 1}
        self.sources: dict[object, Source] = {
            form_key(v): Source(v, self._below(Linear.of(v), n)) for v, n in self.variables.items()
        }
        self.digits: list[Digit] = []
        self.constants: list[PrimExpr | int] = []
        self.halves: dict[object, _Halves] = {}  # values that are cut by a symbol
        self.is_exact = True  # whether every binding is a sum of digits and constants
        for i, value in enumerate(values):
            linear = analyzer.linear(value)
            kept = self._kept()
            try:
                mine, rest = self._digits(linear, i)
            except NotAffine:
                self.is_exact = False
                self._restore(*kept)
                self._shifted(linear, i)
                continue
            self.digits += mine
            self.constants.append(rest.build(value.dtype))

    def _kept(self) -> _Kept:
        """What is known before a binding is looked at."""
        digits = {key: list(s.digits) for key, s in self.sources.items()}
        halves = {key: _Halves(h.whole, h.step, dict(h.parts)) for key, h in self.halves.items()}
        return dict(self.sources), digits, list(self.digits), halves

    def _restore(
        self, sources: dict[object, Source], digits: dict[object, list[tuple[int, int]]], every: list[Digit],
        halves: dict[object, _Halves],
    ) -> None:  # fmt: skip
        """Forget what a binding that is no sum of digits has left behind."""
        self.sources, self.digits, self.halves = sources, every, halves
        for key, source in sources.items():
            source.digits = digits[key]

    def _shifted(self, linear: Linear, binding: object) -> None:
        """Digits of y in a binding (c + y) % m, where y is below m and only c, which is constant here, is unknown."""
        terms = [atom for _, atom in linear.terms.values() if free_vars(atom) & self.variables.keys()]
        match terms:
            case [E.FloorMod(a=inner, b=IntImm(value=m))]:
                y = Linear()
                for key, (scale, atom) in self.analyzer.linear(inner).terms.items():
                    if free_vars(atom) & self.variables.keys():
                        y.terms[key] = (scale, atom)
                kept = self._kept()
                try:
                    mine, _ = self._digits(y, binding)
                except NotAffine:
                    self._restore(*kept)
                    return
                if any(d.scale < 0 for d in mine) or 1 + sum(d.scale * (d.extent - 1) for d in mine) > m:
                    self._restore(*kept)

    def _digits(self, linear: Linear, binding: object) -> tuple[list[Digit], Linear]:
        mine, rest = [], Linear(linear.const)
        for key, (scale, atom) in linear.terms.items():
            if not free_vars(atom) & self.variables.keys():
                rest.terms[key] = (scale, atom)
                continue
            mine.append(self._digit(atom, scale, binding))
        check_radix(mine)
        return mine, rest

    def _digit(self, atom: PrimExpr, scale: int, binding: object) -> Digit:
        low, high = 1, None
        while isinstance(atom, E.Cast) and (atom.value.dtype, atom.dtype) == ("int32", "int64"):
            atom = atom.value
        match atom:
            case E.FloorMod(a=E.FloorDiv(a=inner, b=IntImm(value=n)), b=IntImm(value=m)):
                atom, low, high = inner, n, n * m
            case E.FloorMod(a=inner, b=IntImm(value=m)):
                atom, high = inner, m
            case E.FloorDiv(a=E.FloorMod(a=inner, b=IntImm(value=m)), b=IntImm(value=n)) if m % n == 0:
                atom, low, high = inner, n, m
            case E.FloorDiv(a=inner, b=IntImm(value=n)):
                atom, low = inner, n
        source = self._source(atom)
        high = -(-source.extent // low) * low if high is None else high
        source.digits.append((low, high))
        return Digit(source, low, high, scale, binding)

    def _source(self, x: PrimExpr) -> Source:
        key = form_key(x)
        if key in self.sources:
            return self.sources[key]
        if isinstance(x, E.FloorDiv | E.FloorMod) and not free_vars(x.b) & self.variables.keys():
            if const_int(x.b) is None:
                return self._half(x, key)
        linear = self.analyzer.linear(x)
        if len(linear.terms) == 1 and not linear.const:
            ((scale, _),) = linear.terms.values()
            if scale == 1:
                raise NotAffine
        mine, rest = self._digits(linear, key)
        if rest.terms or rest.const or any(d.scale < 0 for d in mine):
            raise NotAffine
        self.digits += mine
        extent = 1 + sum(d.scale * (d.extent - 1) for d in mine)
        self.sources[key] = Source(x, self._below(linear, extent), linear=linear)
        return self.sources[key]

    def _below(self, linear: Linear, extent: int) -> int:
        """An extent, or the least of those that conditions give."""
        return min([extent, *(n for below, n in self.limits if n > 0 and _same(below, linear))])

    def _half(self, x: E.FloorDiv | E.FloorMod, key: object) -> Source:
        """The source of a quotient or a remainder by a symbol, or of a quotient of which such a one is taken."""
        inner = x.a
        if isinstance(inner, E.FloorDiv) and const_int(inner.b) is not None and form_key(inner) not in self.sources:
            self._half(inner, form_key(inner))
        whole = self._source(inner)
        halves = self.halves.setdefault((form_key(inner), form_key(x.b)), _Halves(whole, const_int(x.b)))
        self.sources[key] = halves.parts[type(x)] = Source(x, whole.extent)
        return self.sources[key]

    def _join_halves(self) -> None:
        """Add to the values that are cut by symbols the digits that follow from their parts."""
        left = list(self.halves.values())
        while joined := [(h, digit) for h in left if (digit := h.digit) is not None]:
            for h, digit in joined:
                h.whole.digits.append(digit)
                left.remove(h)

    def is_injective(self) -> bool:
        """Whether different values of the variables give different bindings."""
        self._join_halves()
        sources = list(self.sources.values())
        sums = sorted((s for s in sources if s.linear is not None), key=lambda s: s.extent)
        for s in sums:
            self._take_parts(s)
        for i, coarse in enumerate(sums):
            for fine in sums[i + 1 :]:
                if self._is_remainder(coarse, fine):
                    shared = [digit for digit in fine.digits if digit[1] <= coarse.extent]
                    fine.digits += coarse.digits
                    coarse.digits += shared
                    continue
                factor = self._ratio(coarse, fine)
                if factor is not None:  # digits of `fine // factor` are digits of `fine`
                    fine.digits += [(low * factor, high * factor) for low, high in coarse.digits]
                    sources.remove(coarse)
                    break
        return all(covers(s) for s in sources)

    def _take_parts(self, source: Source) -> None:
        """Add to a sum the digits that bindings take of its parts: in a * 12 + b, b % 4 is the sum % 4."""
        parts = [d for d in self.digits if d.binding == form_key(source.value)]
        for part in parts:
            larger = [d.scale for d in parts if d.scale > part.scale]
            for d in self.digits:
                if not isinstance(d.binding, int) or d.source is not part.source or d.low % part.low:
                    continue
                if d.high > part.high or (part.high % d.high and part.high < part.source.extent):
                    continue
                low, high = (part.scale * x // part.low for x in (d.low, d.high))
                if all(scale % high == 0 for scale in larger):
                    source.digits.append((low, high))

    def _is_remainder(self, part: Source, whole: Source) -> bool:
        """Whether `part` is provably `whole % part.extent`: simplifying leaves out what such an extent divides."""
        assert part.linear is not None and whole.linear is not None, "only sums are compared"
        if whole.extent % part.extent:
            return False
        return _same(self.analyzer.linear(E.floormod(whole.value, part.extent)), part.linear)

    def _ratio(self, coarse: Source, fine: Source) -> int | None:
        """The factor g for which `coarse` is provably `fine // g`; simplifying divides sums by common factors."""
        assert coarse.linear is not None and fine.linear is not None, "only sums are compared"
        key, (own, _) = next(iter(coarse.linear.terms.items()))
        other = fine.linear.terms.get(key, (0, None))[0]
        if other <= own or other % own:
            return None
        quotient = self.analyzer.linear(E.floordiv(fine.value, other // own))
        return other // own if _same(quotient, coarse.linear) else None


def _same(a: Linear, b: Linear) -> bool:
    return a.const == b.const and {k: c for k, (c, _) in a.terms.items()} == {k: c for k, (c, _) in b.terms.items()}


def check_radix(digits: Sequence[Digit]) -> None:
    """Raises NotAffine where two digits of one sum can make the same value."""
    reach = 1
    for d in sorted(digits, key=lambda d: abs(d.scale)):
        if abs(d.scale) < reach:
            raise NotAffine
        reach = abs(d.scale) * (d.extent - 1) + reach


def covers(source: Source) -> bool:
    """Whether every digit of a source occurs (once or more)."""
    reached = 1
    for low, high in sorted(source.digits):
        if low > reached:
            return False
        reached = max(reached, high)
    return reached >= source.extent


def _without_widening(value: PrimExpr) -> PrimExpr:
    """The value with int32 where it is widened to int64, which keeps the numbers."""
    if not any(isinstance(x, E.Cast) for x in preorder(value)):
        return value

    def step(x: object) -> object:
        if isinstance(x, E.Cast) and x.dtype == "int64" and x.value.dtype == "int32":
            return x.value
        return x

    return rewrite(value, step)


def is_injective(
    values: Iterable[PrimExpr], variables: Mapping[Var, int], analyzer: Analyzer, conditions: Iterable[PrimExpr] = ()
) -> bool:
    """Whether `values` provably differ wherever `variables` do (others held fixed) and the conditions hold."""
    try:
        return DigitMap(map(_without_widening, values), variables, analyzer, conditions).is_injective()
    except NotAffine:
        return False


def invert(values: Sequence[PrimExpr], variables: Mapping[Var, int], into: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Each variable in terms of `into`, which stand for `values`. Raises NotAffine where no inverse is found.

    (i // 4, i % 4) named (a, b)  ->  i = a * 4 + b
    """
    analyzer = Analyzer({v: (0, n) for v, n in variables.items()})
    digits = DigitMap(values, variables, analyzer)
    if (
        digits.halves
        or not digits.is_exact
        or not digits.is_injective()
        or any(_overlap(s) for s in digits.sources.values())
    ):
        raise NotAffine
    found: dict[int, PrimExpr] = {}
    for b, value in enumerate(into):
        _take_digits(digits, b, E.sub(value, digits.constants[b]), found)
    for key, source in reversed(list(digits.sources.items())):  # a compound source stands after what it is made of
        if not isinstance(source.value, Var):
            _take_digits(digits, key, found[id(source)], found)
    return [found[id(digits.sources[form_key(v)])] if n > 1 else E.const(0, v.dtype) for v, n in variables.items()]


def _take_digits(digits: DigitMap, binding: object, value: PrimExpr, found: dict[int, PrimExpr]) -> None:
    """Add what the digits of one binding say about their sources."""
    mine = sorted((d for d in digits.digits if d.binding == binding), key=lambda d: d.scale)
    for i, d in enumerate(mine):
        digit = E.mul(value, -1) if d.scale == -1 else E.floordiv(value, d.scale)
        if i + 1 < len(mine):
            if d.scale < 0 or mine[i + 1].scale % d.scale:
                raise NotAffine
            digit = E.floormod(digit, mine[i + 1].scale // d.scale)
        part, key = E.mul(digit, d.low), id(d.source)
        found[key] = E.add(found[key], part) if key in found else part


def _overlap(source: Source) -> bool:
    ordered = sorted(source.digits)
    return any(high > low for (_, high), (low, _) in zip(ordered, ordered[1:]))
