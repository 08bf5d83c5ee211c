"""What conditions say about a variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.errors import InvalidTypeError
from autosched.tir import expr as E
from autosched.tir.arith.int_set import IntervalSet, interval_of
from autosched.tir.expr import ExprLike, PrimExpr, Var, to_expr
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, split_conditions


def _vars(what: str, variables: object) -> list[Var]:
    given = list(variables) if isinstance(variables, list | tuple) else [variables]
    found = [v for v in given if isinstance(v, Var)]
    if len(found) != len(given):
        raise InvalidTypeError(f"{what}: argument 'var' must be a Var or a list of them")
    return found


def detect_linear_equation(expr: object, var_list: Sequence[Var]) -> list[PrimExpr]:
    """[c1, …, cn, rest] with expr = c1 * v1 + … + rest; an empty list where it is not linear in the variables."""
    variables = _vars("detect_linear_equation", var_list)
    x = to_expr(expr)
    linear = Analyzer().linear(x)
    found = {v: E.const(0, x.dtype) for v in variables}
    rest: PrimExpr = E.const(0, x.dtype)
    for scale, atom in linear.terms.values():
        factors = _factors(atom)
        inside = [f for f in factors if free_vars(f) & set(variables)]
        if not inside:
            rest = E.add(rest, E.mul(atom, scale))
        elif len(inside) == 1 and isinstance(inside[0], Var):
            others = [f for f in factors if f is not inside[0]]
            coefficient: PrimExpr = E.const(1, x.dtype)
            for factor in others:
                coefficient = E.mul(coefficient, factor)
            found[inside[0]] = E.add(found[inside[0]], E.mul(coefficient, scale))
        else:
            return []
    return [*found.values(), E.add(rest, linear.const)]


def _factors(x: PrimExpr) -> list[PrimExpr]:
    return [*_factors(x.a), *_factors(x.b)] if isinstance(x, E.Mul) else [x]


def _bounds(condition: PrimExpr, var: Var) -> tuple[list[PrimExpr], list[PrimExpr]] | None:
    """(lower bounds, upper bounds), both included, that comparisons give for a variable; None for other conditions."""
    lows: list[PrimExpr] = []
    highs: list[PrimExpr] = []
    for c in split_conditions(condition):
        if not isinstance(c, E.LT | E.LE | E.GT | E.GE | E.EQ):
            return None
        small, large = (c.b, c.a) if isinstance(c, E.GT | E.GE) else (c.a, c.b)
        strict = 1 if isinstance(c, E.LT | E.GT) else 0
        parts = detect_linear_equation(E.sub(E.sub(large, small), strict), [var])  # 0 <= k * var + rest
        if not parts:
            return None
        k, rest = E.const_int(parts[0]), parts[1]
        if k is None:
            return None
        simplify = Analyzer().simplify
        if k > 0 or (isinstance(c, E.EQ) and k):
            least = E.sub(0, rest) if abs(k) == 1 else E.floordiv(E.add(E.sub(0, rest), k - 1), abs(k))
            lows.append(simplify(least if k > 0 else rest))
        if k < 0 or (isinstance(c, E.EQ) and k):
            highs.append(simplify(E.floordiv(rest, -k) if k < 0 else E.sub(0, rest)))
    return lows, highs


def detect_clip_bound(expr: object, var_list: Sequence[Var]) -> list[PrimExpr | None]:
    """[least, greatest] of each variable that conditions joined by `and` say; empty where they say something else."""
    result: list[PrimExpr | None] = []
    for var in _vars("detect_clip_bound", var_list):
        found = _bounds(to_expr(expr), var)
        if found is None:
            return []
        lows, highs = found
        low, high = (lows[0] if lows else None), (highs[0] if highs else None)
        for x in lows[1:]:
            low = E.maximum(low, x)  # type: ignore[arg-type]
        for x in highs[1:]:
            high = E.minimum(high, x)  # type: ignore[arg-type]
        result += [low, high]
    return result


def deduce_bound(
    var: Var,
    cond: ExprLike,
    hint_map: Mapping[Var, IntervalSet] | None = None,
    relax_map: Mapping[Var, IntervalSet] | None = None,
) -> IntervalSet:
    """The interval of a variable in which a condition holds for all values that `relax_map` gives other variables.

    hint_map  what is known of variables that are not among those
    """
    known = Analyzer()
    for v, hint in (hint_map or {}).items():
        known.bounds[v] = (E.const_int(hint.min_value), E.const_int(hint.max_value))
    found = _bounds(to_expr(cond), *_vars("deduce_bound", var))
    if found is None or not any(found):
        return IntervalSet(None, None)
    low = high = None
    for x in found[0]:
        most = interval_of(x, relax_map or {}, known).max_value
        low = most if low is None or most is None else E.maximum(low, most)
    for x in found[1]:
        least = interval_of(x, relax_map or {}, known).min_value
        high = least if high is None or least is None else E.minimum(high, least)
    return IntervalSet(low, high)
