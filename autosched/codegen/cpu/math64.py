"""Functions of float64 vectors, for CPUs that multiply and add at once; `FUNCTIONS` lists them.

Each reduces its argument to a small range and evaluates a polynomial there; all but sin and cos, which serve arguments
below `CIRCULAR_LIMIT`, are right at overflow, underflow, infinities and NaN. Nothing needs arithmetic shifts or
conversions of 64-bit integers, which AVX2 lacks. Sources: Sun's fdlibm (log, the polynomials of sin and cos),
S. Moshier's Cephes (tanh); the exponential's polynomial is a fit of our own.
"""

from __future__ import annotations

import math
from functools import partial

from llvmlite import ir

from autosched.codegen.cpu.math import Circular, Function, Maker

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # multiples of the first are exact
_HALF_PI = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33  # pi / 2 in three parts
CIRCULAR_LIMIT = 1e9  # for whole multiples of pi / 2 up to it, x less the first part is exact
_MANTISSA = 2**52 - 1  # its bits
_ROUND = 1.5 * 2.0**52  # adding it to a number below 2**51 rounds to an integer
_WHOLE = 2.0**52  # with an integer below 2**52 in its lowest bits, it is the sum of both

# exp(r) for |r| <= ln 2 / 2, a minimax fit of (exp(r) - 1 - r) / r**2: relative error 3.7e-18
_EXP = (
    2.500006162623951e-08, 2.763024838499674e-07, 2.75575863737815e-06, 2.4801493098888393e-05, 0.0001984126950657873,
    0.0013888888943630134, 0.008333333333494461, 0.041666666666530155, 0.16666666666666413, 0.5000000000000011, 1.0,
    1.0,
)  # fmt: skip
_SINE = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
    8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
_COSINE = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
    -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip
_LOG = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip
_TANH_ABOVE = -9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3
_TANH_BELOW = 1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3


def _exp(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    shifted = m.fma(near := m.clamp(x, -750.0, 710.0), m.number(1 / math.log(2)), m.number(_ROUND))
    n = b.fsub(shifted, m.number(_ROUND))
    r = m.fma(n, m.number(-_LN2_HIGH), near)
    p = m.polynomial(m.fma(n, m.number(-_LN2_LOW), r), _EXP)
    # 2**n in two factors, so that both exist: a result below the normal numbers is rounded once
    biased = b.add(m.bits(shifted), m.word(2 * 1023))
    half = b.and_(b.shl(biased, m.word(51)), m.word(-1 << 52))
    rest = b.sub(b.shl(biased, m.word(52)), half)
    return b.fmul(b.fmul(p, m.floats(half)), m.floats(rest))


def _log(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    tiny = b.fcmp_ordered("<", x, m.number(2.0**-1022))
    scaled = b.select(tiny, b.fmul(x, m.number(2.0**54)), x)
    # the mantissa less 1 as a number in [sqrt(1/2) - 1, sqrt(2) - 1), and the exponent that goes with it
    root = 0x3FE6A09E667F3BCD
    shifted = b.add(m.bits(scaled), m.word((1023 << 52) - root))
    exponent = m.floats(b.or_(b.lshr(shifted, m.word(52)), m.bits(m.number(_WHOLE))))
    n = b.fsub(exponent, b.select(tiny, m.number(_WHOLE + 1023 + 54), m.number(_WHOLE + 1023)))
    f = b.fsub(m.floats(b.add(b.and_(shifted, m.word(_MANTISSA)), m.word(root))), m.number(1.0))
    s = b.fdiv(f, b.fadd(f, m.number(2.0)))
    z = b.fmul(s, s)
    half = b.fmul(b.fmul(f, m.number(0.5)), f)
    rest = m.fma(s, m.fma(z, m.polynomial(z, _LOG), half), b.fmul(n, m.number(_LN2_LOW)))
    result = m.fma(n, m.number(_LN2_HIGH), b.fsub(f, b.fsub(half, rest)))
    infinite = b.fcmp_unordered("==", x, m.number(float("inf")))  # NaN and infinity stay as they are
    result = b.select(infinite, x, result)
    result = b.select(b.fcmp_ordered("<", x, m.number(0.0)), m.number(float("nan")), result)
    return b.select(b.fcmp_ordered("==", x, m.number(0.0)), m.number(float("-inf")), result)


def _tanh(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    size = m.unary("fabs", x)
    power = _exp(m, b.fadd(size, size))
    large = b.fsub(m.number(1.0), b.fdiv(m.number(2.0), b.fadd(power, m.number(1.0))))
    z = b.fmul(size, size)
    p = b.fdiv(m.polynomial(z, _TANH_ABOVE), m.polynomial(z, _TANH_BELOW))
    small = m.fma(b.fmul(p, z), size, size)
    result = b.select(b.fcmp_ordered("<", size, m.number(0.625)), small, large)
    return m.with_sign_of(result, x)


def _sigmoid(m: Maker, x: ir.Value) -> ir.Value:
    b, one = m.builder, m.number(1.0)
    power = _exp(m, b.fneg(m.unary("fabs", x)))  # of at most 0: small results are not lost in an overflow
    above = b.select(b.fcmp_ordered("<", x, m.number(0.0)), power, one)
    return b.fdiv(above, b.fadd(one, power))


_CIRCULAR = Circular(_HALF_PI, _ROUND, _SINE, _COSINE, shift=62)
FUNCTIONS: dict[str, Function] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "sin": partial(_CIRCULAR, quarters=0),
    "cos": partial(_CIRCULAR, quarters=1),
}
