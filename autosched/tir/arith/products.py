"""Sums of products of symbols: whether they are equal and what divides them, whatever the order of the factors."""

from __future__ import annotations

from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.simplify import form_key

_Terms = dict[tuple[object, ...], tuple[int, tuple[PrimExpr, ...]]]  # keys of the factors -> number, factors


def terms(x: PrimExpr) -> _Terms:
    """The products of a sum; a quotient or remainder counts as one factor."""
    value = const_int(x)
    if value is not None:
        return {(): (value, ())} if value else {}
    if isinstance(x, E.Add | E.Sub):
        found = terms(x.a)
        for key, (number, factors) in terms(x.b).items():
            number = found.get(key, (0, ()))[0] + (number if isinstance(x, E.Add) else -number)
            found[key] = (number, factors)
        return {k: t for k, t in found.items() if t[0]}
    if isinstance(x, E.Mul):
        found = {}
        for a, some in terms(x.a).values():
            for b, others in terms(x.b).values():
                factors = tuple(sorted((*some, *others), key=lambda f: repr(form_key(f))))
                key = tuple(map(form_key, factors))
                found[key] = (found.get(key, (0, ()))[0] + a * b, factors)
        return {k: t for k, t in found.items() if t[0]}
    return {(form_key(x),): (1, (x,))}


def _build(products: _Terms, dtype: str) -> PrimExpr:
    total: PrimExpr = E.const(0, dtype)
    for number, factors in products.values():
        part: PrimExpr | None = None
        for f in factors:
            part = f if part is None else E.mul(part, f)
        part = E.const(number, dtype) if part is None else E.mul(part, number)
        total = E.add(total, part)
    return total


def equal(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two sums have the same products."""
    x, y = terms(a), terms(b)
    return {k: n for k, (n, _) in x.items()} == {k: n for k, (n, _) in y.items()}


def exact_quotient(a: PrimExpr, d: PrimExpr) -> PrimExpr | None:
    """a / d where d is one product that each product of a contains; None where it is not."""
    divisor = list(terms(d).values())
    if len(divisor) != 1:
        return None
    ((number, factors),) = divisor
    found: _Terms = {}
    for n, some in terms(a).values():
        left = list(some)
        for f in factors:
            i = next((i for i, g in enumerate(left) if form_key(g) == form_key(f)), None)
            if i is None:
                return None
            del left[i]
        if n % number:
            return None
        found[tuple(map(form_key, left))] = (n // number, tuple(left))
    return _build(found, a.dtype)
