"""exp, log, tanh, sigmoid and erf of float32 vectors, as LLVM functions that are inlined where they are called.

Each reduces its argument to a small range and evaluates a polynomial there; all are right at overflow, underflow,
infinities and NaN. Sources: the single-precision functions of S. Moshier's Cephes (exp, log, tanh) and N. Juffa's erff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from autosched.codegen.cpu.types import I32, call_intrinsic, constant, lanes_of, suffix

_LOG2E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # ln 2 in two parts; multiples of the first are exact
_SIGN = -0x80000000
_ROUND = 1.5 * 2.0**23  # adding it to a float32 below 2**22 rounds to an integer


@dataclass(slots=True)
class _Maker:
    """Float32 arithmetic on values of one vector (or scalar) type."""

    builder: Any
    kind: Any
    has_fma: bool

    def number(self, x: float) -> Any:
        return constant(self.kind, _single(x))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        if self.has_fma:
            return call_intrinsic(self.builder, f"llvm.fma.{suffix(self.kind)}", self.kind, [a, b, c])
        return self.builder.fadd(self.builder.fmul(a, b), c)

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """coefficients[0] * x**n + … + coefficients[n]."""
        result = self.number(coefficients[0])
        for c in coefficients[1:]:
            result = self.fma(result, x, self.number(c))
        return result

    @property
    def integer(self) -> Any:
        lanes = getattr(self.kind, "count", 1)
        return I32 if lanes == 1 else ir.VectorType(I32, lanes)

    def bits(self, x: Any) -> Any:
        return self.builder.bitcast(x, self.integer)

    def floats(self, x: Any) -> Any:
        return self.builder.bitcast(x, self.kind)

    def unary(self, name: str, x: Any) -> Any:
        return call_intrinsic(self.builder, f"llvm.{name}.{suffix(self.kind)}", self.kind, [x])

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """x within [low, high]; NaN stays NaN."""
        b = self.builder
        x = b.select(b.fcmp_ordered(">", x, self.number(high)), self.number(high), x)
        return b.select(b.fcmp_ordered("<", x, self.number(low)), self.number(low), x)

    def with_sign_of(self, size: Any, x: Any) -> Any:
        sign = self.builder.and_(self.bits(x), constant(self.integer, _SIGN))
        return self.floats(self.builder.or_(self.bits(size), sign))


def _single(x: float) -> float:
    import numpy as np

    return float(np.float32(x))


def _power_of_two(m: _Maker, n: Any) -> Any:
    """2**n for integers n in [-126, 127], by putting n into the exponent bits."""
    return m.floats(m.builder.shl(m.builder.add(n, constant(m.integer, 127)), constant(m.integer, 23)))


def _exp(m: _Maker, x: Any) -> Any:
    b = m.builder
    x = m.clamp(x, -104.0, 100.0)
    shifted = m.fma(x, m.number(_LOG2E), m.number(_ROUND))  # the sum's last bits are the nearest integer
    n = b.fsub(shifted, m.number(_ROUND))
    r = m.fma(n, m.number(-_LN2_HIGH), x)
    r = m.fma(n, m.number(-_LN2_LOW), r)
    p = m.polynomial(
        r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    p = m.fma(p, b.fmul(r, r), r)
    p = b.fadd(p, m.number(1.0))
    whole = b.sub(m.bits(shifted), m.bits(m.number(_ROUND)))
    half = b.ashr(whole, constant(m.integer, 1))  # in two steps, so that both powers exist: the result may be denormal
    return b.fmul(b.fmul(p, _power_of_two(m, half)), _power_of_two(m, b.sub(whole, half)))


def _log(m: _Maker, x: Any) -> Any:
    b = m.builder
    tiny = b.fcmp_ordered("<", x, m.number(1.17549435e-38))
    scaled = b.select(tiny, b.fmul(x, m.number(2.0**23)), x)
    bits = m.bits(scaled)
    # the mantissa as a number in [sqrt(1/2), sqrt(2)), and the exponent that goes with it
    shifted = b.sub(bits, constant(m.integer, 0x3F3504F3))
    exponent = b.ashr(shifted, constant(m.integer, 23))
    mantissa = m.floats(b.sub(bits, b.shl(exponent, constant(m.integer, 23))))
    n = b.fsub(b.sitofp(exponent, m.kind), b.select(tiny, m.number(23.0), m.number(0.0)))
    f = b.fsub(mantissa, m.number(1.0))
    z = b.fmul(f, f)
    p = m.polynomial(f, (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
        2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    ))  # fmt: skip
    p = b.fmul(b.fmul(p, f), z)
    p = m.fma(n, m.number(_LN2_LOW), p)
    p = m.fma(z, m.number(-0.5), p)
    result = m.fma(n, m.number(_LN2_HIGH), b.fadd(f, p))
    infinite = b.fcmp_unordered("==", x, m.number(float("inf")))  # NaN and infinity stay as they are
    result = b.select(infinite, x, result)
    result = b.select(b.fcmp_ordered("<", x, m.number(0.0)), m.number(float("nan")), result)
    return b.select(b.fcmp_ordered("==", x, m.number(0.0)), m.number(float("-inf")), result)


def _tanh(m: _Maker, x: Any) -> Any:
    b = m.builder
    size = m.clamp(m.unary("fabs", x), 0.0, 10.0)
    power = _exp(m, b.fadd(size, size))
    large = b.fsub(m.number(1.0), b.fdiv(m.number(2.0), b.fadd(power, m.number(1.0))))
    z = b.fmul(size, size)
    p = m.polynomial(z, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1))
    small = m.fma(b.fmul(p, z), size, size)
    result = b.select(b.fcmp_ordered("<", size, m.number(0.625)), small, large)
    return m.with_sign_of(result, x)


def _sigmoid(m: _Maker, x: Any) -> Any:
    b, one = m.builder, m.number(1.0)
    power = _exp(m, b.fneg(m.unary("fabs", x)))  # at most 1, so that small results are not lost in an overflow
    above = b.select(b.fcmp_ordered("<", x, m.number(0.0)), power, one)
    return b.fdiv(above, b.fadd(one, power))


def _erf(m: _Maker, x: Any) -> Any:
    b = m.builder
    size = m.clamp(m.unary("fabs", x), 0.0, 4.0)
    square = b.fmul(size, size)
    r = m.polynomial(size, (-1.72853470e-5, 3.83197126e-4))
    u = m.polynomial(size, (-3.88396438e-3, 2.42546219e-2))
    r = m.fma(r, square, u)
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = m.fma(r, size, m.number(c))
    r = m.fma(r, size, b.fneg(size))
    large = b.fsub(m.number(1.0), _exp(m, r))
    p = m.polynomial(
        square, (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    )
    small = m.fma(p, size, size)
    result = b.select(b.fcmp_ordered(">", size, m.number(0.927734375)), large, small)
    return m.with_sign_of(result, x)


FUNCTIONS: dict[str, Callable[[_Maker, Any], Any]] = {
    "exp": _exp, "log": _log, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf,
}  # fmt: skip


def call(builder: Any, op: str, x: Any, has_fma: bool) -> Any:
    """op(x) of a float32 or a vector of them; the function is defined once in the module."""
    name = f"autosched_{op}_{suffix(x.type)}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(x.type, [x.type]), name)
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        inner.ret(FUNCTIONS[op](_Maker(inner, x.type, has_fma), function.args[0]))
    assert lanes_of(x) >= 1, "a scalar or a vector"
    return builder.call(function, [x])
