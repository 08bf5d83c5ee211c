"""Arithmetic, element by element."""

from __future__ import annotations

from collections.abc import Callable

from autosched.frontend.torch.emitter import Emitter, common_dtype, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr
from autosched.tir.dtypes import is_float

FLOATING = {  # of integers these are the functions of float32
    "acos": op.acos, "acosh": op.acosh, "asin": op.asin, "asinh": op.asinh, "atan": op.atan, "atanh": op.atanh,
    "cos": op.cos, "cosh": op.cosh, "digamma": op.digamma, "erf": op.erf, "erfc": op.erfc, "erfinv": op.erfinv,
    "exp": op.exp, "exp2": op.exp2, "expm1": op.expm1, "lgamma": op.lgamma, "log": op.log, "log10": op.log10,
    "log1p": op.log1p, "log2": op.log2, "rsqrt": op.rsqrt, "sigmoid": op.sigmoid, "sin": op.sin, "sinh": op.sinh,
    "sqrt": op.sqrt, "tan": op.tan, "tanh": op.tanh,
}  # fmt: skip
SPECIAL = {  # other names of these
    "digamma": ("special_digamma", "special_psi"), "erfc": ("special_erfc",), "erfinv": ("special_erfinv", "erf_inv"),
    "exp2": ("special_exp2",), "expm1": ("special_expm1",),
    "lgamma": ("special_gammaln",), "log1p": ("special_log1p",),
}  # fmt: skip
ROUNDING = {"ceil": op.ceil, "floor": op.floor, "trunc": op.trunc, "fix": op.trunc}  # of integers the number itself


def _register() -> None:
    for name, definition in FLOATING.items():

        def floating(t: Emitter, input: Expr, *, _op: Callable[..., Expr] = definition) -> object:
            return _op(t.as_float(input))

        converter(name, *SPECIAL.get(name, ()))(floating)
    for name, definition in ROUNDING.items():

        def whole(t: Emitter, input: Expr, *, _op: Callable[..., Expr] = definition) -> Expr:
            return _op(input) if is_float(info_of(input).dtype) else input

        converter(name)(whole)


_register()


@converter("abs", "absolute")
def abs_(t: Emitter, input: Expr) -> Expr:
    return input if info_of(input).dtype in ("bool", "uint8") else op.abs(input)


@converter("neg", "negative")
def neg(t: Emitter, input: Expr) -> Expr:
    if info_of(input).dtype == "uint8":
        return op.subtract(constant(0, "uint8"), input)
    return op.negative(input)


@converter("sign", "sgn")
def sign(t: Emitter, input: Expr) -> Expr:
    """Of a NaN 0, as in PyTorch."""
    dtype = info_of(input).dtype
    if not is_float(dtype):
        return input if dtype == "bool" else op.sign(input)
    return op.where(t(op.isnan(input)), constant(0.0, dtype), t(op.sign(input)))


@converter("signbit")
def signbit(t: Emitter, input: Expr) -> Expr:
    """Whether the sign is that of a negative number: of -0 and of some NaN as well."""
    dtype = info_of(input).dtype
    if dtype == "bool":
        return t.cast(t(op.logical_and(input, constant(False, dtype))), "bool")
    return op.less(t(op.copysign(constant(1, dtype), input)) if is_float(dtype) else input, constant(0, dtype))


@converter("copysign")
def copysign(t: Emitter, input: object, other: object) -> Expr:
    a, b = t.alike(input, other)
    return op.copysign(t.as_float(a), t.as_float(b))


@converter("polygamma", "special_polygamma")
def polygamma(t: Emitter, n: int, input: Expr) -> Expr:
    if n:
        raise t.needs_library("derivatives of digamma")
    return op.digamma(t.as_float(input))


@converter("round")
def round_(t: Emitter, input: Expr, decimals: int = 0) -> Expr:
    """Halves to even; with decimals the number is scaled before and after, as PyTorch does."""
    dtype = info_of(input).dtype
    if not is_float(dtype):
        return input
    if not decimals:
        return op.round(input)
    ten = constant(10.0 ** abs(decimals), dtype)
    first, second = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return second(t(op.round(t(first(input, ten)))), ten)


@converter("frac")
def frac(t: Emitter, input: Expr) -> Expr:
    return op.subtract(input, op.trunc(input))


@converter("add")
def add(t: Emitter, input: object, other: object, alpha: object = 1) -> Expr:
    a, b = t.alike(input, other)
    dtype = info_of(a).dtype
    if dtype == "bool":
        return op.logical_or(a, b) if alpha else a
    return op.add(a, b if alpha == 1 else t(op.multiply(b, constant(alpha, dtype))))


@converter("sub", "subtract")
def sub(t: Emitter, input: object, other: object, alpha: object = 1) -> Expr:
    a, b = t.alike(input, other)
    return op.subtract(a, b if alpha == 1 else t(op.multiply(b, constant(alpha, info_of(a).dtype))))


@converter("rsub")
def rsub(t: Emitter, input: object, other: object, alpha: object = 1) -> Expr:
    return sub(t, other, input, alpha)


@converter("mul", "multiply")
def mul(t: Emitter, input: object, other: object) -> Expr:
    a, b = t.alike(input, other)
    return op.logical_and(a, b) if info_of(a).dtype == "bool" else op.multiply(a, b)


@converter("maximum")
def maximum(t: Emitter, input: object, other: object) -> Expr:
    a, b = t.alike(input, other)
    return op.logical_or(a, b) if info_of(a).dtype == "bool" else op.maximum(a, b)


@converter("minimum")
def minimum(t: Emitter, input: object, other: object) -> Expr:
    a, b = t.alike(input, other)
    return op.logical_and(a, b) if info_of(a).dtype == "bool" else op.minimum(a, b)


@converter("fmax")
def fmax(t: Emitter, input: object, other: object) -> Expr:
    return _number_of(t, maximum, input, other)


@converter("fmin")
def fmin(t: Emitter, input: object, other: object) -> Expr:
    return _number_of(t, minimum, input, other)


def _number_of(t: Emitter, choose: Callable[..., Expr], input: object, other: object) -> Expr:
    """The choice of two; of a number and a NaN it is the number."""
    a, b = t.alike(input, other)
    if not is_float(info_of(a).dtype):
        return choose(t, a, b)
    first = t(op.where(t(op.isnan(a)), b, a))
    return choose(t, first, t(op.where(t(op.isnan(b)), first, b)))


@converter("div", "truediv", "true_divide", "divide")
def div(t: Emitter, input: object, other: object, rounding_mode: str | None = None) -> Expr:
    a, b = t.alike(input, other)
    if rounding_mode is None:
        return op.divide(t.as_float(a), t.as_float(b))
    a, b = (t.cast(x, "int8") if info_of(x).dtype == "bool" else x for x in (a, b))
    floats = is_float(info_of(a).dtype)
    if rounding_mode == "floor":
        return op.floor_quotient(a, b) if floats else op.floor_divide(a, b)
    return op.trunc(t(op.divide(a, b))) if floats else op.divide(a, b)


@converter("prims::div")
def exact_div(t: Emitter, a: object, b: object) -> Expr:
    """Of integers without what is behind the point."""
    x, y = t.alike(a, b)
    return op.divide(x, y)


@converter("floordiv", "floor_divide")
def floordiv(t: Emitter, input: object, other: object) -> Expr:
    return div(t, input, other, rounding_mode="floor")


@converter("fmod")
def fmod(t: Emitter, input: object, other: object) -> Expr:
    return op.mod(*t.alike(input, other))


@converter("remainder", "mod")
def remainder(t: Emitter, input: object, other: object) -> Expr:
    return op.floor_mod(*t.alike(input, other))


@converter("pow")
def power(t: Emitter, input: object, exponent: object) -> Expr:
    dtype = common_dtype(input, exponent)
    if isinstance(exponent, int | float) and exponent in (1, 2, 3):
        x = t.as_dtype(input, dtype)
        square = x if exponent == 1 else t(op.multiply(x, x))
        return op.multiply(square, x) if exponent == 3 else square
    if isinstance(exponent, int | float) and exponent == 0.5:
        return op.sqrt(t.as_dtype(input, dtype))
    return op.power(t.as_dtype(input, dtype), t.as_dtype(exponent, dtype))


@converter("atan2", "arctan2")
def atan2(t: Emitter, input: object, other: object) -> Expr:
    a, b = t.alike(input, other)
    return op.atan2(t.as_float(a), t.as_float(b))


@converter("hypot")
def hypot(t: Emitter, input: object, other: object) -> Expr:
    return op.hypot(*t.alike(input, other))


@converter("reciprocal")
def reciprocal(t: Emitter, input: Expr) -> Expr:
    x = t.as_float(input)
    return op.divide(constant(1.0, info_of(x).dtype), x)


@converter("square")
def square(t: Emitter, input: Expr) -> Expr:
    number = op.astype(input, "int64") if info_of(input).dtype == "bool" else input
    return op.multiply(number, number)


@converter("addcmul")
def addcmul(t: Emitter, input: Expr, tensor1: Expr, tensor2: Expr, *, value: object = 1) -> Expr:
    product = t(mul(t, tensor1, tensor2))
    return add(t, input, product, alpha=value)


@converter("fma")
def fma(t: Emitter, self: Expr, other: Expr, third: Expr) -> Expr:
    return add(t, t(mul(t, self, other)), third)


@converter("addcdiv")
def addcdiv(t: Emitter, input: Expr, tensor1: Expr, tensor2: Expr, *, value: object = 1) -> Expr:
    quotient = t(div(t, tensor1, tensor2))
    return add(t, input, quotient, alpha=value)


@converter("lerp")
def lerp(t: Emitter, input: Expr, end: Expr, weight: Expr | float) -> Expr:
    """From the nearer end, as PyTorch: at a weight of 1 it is the other one, whatever they are."""
    gap = t(sub(t, end, input))
    from_first = add(t, input, t(mul(t, gap, weight)))
    from_last = sub(t, end, t(mul(t, gap, 1.0 - weight if isinstance(weight, int | float) else t(sub(t, 1.0, weight)))))
    if isinstance(weight, int | float):
        return from_first if abs(weight) < 0.5 else from_last
    is_first = t(op.less(t(op.abs(weight)), constant(0.5, info_of(weight).dtype)))
    return op.where(is_first, t(from_first), t(from_last))


@converter("clamp", "clip")
def clamp(t: Emitter, input: Expr, min: object = None, max: object = None) -> Expr:
    dtype = common_dtype(*(v for v in (input, min, max) if v is not None))
    x = t.cast(input, dtype)
    if isinstance(min, int | float) and isinstance(max, int | float) and min <= max:  # else all are `max`
        return op.clip(x, min=_bound(min, dtype), max=_bound(max, dtype))
    if min is not None:
        x = t(op.maximum(x, t.as_dtype(min, dtype)))
    return x if max is None else op.minimum(x, t.as_dtype(max, dtype))


def _bound(value: float, dtype: str) -> float:
    return float(value) if is_float(dtype) else int(value)


@converter("clamp_min")
def clamp_min(t: Emitter, input: Expr, min: object) -> Expr:
    return clamp(t, input, min=min)


@converter("clamp_max")
def clamp_max(t: Emitter, input: Expr, max: object) -> Expr:
    return clamp(t, input, max=max)
