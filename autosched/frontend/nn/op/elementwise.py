"""Operators element by element, and the product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.errors import InvalidValueError
from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import operands, value_of
from autosched.relax import op as R


def _binary(definition: Any, default: str) -> Callable[..., Tensor]:
    def function(a: Any, b: Any, name: str = default) -> Tensor:
        return wrap_nested(definition(*operands(a, b)), name)  # type: ignore[no-any-return]

    function.__name__, function.__doc__ = default, f"{default} of two tensors, or of a tensor and a number."
    return function


def _unary(definition: Any, default: str) -> Callable[..., Tensor]:
    def function(x: Tensor, name: str = default) -> Tensor:
        return wrap_nested(definition(value_of(x, default)), name)  # type: ignore[no-any-return]

    function.__name__, function.__doc__ = default, f"{default}, element by element."
    return function


add = _binary(R.add, "add")
subtract = _binary(R.subtract, "subtract")
multiply = _binary(R.multiply, "mul")
divide = _binary(R.divide, "divide")
maximum = _binary(R.maximum, "maximum")
minimum = _binary(R.minimum, "minimum")
equal = _binary(R.equal, "equal")
not_equal = _binary(R.not_equal, "not_equal")
less = _binary(R.less, "less")
less_equal = _binary(R.less_equal, "less_equal")
greater = _binary(R.greater, "greater")
greater_equal = _binary(R.greater_equal, "greater_equal")

relu = _unary(R.nn.relu, "relu")
silu = _unary(R.nn.silu, "silu")
sigmoid = _unary(R.sigmoid, "sigmoid")
tanh = _unary(R.tanh, "tanh")
exp = _unary(R.exp, "exp")
log = _unary(R.log, "log")
sin = _unary(R.sin, "sin")
cos = _unary(R.cos, "cos")
abs = _unary(R.abs, "abs")
ceil = _unary(R.ceil, "ceil")
floor = _unary(R.floor, "floor")
negative = _unary(R.negative, "neg")
sqrt = _unary(R.sqrt, "sqrt")
erf = _unary(R.erf, "erf")


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x where positive, else alpha x."""
    return wrap_nested(R.nn.prelu(value_of(x, name), value_of(alpha, name)), name)  # type: ignore[no-any-return]


def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """min(max(x, 0), 6)."""
    return clip(x, 0.0, 6.0, name)


def clip(x: Tensor, min: float, max: float, name: str = "clip") -> Tensor:
    """Values between two bounds."""
    return wrap_nested(R.clip(value_of(x, name), min=float(min), max=float(max)), name)  # type: ignore[no-any-return]


def square(x: Tensor, name: str = "square") -> Tensor:
    """x * x."""
    return wrap_nested(R.multiply(value_of(x, name), x._expr), name)  # type: ignore[no-any-return]


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """The exact form, or with approximate="tanh" the other."""
    if approximate not in (None, "", "tanh"):
        raise InvalidValueError(f"gelu with approximate='{approximate}'", hint="None or 'tanh'")
    return wrap_nested((R.nn.gelu_tanh if approximate else R.nn.gelu)(value_of(x, name)), name)  # type: ignore[no-any-return]


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus") -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself beyond the threshold."""
    scaled = multiply(x, beta)
    soft = divide(log(add(exp(minimum(scaled, threshold)), 1.0)), beta)
    return where(greater(scaled, threshold), x, soft, name)


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """The matrix product over the last two dimensions."""
    return wrap_nested(R.matmul(value_of(a, name), value_of(b, name), out_dtype=out_dtype), name)  # type: ignore[no-any-return]


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """The tensor as another dtype; itself where it has it."""
    return x if x.dtype == dtype else wrap_nested(R.astype(value_of(x, name), dtype=dtype), name)


def where(condition: Tensor, x1: object, x2: object, name: str = "where") -> Tensor:
    """x1 where the condition holds, else x2."""
    return wrap_nested(R.where(value_of(astype(condition, "bool"), name), *operands(x1, x2)), name)  # type: ignore[no-any-return]
