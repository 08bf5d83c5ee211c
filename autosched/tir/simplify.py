"""Integer arithmetic of indices: bounds, a canonical linear form, and proofs of simple conditions.

`Analyzer` knows ranges of variables and simplifies with them:

    i * 4 + j) // 4  ->  i          where 0 <= j < 4
    i // 4 * 4 + i % 4  ->  i
    i // 4 % 8 * 4 + i % 4  ->  i % 32
    i < 16  ->  True                where 0 <= i < 16
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autosched.ir.node import Node, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import fits, is_int
from autosched.tir.expr import IntImm, PrimExpr, Var

T = TypeVar("T")
INDEX_DTYPES = ("int32", "int64")  # arithmetic of indices never wraps; that of other integers, which are data, may
Bound = tuple[int | None, int | None]  # inclusive; None is unbounded

_FOLD: dict[type, Callable[[Any], PrimExpr]] = {
    E.Add: lambda x: E.add(x.a, x.b), E.Sub: lambda x: E.sub(x.a, x.b), E.Mul: lambda x: E.mul(x.a, x.b),
    E.Div: lambda x: E.div(x.a, x.b), E.Mod: lambda x: E.truncmod(x.a, x.b),
    E.FloorDiv: lambda x: E.floordiv(x.a, x.b), E.FloorMod: lambda x: E.floormod(x.a, x.b),
    E.Min: lambda x: E.minimum(x.a, x.b), E.Max: lambda x: E.maximum(x.a, x.b),
    E.EQ: lambda x: E.compare(E.EQ, x.a, x.b), E.NE: lambda x: E.compare(E.NE, x.a, x.b),
    E.LT: lambda x: E.compare(E.LT, x.a, x.b), E.LE: lambda x: E.compare(E.LE, x.a, x.b),
    E.GT: lambda x: E.compare(E.GT, x.a, x.b), E.GE: lambda x: E.compare(E.GE, x.a, x.b),
    E.And: lambda x: E.logical_and(x.a, x.b), E.Or: lambda x: E.logical_or(x.a, x.b),
    E.Not: lambda x: E.logical_not(x.a), E.Select: lambda x: E.select(x.condition, x.true_value, x.false_value),
    E.Cast: lambda x: E.cast(x.dtype, x.value),
}  # fmt: skip


_CONSTANTS = (IntImm, E.FloatImm)


def _stays(x: E.BinaryOp) -> bool:
    """Whether folding leaves `x` alone: one type, and one constant at most, which is neither 0 nor 1."""
    a, b = x.a, x.b
    if isinstance(a, _CONSTANTS):
        return not isinstance(b, _CONSTANTS) and a.value not in (0, 1) and a.dtype == b.dtype
    return not (isinstance(b, _CONSTANTS) and b.value in (0, 1)) and a.dtype == b.dtype


def fold(x: PrimExpr) -> PrimExpr:
    """`x` itself, or what constant folding at its root makes of it."""
    if isinstance(x, E.BinaryOp):
        if _stays(x):
            return x
    elif isinstance(x, E.Call) and x.op == "if_then_else" and isinstance(x.args[0], IntImm):
        return x.args[1] if x.args[0].value else x.args[2]
    folder = _FOLD.get(type(x))
    if folder is None:
        return x
    new = folder(x)
    if type(new) is type(x) and all(a is b for a, b in zip(_operands(new), _operands(x), strict=True)):
        return x
    return new


def _operands(x: PrimExpr) -> tuple[PrimExpr, ...]:
    if isinstance(x, E.BinaryOp):
        return x.a, x.b
    if isinstance(x, E.Select):
        return x.condition, x.true_value, x.false_value
    if isinstance(x, E.Not):
        return (x.a,)
    assert isinstance(x, E.Cast)
    return (x.value,)


class FormKey:
    """The form of an operation: what it is, then the keys of its operands.

    The hash is kept, and keys found equal share their parts, so a form with shared parts is compared in linear time.
    """

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[object, ...]):
        self.parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FormKey) or self._hash != other._hash:
            return False
        if self.parts is other.parts:
            return True
        if self.parts != other.parts:
            return False
        other.parts = self.parts
        return True


def form_key(x: PrimExpr) -> Hashable:
    """A hashable key; equal for expressions of one form over the same variables and buffers.

    A node keeps the key of its form, so what has long chains of operations in common is not walked again.
    """
    if isinstance(x, Var):
        return id(x)
    known = getattr(x, "form", None)
    if known is not None:
        return known  # type: ignore[no-any-return]
    parts: tuple[Hashable, ...]
    operands: tuple[PrimExpr, ...]
    match x:
        case IntImm() | E.FloatImm() | E.StringImm():
            return (x.value, x.dtype)
        case E.BinaryOp():
            parts, operands = (type(x).__name__,), (x.a, x.b)
        case E.Cast():
            parts, operands = ("Cast", x.dtype), (x.value,)
        case E.Not():
            parts, operands = ("Not",), (x.a,)
        case E.Select():
            parts, operands = ("Select",), (x.condition, x.true_value, x.false_value)
        case E.Call():
            parts, operands = ("Call", x.op, x.dtype), x.args
        case BufferLoad():
            parts, operands = ("Load", id(x.buffer)), x.indices
        case _:
            return ("id", id(x))
    key = FormKey((*parts, *map(form_key, operands)))
    object.__setattr__(x, "form", key)
    return key


@dataclass(slots=True)
class Linear:
    """const + sum of coefficient * atom; atoms are not sums, and each occurs once."""

    const: int = 0
    terms: dict[Hashable, tuple[int, PrimExpr]] = field(default_factory=dict)

    def add(self, other: Linear, scale: int = 1) -> Linear:
        self.const += scale * other.const
        for key, (c, atom) in other.terms.items():
            self.add_term(key, c * scale, atom)
        return self

    def add_term(self, key: Hashable, coefficient: int, atom: PrimExpr) -> None:
        known = self.terms.get(key)
        total = coefficient if known is None else known[0] + coefficient
        if total:
            self.terms[key] = (total, atom)
        else:
            self.terms.pop(key, None)

    def scaled(self, scale: int) -> Linear:
        return Linear().add(self, scale)

    @staticmethod
    def of(atom: PrimExpr) -> Linear:
        return Linear(0, {form_key(atom): (1, atom)})

    def build(self, dtype: str) -> PrimExpr:
        result: PrimExpr | None = None
        terms = list(self.terms.values())
        if terms and terms[0][0] < 0:  # y - x and 9 - x rather than x * -1 + y
            terms.sort(key=lambda term: term[0] < 0)
            if terms[0][0] < 0 < self.const:
                result = IntImm(self.const, dtype)
        constant = self.const if result is None else 0
        for c, atom in terms:
            if result is None:
                result = atom if c == 1 else E.mul(atom, c)
            elif c < 0:
                result = E.sub(result, atom if c == -1 else E.mul(atom, -c))
            else:
                result = E.add(result, atom if c == 1 else E.mul(atom, c))
        if result is None:
            return IntImm(self.const, dtype)
        return E.sub(result, -constant) if constant < 0 else E.add(result, constant)


class Analyzer:
    """Knows ranges of variables; simplifies and proves with them."""

    def __init__(
        self,
        ranges: Mapping[Var, Range | tuple[int, int]] | None = None,
        *,
        keep_units: bool = False,
        trust_checks: bool = False,
    ):
        self.bounds: dict[Var, Bound] = {}
        self.below: dict[Var, PrimExpr] = {}  # expressions that variables stay below: symbolic extents of loops
        self.trust_checks = trust_checks  # `check_index` is in range: for proofs; folding would drop it
        self.data_wraps = False  # whether arithmetic on what buffers hold may wrap: not in an index
        self.keep_units = keep_units  # a variable of one value stays a variable (its value is still known to proofs)
        self._known: dict[tuple[str, int], tuple[PrimExpr, object]] | None = None  # while a question is being answered
        for var, r in (ranges or {}).items():
            self.bind(var, r)

    def copy(self) -> Analyzer:
        other = Analyzer(keep_units=self.keep_units, trust_checks=self.trust_checks)
        other.bounds, other.below, other.data_wraps = dict(self.bounds), dict(self.below), self.data_wraps
        return other

    def bind(self, var: Var, r: Range | tuple[int, int] | PrimExpr) -> None:
        """Say that `var` lies in a Range, or in [start, extent) given as (start, extent) integers, or equals r."""
        if isinstance(r, tuple):
            self.bounds[var] = (r[0], r[0] + r[1] - 1)
        elif isinstance(r, PrimExpr):
            self.bounds[var] = self.bound(r)
        else:
            low, extent = self.bound(r.min), self.bound(r.extent)
            high = None if low[1] is None or extent[1] is None else low[1] + extent[1] - 1
            self.bounds[var] = (low[0], high)

    def assume(self, fact: PrimExpr) -> None:
        """Narrow the ranges of the variables of a comparison: `3 * i + 1 < 8`, or `4 * i + j < 4` where `0 <= j`."""
        if isinstance(fact, E.EQ) and is_int(fact.a.dtype):
            self.assume(E.LE(fact.a, fact.b))
            self.assume(E.GE(fact.a, fact.b))
            return
        if not isinstance(fact, E.LT | E.LE | E.GT | E.GE) or not is_int(fact.a.dtype):
            return
        less = isinstance(fact, E.LT | E.LE)
        small, large = (fact.a, fact.b) if less else (fact.b, fact.a)
        linear = self.linear(E.sub(large, small))
        linear.const -= 1 if isinstance(fact, E.LT | E.GT) else 0  # 0 <= linear
        for key, (scale, atom) in linear.terms.items():
            if not isinstance(atom, Var):
                continue
            _, rest = self._linear_bound(Linear(linear.const, {k: t for k, t in linear.terms.items() if k != key}))
            if rest is None:
                continue
            low, high = self.bounds.get(atom, (0, None) if isinstance(atom, E.SizeVar) else (None, None))
            if scale > 0:
                least = -(rest // scale)
                low = least if low is None else max(low, least)
            else:
                most = rest // -scale
                high = most if high is None else min(high, most)
            self.bounds[atom] = (low, high)

    def _once(self, what: str, x: PrimExpr, answer: Callable[[PrimExpr], object]) -> Any:
        """`answer(x)`, found once for each node while the outermost question is answered: then no range changes.

        The nodes are kept, so that their ids stay their own.
        """
        if self._known is None:
            self._known = {}
            try:
                return answer(x)
            finally:
                self._known = None
        found = self._known.get((what, id(x)))
        if found is None:
            found = self._known[what, id(x)] = x, answer(x)
        return found[1]

    # --- bounds ---------------------------------------------------------------------------------------------------

    def bound(self, x: PrimExpr | int) -> Bound:
        """Inclusive lower and upper bound of an integer expression, None where unknown."""
        if isinstance(x, int):
            return x, x
        if isinstance(x, IntImm):
            return x.value, x.value
        if isinstance(x, Var):
            return self._atom_bound(x)
        result: Bound = self._once("bound", x, lambda x: self._linear_bound(self.linear(x)))
        return result

    def _linear_bound(self, linear: Linear) -> Bound:
        low: int | None = linear.const
        high: int | None = linear.const
        for c, atom in linear.terms.values():
            lo, hi = self._atom_bound(atom)
            if c < 0:
                lo, hi = hi, lo
            low = None if low is None or lo is None else low + c * lo
            high = None if high is None or hi is None else high + c * hi
        return low, high

    def _atom_bound(self, x: PrimExpr) -> Bound:
        if isinstance(x, Var):
            return self.bounds.get(x, (0, None) if isinstance(x, E.SizeVar) else (None, None))
        result: Bound = self._once("atom", x, self._bound_of_atom)
        return result

    def _bound_of_atom(self, x: PrimExpr) -> Bound:
        match x:
            case E.FloorMod(b=IntImm(value=c)) if c > 0:
                low, high = self.bound(x.a)
                inside = low is not None and low >= 0 and high is not None
                return 0, (min(high, c - 1) if inside and high is not None else c - 1)
            case E.FloorDiv(b=IntImm(value=c)) if c > 0:
                low, high = self.bound(x.a)
                return (None if low is None else low // c), (None if high is None else high // c)
            case E.FloorMod() | E.FloorDiv() if (least := self.bound(x.b)[0]) is not None and least > 0:
                if isinstance(x, E.FloorMod):
                    most = self.bound(x.b)[1]
                    return 0, None if most is None else most - 1
                low, high = self.bound(x.a)
                return (0, None if high is None else high // least) if low is not None and low >= 0 else (None, None)
            case E.Min():
                (a, b), (c_, d) = self.bound(x.a), self.bound(x.b)
                return _both(min, a, c_), _either(min, b, d)
            case E.Max():
                (a, b), (c_, d) = self.bound(x.a), self.bound(x.b)
                return _either(max, a, c_), _both(max, b, d)
            case E.Select():
                (a, b), (c_, d) = self.bound(x.true_value), self.bound(x.false_value)
                return _both(min, a, c_), _both(max, b, d)
            case E.Call(op="if_then_else"):
                (a, b), (c_, d) = self.bound(x.args[1]), self.bound(x.args[2])
                return _both(min, a, c_), _both(max, b, d)
            case E.Call(op="check_index") if self.trust_checks:
                most = E.const_int(x.args[2])
                return 0, None if most is None else max(most - 1, 0)
            case E.Mul():
                pairs = [self.bound(x.a), self.bound(x.b)]
                if any(v is None for p in pairs for v in p):
                    nonnegative = x.dtype in INDEX_DTYPES and all(p[0] is not None and p[0] >= 0 for p in pairs)
                    return (0 if nonnegative else None), None
                products = [p * q for p in pairs[0] for q in pairs[1]]  # type: ignore[operator]
                return _unless_wrapped(x.dtype, (min(products), max(products)))
            case E.Cast() if is_int(x.value.dtype):
                return _unless_wrapped(x.dtype, self.bound(x.value))
            case _:
                return (0, 1) if x.dtype == "bool" else (None, None)

    # --- canonical form -------------------------------------------------------------------------------------------

    def linear(self, x: PrimExpr) -> Linear:
        """The canonical linear form of an integer expression, the caller's own to change."""
        if isinstance(x, (IntImm, Var)):
            return self._linear(x)
        found: Linear = self._once("linear", x, self._linear)
        return Linear(found.const, dict(found.terms))

    def _linear(self, x: PrimExpr) -> Linear:
        match x:
            case IntImm():
                return Linear(x.value)
            case Var():
                low, high = self.bounds.get(x, (None, None))
                return Linear(low) if low is not None and low == high and not self.keep_units else Linear.of(x)
            case E.Add() | E.Sub() | E.Mul():
                found = self._arithmetic(x)
                if not self._may_wrap(x.dtype, found):
                    return found
                folded = fold(map_children(x, self._simplified_child))
                return Linear(folded.value) if isinstance(folded, IntImm) else Linear.of(folded)
            case E.FloorDiv(b=IntImm(value=c)) if c > 0:
                return self._floordiv(self.linear(x.a), c, x.dtype)
            case E.FloorMod(b=IntImm(value=c)) if c > 0:
                return self._floormod(self.linear(x.a), c, x.dtype)
            case E.Min() | E.Max():
                return self._extremum(x)
            case BufferLoad() if self.data_wraps:
                return Linear.of(self._simplified_load(x))
            case _:
                folded = fold(map_children(x, self._simplified_child))
                return Linear(folded.value) if isinstance(folded, IntImm) else Linear.of(folded)

    def _may_wrap(self, dtype: str, result: Linear) -> bool:
        """Whether a sum or product of operands that have not wrapped may leave its type."""
        if dtype in INDEX_DTYPES and not (self.data_wraps and any(_reads(atom) for _, atom in result.terms.values())):
            return False
        low, high = self._linear_bound(result)
        return low is None or high is None or not (fits(low, dtype) and fits(high, dtype))

    def _simplified_load(self, x: BufferLoad) -> PrimExpr:
        """A load whose indices are simplified as such."""
        known, self._known, self.data_wraps = self._known, None, False
        try:
            return fold(map_children(x, self._simplified_child))
        finally:
            self._known, self.data_wraps = known, True

    def _arithmetic(self, x: E.Add | E.Sub | E.Mul) -> Linear:
        """A sum, difference or product that does not wrap."""
        left, right = self.linear(x.a), self.linear(x.b)
        if not isinstance(x, E.Mul):
            return self._recombine(left.add(right, 1 if isinstance(x, E.Add) else -1))
        if not right.terms:
            return left.scaled(right.const)
        if not left.terms:
            return right.scaled(left.const)
        return Linear.of(E.mul(left.build(x.dtype), right.build(x.dtype)))

    def _extremum(self, x: E.Min | E.Max) -> Linear:
        a, b = self.linear(x.a), self.linear(x.b)
        low, high = self._linear_bound(Linear().add(a).add(b, -1))
        if low is not None and low >= 0:
            return b if isinstance(x, E.Min) else a
        if high is not None and high <= 0:
            return a if isinstance(x, E.Min) else b
        return Linear.of(type(x)(a.build(x.dtype), b.build(x.dtype)))

    def _split_multiples(self, x: Linear, c: int) -> tuple[Linear, Linear]:
        """x = c * q + r, with in r only terms whose coefficient c does not divide, and a constant in [0, c)."""
        q, r = Linear(x.const // c), Linear(x.const % c)
        for key, (k, atom) in x.terms.items():
            if k % c == 0:
                q.terms[key] = (k // c, atom)
            else:
                r.terms[key] = (k, atom)
        return q, r

    def _coarse_part(self, r: Linear, c: int) -> tuple[int, Linear, Linear] | None:
        """(g, big, rest): r = g * big + rest with g > 1 dividing c and rest proven to lie in [0, g)."""
        for g in sorted({math.gcd(k, c) for k, _ in r.terms.values()} - {1}, reverse=True):
            big, rest = self._split_multiples(r, g)
            low, high = self._linear_bound(rest)
            if big.terms and low is not None and low >= 0 and high is not None and high < g:
                return g, big, rest
        return None

    def _floordiv(self, x: Linear, c: int, dtype: str) -> Linear:
        if c == 1:
            return x
        q, r = self._split_multiples(x, c)
        low, high = self._linear_bound(r)
        if low is not None and high is not None and low // c == high // c:
            q.const += low // c
            return q
        coarse = self._coarse_part(r, c)
        if coarse is not None:
            g, big, _ = coarse
            return q.add(self._floordiv(big, c // g, dtype)) if c // g > 1 else q.add(big)
        if r.const == 0 and len(r.terms) == 1:
            ((k, atom),) = r.terms.values()
            if k == 1 and isinstance(atom, E.FloorDiv) and isinstance(atom.b, IntImm) and atom.b.value > 0:
                return q.add(self._floordiv(self.linear(atom.a), c * atom.b.value, dtype))
        return q.add(Linear.of(E.FloorDiv(r.build(dtype), IntImm(c, dtype))))

    def _floormod(self, x: Linear, c: int, dtype: str) -> Linear:
        if c == 1:
            return Linear()
        _, r = self._split_multiples(x, c)
        small = Linear(r.const, {key: (k if 0 < k < c else k % c, atom) for key, (k, atom) in r.terms.items()})
        low, high = self._linear_bound(small)
        if low is not None and high is not None and low // c == high // c:
            small.const -= low // c * c
            return small
        if len(r.terms) == 1:  # a sum keeps its coefficients: `x // c` has the same ones, and both are digits of one x
            r = small
        coarse = self._coarse_part(r, c)
        if coarse is not None:
            g, big, rest = coarse
            return rest.add(self._floormod(big, c // g, dtype), g)
        if r.const == 0 and len(r.terms) == 1:
            ((k, atom),) = r.terms.values()
            inner = atom.b if isinstance(atom, E.FloorMod) else None
            if k == 1 and isinstance(inner, IntImm) and inner.value % c == 0:
                return self._floormod(self.linear(atom.a), c, dtype)  # type: ignore[attr-defined]
        return Linear.of(E.FloorMod(r.build(dtype), IntImm(c, dtype)))

    def _recombine(self, x: Linear) -> Linear:
        """x // c * c + x % c -> x, and x // c % b * c + x % c -> x % (b * c), for every pair of such terms."""
        for key, (k, atom) in list(x.terms.items()):
            if not isinstance(atom, E.FloorMod) or not isinstance(atom.b, IntImm) or key not in x.terms:
                continue
            c = atom.b.value
            whole = self.linear(atom.a)
            for quotient in (self._floordiv(whole, c, atom.dtype), self._joined_quotient(whole, c, atom.dtype)):
                if quotient is None or quotient.const or len(quotient.terms) != 1:
                    continue
                ((qk, (one, _)),) = quotient.terms.items()
                if one == 1 and qk in x.terms and x.terms[qk][0] == k * c:
                    del x.terms[key], x.terms[qk]
                    x.add(whole, k)
                    break
            else:
                if self._join_digits(x, key, whole, c):
                    return self._recombine(x)
        return x

    def _join_digits(self, x: Linear, low: Hashable, whole: Linear, c: int) -> bool:
        """Whether `whole % c` and the digit above it have become one, whole % (b * c).

        The digit is whole // c % b or whole % (b * c) // c.
        """
        k, atom = x.terms[low]
        quotient = self._floordiv(Linear(whole.const, dict(whole.terms)), c, atom.dtype)
        for high, (other, digit) in x.terms.items():
            b = _digit_base(digit, c) if other == k * c else None
            if b is None:
                continue
            joined = self._floormod(Linear(whole.const, dict(whole.terms)), b * c, atom.dtype)
            forms = (
                self._floormod(Linear(quotient.const, dict(quotient.terms)), b, atom.dtype),
                self._floordiv(Linear(joined.const, dict(joined.terms)), c, atom.dtype),
            )
            if any(not f.const and [(key, n) for key, (n, _) in f.terms.items()] == [(high, 1)] for f in forms):
                del x.terms[low], x.terms[high]
                x.add(joined, k)
                return True
        return False

    def _joined_quotient(self, x: Linear, c: int, dtype: str) -> Linear | None:
        """(i * 4 + j // 8) // 14 as (i * 32 + j) // 112: what the coarser digit of one number is where it was cut."""
        parts = [
            (key, atom, atom.b.value)
            for key, (k, atom) in x.terms.items()
            if k == 1 and isinstance(atom, E.FloorDiv) and isinstance(atom.b, IntImm) and atom.b.value > 0
        ]
        if len(parts) != 1 or len(x.terms) == 1:
            return None
        ((key, atom, d),) = parts
        rest = Linear(x.const, {other: term for other, term in x.terms.items() if other != key})
        return self._floordiv(rest.scaled(d).add(self.linear(atom.a)), c * d, dtype)

    # --- whole expressions ----------------------------------------------------------------------------------------

    def simplify(self, x: PrimExpr) -> PrimExpr:
        """An equal expression, simpler where the ranges allow; `x` itself where nothing changed."""
        if isinstance(x, Var):
            low, high = self.bounds.get(x, (None, None))
            if low is None or low != high or self.keep_units or not is_int(x.dtype) or x.dtype == "bool":
                return x
            return IntImm(low, x.dtype)
        if isinstance(x, (IntImm, E.FloatImm, E.StringImm)):
            return x
        result: PrimExpr = self._once("simplify", x, self._simplified)
        return result

    def _simplified(self, x: PrimExpr) -> PrimExpr:
        if isinstance(x, E.CmpOp) and not isinstance(x, (E.And, E.Or)) and is_int(x.a.dtype):
            return self._compare(x)
        if (dtype := x.dtype) != "bool" and is_int(dtype):
            new = E.cast(dtype, self.linear(x).build(dtype))
            return x if form_key(new) == form_key(x) else new
        if isinstance(x, BufferLoad) and self.data_wraps:
            return self._simplified_load(x)
        return fold(map_children(x, self._simplified_child))

    def _simplified_child(self, x: Node) -> Node:
        return self.simplify(x) if isinstance(x, PrimExpr) else x

    def _compare(self, x: E.CmpOp) -> PrimExpr:
        a, b = self.linear(x.a), self.linear(x.b)
        difference = Linear().add(a).add(b, -1)
        truth = _decide(x, *self._linear_bound(difference))
        if truth is None and self.below and isinstance(x, E.LT | E.LE):
            truth = _decide(x, None, self._linear_bound(self._largest(difference))[1])
        if truth is not None:
            return IntImm(int(truth), "bool")
        new = E.compare(type(x), a.build(x.a.dtype), b.build(x.a.dtype))
        return x if form_key(new) == form_key(x) else new

    def _largest(self, x: Linear) -> Linear:
        """A sum that is not smaller, with what variables stay below in their places."""
        found = Linear(x.const)
        for key, (scale, atom) in x.terms.items():
            end = self.below.get(atom) if isinstance(atom, Var) and scale > 0 else None
            if end is None:
                found.add_term(key, scale, atom)
            else:
                found.add(self.linear(end), scale).const -= scale
        return found

    def for_values(self) -> Analyzer:
        """What simplifies values that are stored: sums of what buffers hold may wrap there, not so in indices."""
        other = self.copy()
        other.data_wraps = True
        return other

    def can_prove(self, condition: PrimExpr) -> bool:
        """Whether the condition holds for all values in the known ranges (False: not proven)."""
        result = self.simplify(condition)
        return isinstance(result, IntImm) and bool(result.value)

    def can_prove_equal(self, a: PrimExpr | int, b: PrimExpr | int) -> bool:
        return self.can_prove(E.compare(E.EQ, a, b))


def _digit_base(x: PrimExpr, c: int) -> int | None:
    """b where x has the form of a digit above the last of c: y % b, or y % (b * c) // c."""
    if isinstance(x, E.FloorMod) and isinstance(x.b, IntImm):
        return x.b.value
    if not isinstance(x, E.FloorDiv) or not isinstance(x.a, E.FloorMod) or not isinstance(x.a.b, IntImm):
        return None
    size = x.a.b.value
    return size // c if isinstance(x.b, IntImm) and x.b.value == c and size % c == 0 else None


def _decide(x: E.CmpOp, low: int | None, high: int | None) -> bool | None:
    """The truth of `a op b` from the bounds of a - b, or None."""
    below, above = high is not None and high < 0, low is not None and low > 0
    not_above, not_below = high is not None and high <= 0, low is not None and low >= 0
    match x:
        case E.LT():
            return True if below else False if not_below else None
        case E.LE():
            return True if not_above else False if above else None
        case E.GT():
            return True if above else False if not_above else None
        case E.GE():
            return True if not_below else False if below else None
        case E.EQ():
            return True if not_above and not_below else False if below or above else None
        case _:
            return False if not_above and not_below else True if below or above else None


def _reads(x: PrimExpr) -> bool:
    """Whether an expression depends on what a buffer holds."""
    return any(isinstance(node, BufferLoad) for node in preorder(x))


def _unless_wrapped(dtype: str, bound: Bound) -> Bound:
    """The bound of what arithmetic or a cast gives; nothing is known of it where the type may not have all of it."""
    if dtype in INDEX_DTYPES or dtype == "bool":
        return bound
    low, high = bound
    return bound if low is not None and high is not None and fits(low, dtype) and fits(high, dtype) else (None, None)


def _both(f: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else f(a, b)


def _either(f: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else f(a, b)


def simplify(x: PrimExpr, ranges: Mapping[Var, Range | tuple[int, int]] | None = None) -> PrimExpr:
    """Simplify with known variable ranges (a Range, or (start, extent))."""
    return Analyzer(ranges).simplify(x)


def split_conditions(x: PrimExpr) -> Iterable[PrimExpr]:
    """The conjuncts of a condition: a and (b and c) gives a, b, c."""
    if isinstance(x, E.And):
        yield from split_conditions(x.a)
        yield from split_conditions(x.b)
    elif not (isinstance(x, IntImm) and x.value):
        yield x
