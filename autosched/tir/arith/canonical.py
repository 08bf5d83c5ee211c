"""The canonical form of integer expressions, written as TVM's `canonical_simplify` writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched.ir.node import map_children
from autosched.tir import expr as E
from autosched.tir.arith.rewrite import Rewriter
from autosched.tir.dtypes import is_int
from autosched.tir.expr import IntImm, PrimExpr
from autosched.tir.simplify import Analyzer as Core
from autosched.tir.simplify import fold


def canonical(core: Core, x: PrimExpr, facts: Sequence[PrimExpr] = ()) -> PrimExpr:
    """Sums of multiples, each part once, largest factor first; digits of a number recombined.

    x * 4 + y + y      ->  x * 4 + y * 2
    x // 8 * 8 + x % 8 // 4 * 4 + x % 4  ->  x
    """
    return _Writer(core, facts).written(core.simplify(_digits(core, x)))


def _digits(core: Core, x: PrimExpr) -> PrimExpr:
    """`x % 8 // 4` as `x // 4 % 2`, the form that sums recombine; `truncdiv` of what is not negative as `//`."""
    new = map_children(x, lambda child: _digits(core, child) if isinstance(child, PrimExpr) else child)
    match new:
        case E.FloorDiv(a=E.FloorMod(a=whole, b=IntImm(value=c)), b=IntImm(value=d)) if d > 0 and c % d == 0:
            return E.floormod(E.floordiv(whole, d), c // d)
        case E.Div() | E.Mod() if is_int(new.dtype):
            low, divisor = core.bound(new.a)[0], core.bound(new.b)[0]
            if low is not None and low >= 0 and divisor is not None and divisor > 0:
                return E.floordiv(new.a, new.b) if isinstance(new, E.Div) else E.floormod(new.a, new.b)
    return new


class _Writer:
    """Writes what the core found in TVM's order; the rules apply to what is neither a sum nor a division."""

    def __init__(self, core: Core, facts: Sequence[PrimExpr]):
        self.rules = Rewriter(core, facts)

    def written(self, x: PrimExpr) -> PrimExpr:
        """The parts of sums in order: larger factors first, subtracted parts last."""
        if isinstance(x, E.Add | E.Sub | E.Mul) and is_int(x.dtype):
            terms: list[tuple[int, PrimExpr]] = []
            const = _terms(x, 1, terms)
            if len(terms) != 1 or const or terms[0][0] < 0 or isinstance(x, E.Add | E.Sub):
                return self._sum(terms, const, x.dtype)
            (scale, atom), *_ = terms
            return E.mul(self.written(atom), scale) if atom is not x else self._children(x)
        new = self._children(x)
        match new:
            case E.FloorMod(a=E.FloorDiv(a=whole, b=IntImm(value=d)), b=IntImm(value=m)) if d > 0 and m > 0:
                return E.floordiv(E.floormod(whole, d * m), d)
            case E.FloorDiv(a=E.Mul(a=a, b=b), b=c) if _same(b, c):
                return a
            case E.FloorDiv(a=E.Mul(a=a, b=b), b=c) if _same(a, c):
                return b
            case E.FloorMod(a=E.Mul(a=a, b=b), b=c) if _same(a, c) or _same(b, c):
                return IntImm(0, new.dtype)
        return new if isinstance(new, E.FloorDiv | E.FloorMod) else self.rules.root(new)

    def _children(self, x: PrimExpr) -> PrimExpr:
        return fold(map_children(x, lambda child: self.written(child) if isinstance(child, PrimExpr) else child))

    def _sum(self, terms: list[tuple[int, PrimExpr]], const: int, dtype: str) -> PrimExpr:
        written = [
            (scale, self._children(atom) if isinstance(atom, E.Mul) else self.written(atom)) for scale, atom in terms
        ]
        written.sort(key=_rank)
        result = IntImm(0, dtype) if const < 0 else IntImm(const, dtype)
        positive = [(scale, atom) for scale, atom in written if scale > 0]
        total: PrimExpr | None = None
        for scale, atom in positive:
            part = E.mul(atom, scale)
            total = part if total is None else E.add(total, part)
        total = result if total is None else E.add(total, result)
        for scale, atom in written:
            if scale < 0:
                part = E.mul(atom, -scale)
                total = E.Sub(total, part)
        return E.sub(total, -const) if const < 0 else total


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    return isinstance(a, E.Var) and a is b


def _terms(x: PrimExpr, scale: int, found: list[tuple[int, PrimExpr]]) -> int:
    """The constant of a sum times `scale`; its other parts go to `found`."""
    match x:
        case IntImm():
            return scale * x.value
        case E.Add():
            return _terms(x.a, scale, found) + _terms(x.b, scale, found)
        case E.Sub():
            return _terms(x.a, scale, found) + _terms(x.b, -scale, found)
        case E.Mul(b=IntImm(value=c)):
            return _terms(x.a, scale * c, found)
    found.append((scale, x))
    return 0


def _rank(term: tuple[int, PrimExpr]) -> tuple[float, float, float]:
    """Larger factors first, then what is divided by more, then the remainder of more."""
    scale, atom = term
    lower, upper = 1.0, math.inf
    if isinstance(atom, E.FloorDiv) and isinstance(atom.b, IntImm):
        lower, atom = atom.b.value, atom.a
    if isinstance(atom, E.FloorMod) and isinstance(atom.b, IntImm):
        upper = atom.b.value
    return -scale, -lower, -upper


def shifts_as_divisions(x: PrimExpr) -> PrimExpr:
    """`x >> 4` as `x // 16`, `x << 4` as `x * 16` and `x & 15` as `x % 16`, which have ranges."""
    new = map_children(x, lambda child: shifts_as_divisions(child) if isinstance(child, PrimExpr) else child)
    match new:
        case E.Call(op="shift_right", args=(a, IntImm(value=n))) if 0 <= n < 63:
            return E.floordiv(a, E.const(1 << n, a.dtype))
        case E.Call(op="shift_left", args=(a, IntImm(value=n))) if 0 <= n < 31:
            return E.mul(a, E.const(1 << n, a.dtype))
        case E.Call(op="bitwise_and", args=(a, IntImm(value=mask))) if mask >= 0 and mask & (mask + 1) == 0:
            return E.floormod(a, E.const(mask + 1, a.dtype))
    return new


def residue(core: Core, x: PrimExpr) -> tuple[int, int]:
    """(coeff, base): every value of `x` is a multiple of coeff, plus base; coeff 0: `x` is base."""
    linear = core.linear(core.simplify(x))
    coeff, base = 0, linear.const
    for scale, atom in linear.terms.values():
        c, b = _residue_of_atom(core, atom)
        coeff, base = math.gcd(coeff, scale * c), base + scale * b
    return coeff, base % coeff if coeff else base


def _residue_of_atom(core: Core, x: PrimExpr) -> tuple[int, int]:
    match x:
        case E.Mul():
            (c, b), (d, e) = residue(core, x.a), residue(core, x.b)
            coeff = math.gcd(c * d, c * e, b * d)
            return coeff, b * e % coeff if coeff else b * e
        case E.Min() | E.Max():
            return _either(residue(core, x.a), residue(core, x.b))
        case E.Select():
            return _either(residue(core, x.true_value), residue(core, x.false_value))
        case E.FloorMod(b=IntImm(value=m)) if m > 0:
            c, b = residue(core, x.a)
            coeff = math.gcd(c, m)
            return coeff, b % coeff
    return 1, 0


def _either(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    (c, b), (d, e) = first, second
    coeff = math.gcd(c, d, abs(b - e))
    return coeff, b % coeff if coeff else b
