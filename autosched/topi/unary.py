"""Element-wise functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr


def elementwise(x: Tensor, f: Callable[[PrimExpr], PrimExpr], name: str = "compute") -> Tensor:
    """f of every element."""
    return te.compute(x.shape, lambda *i: f(x(*i)), name=name)


def _number(x: PrimExpr, value: float) -> PrimExpr:
    return E.const(value, x.dtype)


def identity(x: Tensor) -> Tensor:
    return elementwise(x, lambda v: v, "T_identity")


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return elementwise(x, lambda v: E.maximum(v, _number(v, 0)))


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x where positive, else alpha * x."""
    return elementwise(x, lambda v: E.select(v > _number(v, 0), v, v * _number(v, alpha)))


def clip(x: Tensor, min: float, max: float) -> Tensor:  # noqa: A002
    """x limited to [min, max]."""
    return elementwise(x, lambda v: E.maximum(E.minimum(v, _number(v, max)), _number(v, min)))


def exp(x: Tensor) -> Tensor:
    return elementwise(x, te.exp)


def log(x: Tensor) -> Tensor:
    return elementwise(x, te.log)


def sqrt(x: Tensor) -> Tensor:
    return elementwise(x, te.sqrt)


def rsqrt(x: Tensor) -> Tensor:
    return elementwise(x, te.rsqrt)


def erf(x: Tensor) -> Tensor:
    return elementwise(x, te.erf)


def tanh(x: Tensor) -> Tensor:
    return elementwise(x, te.tanh)


def sigmoid(x: Tensor) -> Tensor:
    return elementwise(x, te.sigmoid)


def sin(x: Tensor) -> Tensor:
    return elementwise(x, te.sin)


def cos(x: Tensor) -> Tensor:
    return elementwise(x, te.cos)


def floor(x: Tensor) -> Tensor:
    return elementwise(x, te.floor)


def ceil(x: Tensor) -> Tensor:
    return elementwise(x, te.ceil)


def round(x: Tensor) -> Tensor:  # noqa: A001
    """To the nearest integer, halves to even."""
    return elementwise(x, te.nearbyint)


def abs(x: Tensor) -> Tensor:  # noqa: A001
    return elementwise(x, te.abs)


def negative(x: Tensor) -> Tensor:
    return elementwise(x, lambda v: -v)


def sign(x: Tensor) -> Tensor:
    """1, 0 or -1; NaN stays NaN."""

    def element(v: PrimExpr) -> PrimExpr:
        if v.dtype.startswith("u"):
            return E.cast(v.dtype, v > _number(v, 0))
        zero = E.select(E.compare(E.EQ, v, v), _number(v, 0), v) if is_float(v.dtype) else _number(v, 0)
        return E.select(v > _number(v, 0), _number(v, 1), E.select(v < _number(v, 0), _number(v, -1), zero))

    return elementwise(x, element)


def logical_not(x: Tensor) -> Tensor:
    return elementwise(x, E.logical_not)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return elementwise(x, lambda v: v * te.sigmoid(v))


def hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    """alpha * x + beta limited to [0, 1]."""
    return elementwise(
        x, lambda v: E.maximum(E.minimum(v * _number(v, alpha) + _number(v, beta), _number(v, 1)), _number(v, 0))
    )


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution function of x."""
    return elementwise(x, lambda v: v * te.normcdf(v))


def gelu_tanh(x: Tensor) -> Tensor:
    """Gelu approximated by tanh: (1 + tanh(u)) / 2 is sigmoid(2 u). Source: Hendrycks, Gimpel 2016, section 2."""

    def f(v: PrimExpr) -> PrimExpr:
        scale = math.sqrt(8 / math.pi)
        return v * te.sigmoid(v * (_number(v, scale) + _number(v, 0.044715 * scale) * (v * v)))

    return elementwise(x, f)


def bitwise_not(x: Tensor) -> Tensor:
    """~x."""
    return elementwise(x, lambda a: ~a, "T_bitwise_not")


def trunc(x: Tensor) -> Tensor:
    """x without its fraction."""
    return elementwise(x, lambda a: E.call("trunc", a), "T_trunc")


def tan(x: Tensor) -> Tensor:
    """The tangent."""
    return elementwise(x, lambda a: E.call("tan", a), "T_tan")


def isnan(x: Tensor) -> Tensor:
    """Whether an element is no number."""
    return elementwise(x, lambda a: E.call("isnan", a, dtype="bool"), "T_isnan")


def fast_exp(x: Tensor) -> Tensor:
    """e ** x: kernels compute it by a polynomial in any case, as they do the next two."""
    return elementwise(x, te.exp, "T_fast_exp")


def fast_tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return elementwise(x, te.tanh, "T_fast_tanh")


def fast_erf(x: Tensor) -> Tensor:
    """The error function."""
    return elementwise(x, te.erf, "T_fast_erf")


def ceil_log2(x: Tensor) -> Tensor:
    """The logarithm to base 2, rounded up."""
    return elementwise(x, lambda a: E.call("ceil", E.call("log2", a)), "T_ceil_log2")


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """The elements' bits as another type of as many."""
    return elementwise(x, lambda a: E.call("reinterpret", a, dtype=dtype), "T_reinterpret")
