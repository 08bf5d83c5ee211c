"""Logarithms, exponentials, angles and floors of quotients, by the functions of the C library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from autosched import te
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import broadcast, float_same
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.tir.intrinsics import NUMPY
from autosched.topi.broadcast import elementwise as broadcast_with
from autosched.topi.unary import elementwise

PAIRS = (((3, 5), (3, 5)), ((2, 1), (1, 3)))


def _function(name: str, reference: Callable[..., object], low: float, high: float) -> OpDef:
    return define_op(
        name, infer_type=float_same, compute=lambda x: elementwise(x, lambda v: E.call(name, v)), reference=reference,
        samples=[sample(s, low=low, high=high) for s in ((3, 5), (1,), ())],
    )  # fmt: skip


def _pair(
    name: str,
    scalar: Callable[..., PrimExpr],
    reference: Callable[..., object],
    infer: Callable[..., StructInfo],
    samples: Sequence[Sequence[object]],
    low: float,
) -> OpDef:
    return define_op(
        name, inputs=("x1", "x2"), infer_type=infer,
        compute=lambda x1, x2: broadcast_with(scalar, f"T_{name}", x1, x2), reference=reference,
        samples=[sample(*s, low=low, high=9) for s in samples],
    )  # fmt: skip


log1p = _function("log1p", np.log1p, -0.5, 4.0)
log2 = _function("log2", np.log2, 0.1, 4.0)
log10 = _function("log10", np.log10, 0.1, 4.0)
expm1 = _function("expm1", np.expm1, -2.0, 2.0)
exp2 = _function("exp2", np.exp2, -2.0, 2.0)
erfc = _function("erfc", lambda x: NUMPY["erfc"](x), -2.0, 3.0)
lgamma = _function("lgamma", lambda x: NUMPY["lgamma"](x), -3.0, 6.0)

_DIGAMMA_SHIFT = 6  # from here on the series below gives float32's digits, and float64's from 12 on
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)  # B(2n) / 2n


def _digamma(v: PrimExpr) -> PrimExpr:
    """The logarithmic derivative of gamma, by its series for large numbers; NaN at its poles, infinite at 0 itself.

    psi(x) = psi(x + n) - sum of 1 / (x + k) for k < n, and of negative numbers psi(1 - x) - pi / tan(pi x).
    """
    zero, one, half = (E.const(c, v.dtype) for c in (0, 1, 0.5))
    is_low = E.compare(E.LT, v, half)
    x = E.select(is_low, one - v, v)
    shift = _DIGAMMA_SHIFT * (2 if v.dtype == "float64" else 1)
    is_small = E.compare(E.LT, x, E.const(shift, v.dtype))
    before = E.select(is_small, one / x, zero)
    for k in range(1, shift):
        before = before + E.select(is_small, one / (x + E.const(k, v.dtype)), zero)
    z = E.select(is_small, x + E.const(shift, v.dtype), x)
    inverse = one / (z * z)
    series = zero
    for c in reversed(_DIGAMMA_SERIES):
        series = (series + E.const(c, v.dtype)) * inverse
    found = te.log(z) - half / z - series - before
    part = v - te.nearbyint(v)  # tan has the period pi
    reflected = found - E.const(math.pi, v.dtype) / te.tan(part * E.const(math.pi, v.dtype))
    pole = E.select(E.compare(E.EQ, v, zero), -(one / v), E.const(math.nan, v.dtype))
    is_pole = te.all(E.compare(E.EQ, part, zero), is_low)
    return E.select(is_pole, pole, E.select(is_low, reflected, found))


def _digamma_reference(x: Array) -> Array:
    """The same in float64 for one number after the other, with a longer shift."""

    def of(v: float) -> float:
        if not -math.inf < v < math.inf:
            return v if v > 0 else math.nan
        if v <= 0 and v.is_integer():
            return math.copysign(math.inf, -v) if v == 0 else math.nan
        if v < 0:
            return of(1 - v) - math.pi / math.tan(math.pi * math.remainder(v, 1))
        below = 0.0
        while v < 20:
            below, v = below + 1 / v, v + 1
        terms = sum(c * (1 / v) ** (2 * n) for n, c in enumerate(_DIGAMMA_SERIES, 1))
        return math.log(v) - 0.5 / v - terms - below

    found: Array = np.vectorize(of, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)
    return found


digamma = define_op(
    "digamma", infer_type=float_same, compute=lambda x: elementwise(x, _digamma), reference=_digamma_reference,
    samples=[sample((3, 5), low=0.1, high=9), sample((5,), low=-3.0, high=0.9), sample(())],
)  # fmt: skip


# Giles 2010, "Approximating the erfinv function": of w - 2.5 for w = -log(1 - x * x) below 5, of sqrt(w) - 3 from there
_ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
_ERFINV_STEPS = 3  # of Newton's method, from float32's digits to those of float64


def _erfinv(v: PrimExpr) -> PrimExpr:
    """The number whose erf is v: infinite for 1 and -1, NaN beyond."""
    one = E.const(1, v.dtype)
    w = -te.log((one - v) * (one + v))
    is_near = E.compare(E.LT, w, E.const(5, v.dtype))
    x = E.select(is_near, w - E.const(2.5, v.dtype), te.sqrt(w) - E.const(3, v.dtype))
    near, far = (E.const(c[0], v.dtype) for c in (_ERFINV_NEAR, _ERFINV_FAR))
    for a, b in zip(_ERFINV_NEAR[1:], _ERFINV_FAR[1:], strict=True):
        near, far = near * x + E.const(a, v.dtype), far * x + E.const(b, v.dtype)
    found = E.select(is_near, near, far) * v
    for _ in range(_ERFINV_STEPS if v.dtype == "float64" else 0):
        slope = te.exp(-(found * found)) * E.const(2 / math.sqrt(math.pi), v.dtype)
        found = found - (te.erf(found) - v) / slope
    return E.select(E.compare(E.EQ, te.abs(v), one), v * E.const(math.inf, v.dtype), found)


def _erfinv_reference(x: Array) -> Array:
    """By the quantiles of the normal distribution, of 1 + x where that keeps more digits."""
    quantile = NormalDist(0, math.sqrt(0.5)).inv_cdf

    def of(v: float) -> float:
        return quantile((1 + v) / 2) if abs(v) < 1 else v * math.inf if abs(v) == 1 else math.nan

    found: Array = np.vectorize(of, otypes=[np.float64])(x).astype(x.dtype)
    return found


erfinv = define_op(
    "erfinv", infer_type=float_same, compute=lambda x: elementwise(x, _erfinv), reference=_erfinv_reference,
    samples=[sample((3, 5), low=-0.99, high=0.99), sample((5,), low=0.99, high=0.9999), sample(())],
)  # fmt: skip


def _float_pair(x1: StructInfo, x2: StructInfo) -> TensorStructInfo:
    return broadcast(float_same(x1), x2)


atan2 = _pair("atan2", lambda a, b: E.call("atan2", a, b), np.arctan2, _float_pair, PAIRS, -2)
hypot = _pair("hypot", lambda a, b: E.call("hypot", a, b), np.hypot, _float_pair, PAIRS, -2)
copysign = _pair("copysign", lambda a, b: E.call("copysign", a, b), np.copysign, _float_pair, PAIRS, -2)


def _floor_quotient(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The floor of the exact quotient of floats; `floor(a / b)` is one too many where a / b is rounded up."""
    zero, one, half = (E.const(v, a.dtype) for v in (0, 1, 0.5))
    rest = te.truncmod(a, b)
    quotient = (a - rest) / b
    signs_differ = E.compare(E.NE, E.compare(E.LT, rest, zero), E.compare(E.LT, b, zero))
    below = E.select(te.all(E.compare(E.NE, rest, zero), signs_differ), quotient - one, quotient)
    whole = te.floor(below)
    nearest = E.select(E.compare(E.GT, below - whole, half), whole + one, whole)
    return E.select(E.compare(E.EQ, b, zero), a / b, nearest)


def _floor_quotient_reference(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        rest = np.fmod(a, b)
        below = (a - rest) / b - ((rest != 0) & ((rest < 0) != (b < 0)))
        whole = np.floor(below)
        found: Array = np.where(b == 0, a / b, whole + (below - whole > 0.5)).astype(a.dtype)
        return found


floor_quotient = _pair("floor_quotient", _floor_quotient, _floor_quotient_reference, _float_pair, PAIRS, 1)
