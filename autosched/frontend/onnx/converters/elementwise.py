"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import CONVERTERS, converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.tir.dtypes import INT_RANGES, is_float, largest_finite


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return op.divide(x, op.add(constant(1, info_of(x).dtype), op.abs(x)))


UNARY: dict[str, Callable[..., Expr]] = {
    "Relu": op.nn.relu, "Sigmoid": op.sigmoid, "Tanh": op.tanh, "Exp": op.exp, "Log": op.log, "Sqrt": op.sqrt,
    "Neg": op.negative, "Abs": op.abs, "Erf": op.erf, "Floor": op.floor, "Ceil": op.ceil, "Round": op.round,
    "Sin": op.sin, "Cos": op.cos, "Tan": op.tan, "Asin": op.asin, "Acos": op.acos, "Atan": op.atan,
    "Sinh": op.sinh, "Cosh": op.cosh, "Asinh": op.asinh, "Acosh": op.acosh, "Atanh": op.atanh,
    "Sign": op.sign, "IsNaN": op.isnan, "BitwiseNot": op.bitwise_not, "Softsign": softsign,
}  # fmt: skip
BINARY = {
    "Add": op.add, "Sub": op.subtract, "Mul": op.multiply,
    "BitwiseAnd": op.bitwise_and, "BitwiseOr": op.bitwise_or, "BitwiseXor": op.bitwise_xor,
}  # fmt: skip
VARIADIC = {"Sum": op.add, "Max": op.maximum, "Min": op.minimum}


def _unary(definition: Callable[..., Expr]) -> Callable[[Node], Expr]:
    return lambda node: definition(node.input(0))


def _binary(definition: Callable[..., Expr]) -> Callable[[Node], Expr]:
    return lambda node: definition(node.input(0), node.input(1))


def _variadic(definition: Callable[..., Expr]) -> Callable[[Node], Expr]:
    return lambda node: reduce(
        lambda a, b: node.emit(definition(a, b)), [node.input(i) for i in range(len(node.inputs))]
    )


for _name, _definition in UNARY.items():
    CONVERTERS[_name] = _unary(_definition)
for _name, _definition in BINARY.items():
    CONVERTERS[_name] = _binary(_definition)
for _name, _definition in VARIADIC.items():
    CONVERTERS[_name] = _variadic(_definition)


@converter("Mean")
def mean(node: Node) -> Expr:
    total = _variadic(op.add)(node)
    return op.divide(total, constant(len(node.inputs), node.info(0).dtype))


@converter("Div")
def div(node: Node) -> Expr:
    """Division by a constant becomes multiplication where the reciprocal is exact (a power of two)."""
    x, y = node.input(0), node.input(1)
    if isinstance(y, Constant) and y.data.dtype.kind == "f" and y.data.size:
        mantissa, _ = np.frexp(y.data)
        if np.all(np.abs(mantissa) == 0.5):
            return op.multiply(x, Constant((1 / y.data).astype(y.data.dtype)))
    return op.divide(x, y)


@converter("Mod")
def mod(node: Node) -> Expr:
    """The remainder: with the divisor's sign, or with `fmod` the dividend's."""
    x, y = node.input(0), node.input(1)
    if node.attr("fmod", 0):
        return op.mod(x, y)
    real = node.info(0).dtype.startswith(("float", "bfloat"))
    return _by_infinity(node, x, y, node.emit(op.floor_mod(x, y))) if real else op.floor_mod(x, y)


def _by_infinity(node: Node, x: Expr, y: Expr, remainder: Expr) -> Expr:
    """The remainder by an infinite divisor: the dividend, or the divisor where their signs differ."""
    if isinstance(y, Constant) and not np.isinf(y.data.astype(np.float64)).any():
        return remainder
    zero = constant(0, node.info(0).dtype)
    differ = op.less(op.multiply(op.sign(x), op.sign(y)), zero)
    whole = node.emit(op.where(differ, y, x))
    finite = op.less(op.abs(x), op.abs(y))  # not where one is NaN, nor both infinite
    return op.where(op.logical_and(op.isinf(y), finite), whole, remainder)


@converter("BitShift")
def bit_shift(node: Node) -> Expr:
    shift = op.left_shift if node.attr("direction") == "LEFT" else op.right_shift
    return shift(node.input(0), node.input(1))


@converter("IsInf")
def is_inf(node: Node) -> Expr:
    """Both signs, unless an attribute leaves one out."""
    x, zero = node.input(0), constant(0, node.info(0).dtype)
    found = op.isinf(x)
    if not node.attr("detect_negative", 1):
        return op.logical_and(node.emit(found), op.greater(x, zero))
    return found if node.attr("detect_positive", 1) else op.logical_and(node.emit(found), op.less(x, zero))


@converter("Pow")
def power(node: Node) -> Expr:
    x, y, dtype = node.input(0), node.input(1), node.info(0).dtype
    if isinstance(y, Constant) and y.data.size == 1 and not isinstance(x, Constant):
        exponent = float(y.data.reshape(-1)[0])
        if y.data.ndim <= node.info(0).ndim:
            simple: dict[float, Callable[[], Expr]] = {
                1.0: lambda: x,
                2.0: lambda: op.multiply(x, x),
                0.5: lambda: op.sqrt(x),
                -0.5: lambda: op.rsqrt(x),
            }
            if exponent == 3.0:
                return op.multiply(node.emit(op.multiply(x, x)), x)
            if exponent in simple:
                return simple[exponent]()
    return op.power(x, y if node.info(1).dtype == dtype else node.emit(op.astype(y, dtype)))


@converter("Reciprocal")
def reciprocal(node: Node) -> Expr:
    return op.divide(constant(1, node.info(0).dtype), node.input(0))


@converter("Clip")
def clip(node: Node) -> Expr:
    """Limits are attributes before opset 11 and inputs after; a missing one does not limit."""
    dtype = node.info(0).dtype
    if dtype in ("int64", "uint64"):  # float64 does not hold their limits
        x = node.input(0)
        if node.has(1):
            x = op.maximum(x, Constant(node.array(1).reshape(())))
        return op.minimum(x, Constant(node.array(2).reshape(()))) if node.has(2) else x
    least, largest = (-largest_finite(dtype), largest_finite(dtype)) if is_float(dtype) else INT_RANGES[dtype]
    if node.opset < 11:
        low, high = node.attr("min", float(least)), node.attr("max", float(largest))
    else:
        low = node.number(1) if node.has(1) else float(least)
        high = node.number(2) if node.has(2) else float(largest)
    if low > high:  # all are `high`, but NaN
        return op.minimum(op.maximum(node.input(0), constant(low, dtype)), constant(high, dtype))
    if low == 0 and high >= float(largest):
        return op.nn.relu(node.input(0))
    return op.clip(node.input(0), low, high)


@converter("LeakyRelu")
def leaky_relu(node: Node) -> Expr:
    return op.nn.leakyrelu(node.input(0), alpha=node.attr("alpha", 0.01))


@converter("PRelu")
def prelu(node: Node) -> Expr:
    x, zero = node.input(0), constant(0, node.info(0).dtype)
    return op.where(op.less(x, zero), op.multiply(x, node.input(1)), x)


@converter("Elu")
def elu(node: Node) -> Expr:
    x, dtype = node.input(0), node.info(0).dtype
    low = op.multiply(constant(node.attr("alpha", 1.0), dtype), op.subtract(op.exp(x), constant(1, dtype)))
    return op.where(op.greater(x, constant(0, dtype)), x, low)


@converter("Celu")
def celu(node: Node) -> Expr:
    """alpha * (exp(x / alpha) - 1) below zero; ONNX's own function makes a vector of a scalar."""
    x, dtype = node.input(0), node.info(0).dtype
    alpha = constant(node.attr("alpha", 1.0), dtype)
    low = op.multiply(alpha, op.subtract(op.exp(op.divide(x, alpha)), constant(1, dtype)))
    return op.where(op.greater(x, constant(0, dtype)), x, low)


@converter("Selu")
def selu(node: Node) -> Expr:
    """gamma * x above zero, gamma * alpha * (exp(x) - 1) below."""
    x, dtype = node.input(0), node.info(0).dtype
    alpha, gamma = (
        np.float32(node.attr(n, d)) for n, d in (("alpha", 1.67326319217681885), ("gamma", 1.05070102214813232))
    )
    low = op.multiply(constant(alpha, dtype), op.subtract(op.exp(x), constant(1, dtype)))
    return op.multiply(constant(gamma, dtype), op.where(op.greater(x, constant(0, dtype)), x, low))


@converter("Softplus")
def softplus(node: Node) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)), which cannot overflow."""
    x, dtype = node.input(0), node.info(0).dtype
    return op.add(op.nn.relu(x), op.log(op.add(constant(1, dtype), op.exp(op.negative(op.abs(x))))))


@converter("Gelu")
def gelu(node: Node) -> Expr:
    return (op.nn.gelu_tanh if node.attr("approximate", "none") == "tanh" else op.nn.gelu)(node.input(0))


@converter("HardSigmoid")
def hard_sigmoid(node: Node) -> Expr:
    return op.nn.hard_sigmoid(node.input(0), alpha=node.attr("alpha", 0.2), beta=node.attr("beta", 0.5))


@converter("HardSwish")
def hard_swish(node: Node) -> Expr:
    return op.multiply(node.input(0), op.nn.hard_sigmoid(node.input(0), alpha=1 / 6, beta=0.5))


@converter("Identity")
def identity(node: Node) -> Expr:
    return node.input(0)


@converter("Dropout")
def dropout(node: Node) -> tuple[Expr, ...]:
    """Nothing, at inference: the mask keeps all."""
    x = node.input(0)
    if node.has(2) and node.number(2) and (node.number(1) if node.has(1) else 0.5):
        raise node.no_kernel("training_mode=1")
    if node.num_outputs == 1:
        return (x,)
    info = node.info(0)
    whole = np.ones(info.static_shape if info.is_static else (1,) * info.ndim, np.bool_)
    return x, Constant(whole) if info.is_static else op.broadcast_to(Constant(whole), ShapeExpr(info.dims))
