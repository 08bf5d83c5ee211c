"""Relay's element-wise operators: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Callable

from autosched.relax import Expr, op
from autosched.relay.expr import unwrap


def _binary(name: str) -> Callable[[object, object], Expr]:
    function: Callable[..., Expr] = getattr(op, name)

    def apply(lhs: object, rhs: object) -> Expr:
        return function(unwrap(lhs), unwrap(rhs))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name}` of two tensors, broadcast to one shape."
    return apply


def _unary(name: str, of: Callable[..., Expr] | None = None) -> Callable[[object], Expr]:
    function = of or getattr(op, name)

    def apply(data: object) -> Expr:
        return function(unwrap(data))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name}` of each element."
    return apply


add, subtract, multiply, divide, power = map(_binary, ("add", "subtract", "multiply", "divide", "power"))
maximum, minimum, floor_divide = map(_binary, ("maximum", "minimum", "floor_divide"))
equal, not_equal, less, less_equal = map(_binary, ("equal", "not_equal", "less", "less_equal"))
greater, greater_equal = map(_binary, ("greater", "greater_equal"))
logical_and, logical_or = map(_binary, ("logical_and", "logical_or"))
exp, log, sqrt, rsqrt, tanh, sigmoid, erf = map(_unary, ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf"))
abs, negative, ceil, floor, round, sign = map(_unary, ("abs", "negative", "ceil", "floor", "round", "sign"))
sin, cos, logical_not = map(_unary, ("sin", "cos", "logical_not"))
copy, identity = _unary("copy", op.identity), _unary("identity", op.identity)


def clip(a: object, a_min: float, a_max: float) -> Expr:
    """Elements held between two numbers."""
    return op.clip(unwrap(a), a_min, a_max)


def cast(data: object, dtype: str) -> Expr:
    """Elements converted to another dtype."""
    return op.astype(unwrap(data), dtype)


def where(condition: object, x: object, y: object) -> Expr:
    """Elements of `x` where the condition holds, else of `y`."""
    return op.where(unwrap(condition), unwrap(x), unwrap(y))


tan, asin, acos, atan, sinh, cosh = map(_unary, ("tan", "asin", "acos", "atan", "sinh", "cosh"))
asinh, acosh, atanh, trunc, isnan, isinf = map(_unary, ("asinh", "acosh", "atanh", "trunc", "isnan", "isinf"))
isfinite, bitwise_not = map(_unary, ("isfinite", "bitwise_not"))
logical_xor, mod, floor_mod, left_shift = map(_binary, ("logical_xor", "mod", "floor_mod", "left_shift"))
right_shift, bitwise_and, bitwise_or, bitwise_xor = map(
    _binary, ("right_shift", "bitwise_and", "bitwise_or", "bitwise_xor")
)


def log2(data: object) -> Expr:
    """The logarithm to the base 2."""
    return op.multiply(op.log(unwrap(data)), 1.4426950408889634)


def log10(data: object) -> Expr:
    """The logarithm to the base 10."""
    return op.multiply(op.log(unwrap(data)), 0.4342944819032518)
