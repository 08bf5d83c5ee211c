"""Element-wise operators."""

from __future__ import annotations

from typing import Any

from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr

UNARY = {
    "abs": op.abs, "ceil": op.ceil, "cos": op.cos, "erf": op.erf, "exp": op.exp, "floor": op.floor, "log": op.log,
    "neg": op.negative, "round": op.round, "rsqrt": op.rsqrt, "sigmoid": op.sigmoid, "sign": op.sign, "sin": op.sin,
    "sqrt": op.sqrt, "tanh": op.tanh,
}  # fmt: skip
BINARY = {
    "mul": op.multiply, "maximum": op.maximum, "minimum": op.minimum, "eq": op.equal, "ne": op.not_equal,
    "lt": op.less, "le": op.less_equal, "gt": op.greater, "ge": op.greater_equal, "floor_divide": op.floor_divide,
    "logical_and": op.logical_and, "logical_or": op.logical_or, "bitwise_and": op.logical_and,
    "bitwise_or": op.logical_or,
}  # fmt: skip
FLOATING = {"cos", "erf", "exp", "log", "rsqrt", "sigmoid", "sin", "sqrt", "tanh"}


def _register() -> None:
    for name, definition in UNARY.items():

        def unary(t: Emitter, input: Expr, *, _op: Any = definition, _floating: bool = name in FLOATING) -> Any:
            return _op(_as_float(t, input) if _floating else input)

        converter(name)(unary)
    for name, definition in BINARY.items():

        def binary(t: Emitter, input: Any, other: Any, *, _op: Any = definition) -> Any:
            return _op(*t.alike(input, other))

        converter(name)(binary)


_register()


def _as_float(t: Emitter, x: Expr) -> Any:
    return x if info_of(x).dtype.startswith("float") else t.cast(x, "float32")


@converter("add")
def add(t: Emitter, input: Any, other: Any, alpha: Any = 1) -> Any:
    if alpha != 1:
        other = t(op.multiply(*t.alike(other, alpha)))
    return op.add(*t.alike(input, other))


@converter("sub", "subtract")
def sub(t: Emitter, input: Any, other: Any, alpha: Any = 1) -> Any:
    if alpha != 1:
        other = t(op.multiply(*t.alike(other, alpha)))
    return op.subtract(*t.alike(input, other))


@converter("rsub")
def rsub(t: Emitter, input: Any, other: Any, alpha: Any = 1) -> Any:
    return sub(t, other, input, alpha)


@converter("div", "truediv", "true_divide", "divide")
def div(t: Emitter, input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    a, b = t.alike(input, other)
    if rounding_mode == "floor":
        return op.floor(op.divide(a, b)) if info_of(a).dtype.startswith("float") else op.floor_divide(a, b)
    if rounding_mode is not None:
        raise t.fail(f"div with rounding_mode='{rounding_mode}' is not supported")
    return op.divide(_as_float(t, a), _as_float(t, b))


@converter("floordiv")
def floordiv(t: Emitter, input: Any, other: Any) -> Any:
    return div(t, input, other, rounding_mode="floor")


@converter("pow")
def power(t: Emitter, input: Any, exponent: Any) -> Any:
    if isinstance(exponent, int | float) and exponent == 2:
        return op.multiply(input, input)
    if isinstance(exponent, int | float) and exponent == 0.5:
        return op.sqrt(_as_float(t, input))
    return op.power(*t.alike(input, exponent))


@converter("reciprocal")
def reciprocal(t: Emitter, input: Expr) -> Any:
    return op.divide(constant(1.0, info_of(input).dtype), input)


@converter("square")
def square(t: Emitter, input: Expr) -> Any:
    return op.multiply(input, input)


@converter("log1p")
def log1p(t: Emitter, input: Expr) -> Any:
    return op.log(op.add(input, constant(1.0, info_of(input).dtype)))


@converter("logical_not", "bitwise_not")
def logical_not(t: Emitter, input: Expr) -> Any:
    return op.logical_not(input)


# --- activations -------------------------------------------------------------------------------------------------


@converter("relu")
def relu(t: Emitter, input: Expr, inplace: bool = False) -> Any:
    return op.nn.relu(input)


@converter("relu6")
def relu6(t: Emitter, input: Expr, inplace: bool = False) -> Any:
    return op.clip(input, min=0.0, max=6.0)


@converter("hardtanh")
def hardtanh(t: Emitter, input: Expr, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return op.clip(input, min=float(min_val), max=float(max_val))


@converter("clamp", "clip")
def clamp(t: Emitter, input: Expr, min: Any = None, max: Any = None) -> Any:
    if isinstance(min, int | float) and isinstance(max, int | float):
        return op.clip(input, min=float(min), max=float(max))
    x: Any = input
    if min is not None:
        x = t(op.maximum(*t.alike(x, min)))
    return x if max is None else op.minimum(*t.alike(x, max))


@converter("clamp_min")
def clamp_min(t: Emitter, input: Expr, min: Any) -> Any:
    return clamp(t, input, min=min)


@converter("clamp_max")
def clamp_max(t: Emitter, input: Expr, max: Any) -> Any:
    return clamp(t, input, max=max)


@converter("gelu")
def gelu(t: Emitter, input: Expr, approximate: str = "none") -> Any:
    return op.nn.gelu_tanh(input) if approximate == "tanh" else op.nn.gelu(input)


@converter("silu")
def silu(t: Emitter, input: Expr, inplace: bool = False) -> Any:
    return op.nn.silu(input)


@converter("leaky_relu")
def leaky_relu(t: Emitter, input: Expr, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return op.nn.leakyrelu(input, alpha=float(negative_slope))


@converter("hardsigmoid")
def hardsigmoid(t: Emitter, input: Expr, inplace: bool = False) -> Any:
    return op.nn.hard_sigmoid(input, alpha=1.0 / 6.0, beta=0.5)


@converter("hardswish")
def hardswish(t: Emitter, input: Expr, inplace: bool = False) -> Any:
    return op.multiply(input, t(op.nn.hard_sigmoid(input, alpha=1.0 / 6.0, beta=0.5)))


@converter("elu")
def elu(t: Emitter, input: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    dtype = info_of(input).dtype
    if scale != 1 or input_scale != 1:
        raise t.fail("elu with a scale is not supported")
    zero = constant(0.0, dtype)
    below = op.multiply(op.subtract(op.exp(op.minimum(input, zero)), constant(1.0, dtype)), constant(alpha, dtype))
    return op.where(op.greater(input, zero), input, below)


@converter("softplus")
def softplus(t: Emitter, input: Expr, beta: float = 1.0, threshold: float = 20.0) -> Any:
    dtype = info_of(input).dtype
    scaled = t(op.multiply(input, constant(beta, dtype)))
    small = t(op.log(op.add(op.exp(op.minimum(scaled, constant(threshold, dtype))), constant(1.0, dtype))))
    soft = op.divide(small, constant(beta, dtype))
    return op.where(op.greater(scaled, constant(threshold, dtype)), input, soft)


@converter("mish")
def mish(t: Emitter, input: Expr, inplace: bool = False) -> Any:
    return op.multiply(input, op.tanh(t(softplus(t, input))))


# --- choice and conversion ---------------------------------------------------------------------------------------


@converter("where")
def where(t: Emitter, condition: Expr, input: Any, other: Any) -> Any:
    return op.where(condition, *t.alike(input, other))


@converter("masked_fill")
def masked_fill(t: Emitter, input: Expr, mask: Expr, value: Any) -> Any:
    filled = value if isinstance(value, Expr) else constant(value, info_of(input).dtype)
    return op.where(mask, filled, input)


@converter("to", "_to_copy", "type_as", "type")
def to(t: Emitter, input: Expr, *args: Any, dtype: Any = None, **_: Any) -> Any:
    for value in args:
        if isinstance(value, Expr):
            dtype = info_of(value).dtype
        elif value in t.dtypes:
            dtype = value
    return input if dtype is None else t.cast(input, t.dtype(dtype))


@converter("float")
def to_float(t: Emitter, input: Expr) -> Any:
    return t.cast(input, "float32")


@converter("long")
def to_long(t: Emitter, input: Expr) -> Any:
    return t.cast(input, "int64")


@converter(
    "contiguous", "clone", "detach", "alias", "lift_fresh_copy", "lift_fresh", "detach_copy", "requires_grad_",
    "identity", "_assert_tensor_metadata",
)  # fmt: skip
def same(t: Emitter, input: Expr, *_: Any, **__: Any) -> Any:
    return input


@converter("dropout", "feature_dropout", "native_dropout", "dropout2d", "alpha_dropout")
def dropout(t: Emitter, input: Expr, *_: Any, **__: Any) -> Any:
    """Inference: nothing is dropped."""
    return input
