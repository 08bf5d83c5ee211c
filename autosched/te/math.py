"""Element-wise functions of expressions; names of TVM's `te`."""

from __future__ import annotations

from collections.abc import Callable

from autosched.te.tensor import to_expr_like
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import ExprLike, PrimExpr, to_expr


def _unary(name: str, dtype: str | None = None) -> Callable[[ExprLike], PrimExpr]:
    def function(x: ExprLike) -> PrimExpr:
        return E.call(name, to_expr_like(x), dtype=dtype)

    function.__name__ = name
    function.__doc__ = f"{name}(x) of a floating-point expression."
    return function


exp, log, sqrt, rsqrt, tanh, sigmoid, erf = map(_unary, ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf"))
normcdf = _unary("normcdf")
floor, ceil, round, trunc, nearbyint = map(_unary, ("floor", "ceil", "round", "trunc", "nearbyint"))
acosh, asinh, atanh = map(_unary, ("acosh", "asinh", "atanh"))
sin, cos, tan, asin, acos, atan, sinh, cosh = map(_unary, ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"))
exp2, exp10, log2, log10, log1p = map(_unary, ("exp2", "exp10", "log2", "log10", "log1p"))
isnan, isinf, isfinite = (_unary(n, "bool") for n in ("isnan", "isinf", "isfinite"))


def abs(x: ExprLike) -> PrimExpr:
    """The absolute value of an integer or float."""
    e = to_expr(x)
    return E.call("fabs", e) if is_float(e.dtype) else E.select(e >= 0, e, -e)


def power(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x to the power of y; of integers an integer, rounded towards zero and cut to the bits there are."""
    a, b = E.match_types(to_expr_like(x), to_expr_like(y))
    return E.call("pow", a, b) if is_float(a.dtype) else _whole_power(a, b)


def _whole_power(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """a ** b of integers by squares, for b below 64: larger powers of anything but 0, 1 and -1 do not fit."""
    one, zero = E.const(1, a.dtype), E.const(0, a.dtype)
    result, square = one, a
    for bit in range(6):
        is_set = E.compare(E.NE, E.bitwise("bitwise_and", b, E.const(1 << bit, b.dtype)), zero)
        result, square = E.mul(result, E.select(is_set, square, one)), E.mul(square, square)
    if b.dtype.startswith("u"):
        return result
    odd = E.compare(E.NE, E.bitwise("bitwise_and", b, one), zero)
    unit = E.select(odd, a, one)  # of 1 and -1, whose inverse they are themselves
    is_unit = E.any_of(E.compare(E.EQ, a, one), E.compare(E.EQ, a, E.const(-1, a.dtype)))
    return E.select(E.compare(E.LT, b, zero), E.select(is_unit, unit, zero), result)


def logaddexp(x: ExprLike, y: ExprLike) -> PrimExpr:
    """log(exp(x) + exp(y)) of floats, without overflow."""
    a, b = E.match_types(to_expr_like(x), to_expr_like(y))
    low, high = E.minimum(a, b), E.maximum(a, b)
    return high + log(E.const(1, a.dtype) + exp(low - high))


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> PrimExpr:
    """a * b + c, rounded once."""
    return E.call("fma", to_expr_like(a), to_expr_like(b), to_expr_like(c))


def ceildiv(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x / y of integers, rounded up."""
    a, b = E.match_types(to_expr_like(x), to_expr_like(y))
    return E.floordiv(a + (b - 1), b)


def fmod(x: ExprLike, y: ExprLike) -> PrimExpr:
    """What is left of x / y rounded towards zero, exact, with the sign of x: of floats."""
    a, b = E.match_types(to_expr_like(x), to_expr_like(y))
    return E.call("fmod", a, b)


pow = power
