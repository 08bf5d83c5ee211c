"""Functions of float32 vectors (`FUNCTIONS` lists them), as LLVM functions inlined where they are called.

`math64.py` has those of float64.

Each reduces its argument to a small range and evaluates a polynomial there; all but sin and cos, which serve arguments
below `CIRCULAR_LIMIT`, are right at overflow, underflow, infinities and NaN. Sources: the single-precision functions of
S. Moshier's Cephes (log, tanh, sin, cos, asin, acos, atan; exp's reduction) and N. Juffa's erff; other polynomials are
fits of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from autosched.codegen.cpu.types import I32, I64, call_intrinsic, constant, element_of, suffix

EXP_BELOW = "exp_below"  # the exponential of numbers that are at most 0
GELU, SILU = "gelu", "silu"
GATES = {"normcdf": GELU, "sigmoid": SILU}  # x times such a function of x, by that function
_LOG2E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # ln 2 in two parts; multiples of the first are exact
# pi / 2 in three parts. A product of the first with a whole number below 2**17, taken off a number that is as large, is
# exact where multiply and add are fused.
_HALF_PI = 1.57079637050628662, -4.37113882867379e-8, -1.71512449e-15
CIRCULAR_LIMIT = 1e5
_EXPONENT = -0x00800000  # the sign and exponent bits
_BIAS = 127  # of float32 exponents
_LEAST_EXP = -87.33654  # below, float32 has no normal numbers for the exponential
_ZERO_EXP = -88.02969  # -127 ln 2
_ROUND = 1.5 * 2.0**23  # adding it to a float32 below 2**22 rounds to an integer

# exp(r) for |r| <= ln 2 / 2, a minimax fit of (exp(r) - 1 - r) / r**2: relative error 3.1e-9
_EXP = (1.3814537903e-3, 8.3687453204e-3, 4.1668390831e-2, 1.6666520397e-1, 4.9999993432e-1, 1.0, 1.0)
# p with normcdf(-u) = exp(-u * u / 2 - u * p(u)) / 2 for u in [0, 5.5], a minimax fit: absolute error 1.7e-10
_NORMCDF = (
    3.800148821e-8, -9.447743610e-7, 1.0398634497e-5, -6.4917205144e-5, 2.2302793908e-4, -4.1260025651e-5,
    -4.7829821257e-3, 3.6337089284e-2, -1.8169059053e-1, 7.9788460417e-1,
)  # fmt: skip
# p with normcdf(-u) = (1 + v * p(v)) ** 8 / 2 for v = -u / 2, u in [0, 6]: u * normcdf(-u) is right to 4e-8
_ROOT_OF_NORMCDF = (
    -1.368239509e-6, -9.808586037e-5, -1.107948250e-3, -4.330898635e-3, -1.319651492e-3, 2.619368397e-2, 5.857402459e-3,
    -1.392679065e-1, 1.994708180e-1,
)  # fmt: skip


@dataclass(slots=True)
class Maker:
    """Arithmetic on values of one vector (or scalar) type of float32 or float64.

    estimates  whether an instruction gives reciprocals with 14 bits, of which one step of Newton's makes quotients in
               less time than a division takes
    """

    builder: ir.IRBuilder
    kind: ir.Type
    has_fma: bool
    estimates: bool = False

    def number(self, x: float) -> ir.Value:
        return constant(self.kind, x if self.is_double else _single(x))

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        if self.has_fma:
            return call_intrinsic(self.builder, f"llvm.fma.{suffix(self.kind)}", self.kind, [a, b, c])
        return self.builder.fadd(self.builder.fmul(a, b), c)

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """coefficients[0] * x**n + … + coefficients[n]."""
        result = self.number(coefficients[0])
        for c in coefficients[1:]:
            result = self.fma(result, x, self.number(c))
        return result

    def quotient(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """x / y with half a unit in the last place more than a division, for y in [1, 2**126].

        A division keeps the divider busy for 16 cycles a vector (Emerald Rapids); an estimate of the reciprocal with a
        step of Newton's takes six instructions.
        """
        if not self.estimates or self.is_double:
            return self.builder.fdiv(x, y)
        near = self._estimate(y)
        return self.builder.fmul(x, self.fma(self.fma(self.builder.fneg(y), near, self.number(1.0)), near, near))

    def _estimate(self, y: ir.Value) -> ir.Value:
        """1 / y with 14 bits, the same in vectors of any width."""
        b, lanes = self.builder, getattr(self.kind, "count", 0)
        if not lanes:
            four = b.insert_element(constant(ir.VectorType(self.kind, 4), 1.0), y, I32(0))
            return b.extract_element(Maker(b, four.type, self.has_fma, True)._estimate(four), I32(0))
        width = next(w for w in (4, 8, 16) if lanes <= w or w == 16)
        part, whole = (ir.VectorType(ir.FloatType(), n) for n in (width, -(-lanes // width) * width))
        result = y = b.shuffle_vector(y, self.number(1.0), _lanes(min(n, lanes) for n in range(whole.count)))
        for start in range(0, whole.count, width):
            at = I64(start)
            some = call_intrinsic(b, f"llvm.vector.extract.{suffix(part)}.{suffix(whole)}", part, [y, at])
            every = ir.IntType(max(8, width))(-1)
            arguments = [some, ir.Constant(part, None), every]
            some = call_intrinsic(b, f"llvm.x86.avx512.rcp14.ps.{32 * width}", part, arguments)
            result = call_intrinsic(b, f"llvm.vector.insert.{suffix(whole)}.{suffix(part)}", whole, [result, some, at])
        return b.shuffle_vector(result, result, _lanes(range(lanes)))

    @property
    def is_double(self) -> bool:
        return isinstance(element_of(self.kind), ir.DoubleType)

    @property
    def integer(self) -> ir.Type:
        """The type of the bits."""
        lanes, element = getattr(self.kind, "count", 1), I64 if self.is_double else I32
        return element if lanes == 1 else ir.VectorType(element, lanes)

    def word(self, x: int) -> ir.Value:
        return constant(self.integer, x)

    def bits(self, x: ir.Value) -> ir.Value:
        return self.builder.bitcast(x, self.integer)

    def floats(self, x: ir.Value) -> ir.Value:
        return self.builder.bitcast(x, self.kind)

    def unary(self, name: str, x: ir.Value) -> ir.Value:
        return call_intrinsic(self.builder, f"llvm.{name}.{suffix(self.kind)}", self.kind, [x])

    def clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """x within [low, high]; NaN stays NaN."""
        b = self.builder
        x = b.select(b.fcmp_ordered(">", x, self.number(high)), self.number(high), x)
        return b.select(b.fcmp_ordered("<", x, self.number(low)), self.number(low), x)

    def with_sign_of(self, size: ir.Value, x: ir.Value) -> ir.Value:
        sign = self.builder.and_(self.bits(x), self.word(-1 << (63 if self.is_double else 31)))
        return self.floats(self.builder.or_(self.bits(size), sign))


def _lanes(which: Iterable[int]) -> ir.Value:
    """A constant that says which lanes a shuffle takes."""
    numbers = list(which)
    return ir.Constant(ir.VectorType(I32, len(numbers)), numbers)


def _single(x: float) -> float:
    import numpy as np

    return float(np.float32(x))


def _reduced_exp(m: Maker, x: ir.Value, bias: int = 0, sign: int = 1) -> tuple[ir.Value, ir.Value]:
    """(exp(r), n + bias) with sign * x = n * ln 2 + r, the integer in the lowest bits; x within [-150, 150]."""
    b = m.builder
    shifted = m.fma(x, m.number(sign * _LOG2E), m.number(_ROUND + bias))  # the sum's last bits are the nearest integer
    n = b.fsub(shifted, m.number(_ROUND + bias))
    r = m.fma(n, m.number(-sign * _LN2_HIGH), x)
    r = m.fma(n, m.number(-sign * _LN2_LOW), r)  # sign * r
    coefficients = [c * sign**k for k, c in enumerate(reversed(_EXP))]
    return m.polynomial(r, coefficients[::-1]), m.bits(shifted)


def _exp(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    # 2**n in two factors, so that both exist. Twice the bias of float32 in n gives each half of it the bias that it
    # needs. A denormal result would cost a hundred cycles (33 ns an element, Zen 3): it becomes 0.
    p, n = _reduced_exp(m, m.clamp(x, _LEAST_EXP, 100.0), 2 * _BIAS)
    half = b.and_(b.shl(n, m.word(22)), m.word(_EXPONENT))
    rest = b.sub(b.shl(n, m.word(23)), half)
    result = b.fmul(b.fmul(p, m.floats(half)), m.floats(rest))
    return b.select(b.fcmp_ordered("<", x, m.number(_LEAST_EXP)), m.number(0.0), result)


def _exp_below(m: Maker, x: ir.Value) -> ir.Value:
    """exp(x) for x <= 0: no result is larger than 1, so that one factor is 2**n, which is 0 for n = -127."""
    b = m.builder
    p, n = _reduced_exp(m, b.select(b.fcmp_ordered("<", x, m.number(_ZERO_EXP)), m.number(_ZERO_EXP), x), _BIAS)
    return b.fmul(p, m.floats(b.shl(n, m.word(23))))


def _bounded_exp(m: Maker, x: ir.Value, factor: float = 1.0) -> ir.Value:
    """factor * exp(x) for x within [-87, 88]; the factor is a power of two."""
    b = m.builder
    p, n = _reduced_exp(m, x)
    return b.fmul(p, m.floats(b.add(b.shl(n, m.word(23)), m.bits(m.number(factor)))))


def _log(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    tiny = b.fcmp_ordered("<", x, m.number(1.17549435e-38))
    scaled = b.select(tiny, b.fmul(x, m.number(2.0**23)), x)
    bits = m.bits(scaled)
    # the mantissa as a number in [sqrt(1/2), sqrt(2)), and the exponent that goes with it
    shifted = b.sub(bits, m.word(0x3F3504F3))
    exponent = b.ashr(shifted, m.word(23))
    mantissa = m.floats(b.sub(bits, b.shl(exponent, m.word(23))))
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


def _tanh(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    size = m.clamp(m.unary("fabs", x), 0.0, 10.0)
    power = _bounded_exp(m, b.fadd(size, size))
    large = b.fsub(m.number(1.0), b.fdiv(m.number(2.0), b.fadd(power, m.number(1.0))))
    z = b.fmul(size, size)
    p = m.polynomial(z, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1))
    small = m.fma(b.fmul(p, z), size, size)
    result = b.select(b.fcmp_ordered("<", size, m.number(0.625)), small, large)
    return m.with_sign_of(result, x)


def _sigmoid(m: Maker, x: ir.Value) -> ir.Value:
    """1 / (1 + exp(-x)); 0 where the result would be denormal."""
    b, one, least = m.builder, m.number(1.0), m.number(_LEAST_EXP)
    p, n = _reduced_exp(m, m.clamp(x, _LEAST_EXP, -_LEAST_EXP), _BIAS, sign=-1)
    result = m.quotient(one, m.fma(p, m.floats(b.shl(n, m.word(23))), one))
    return b.select(b.fcmp_ordered("<", x, least), m.number(0.0), result)


def _silu(m: Maker, x: ir.Value) -> ir.Value:
    """x / (1 + exp(-x)); 0 where `_sigmoid` is, or a little below, and NaN of minus infinity as the product is."""
    if m.estimates:
        return m.builder.fmul(x, _sigmoid(m, x))
    # Of -89 the power of two is infinite, which makes the quotient 0; above it has no more than 2**127.
    p, n = _reduced_exp(m, m.clamp(x, -89.0, -_LEAST_EXP), _BIAS, sign=-1)
    return m.builder.fdiv(x, m.fma(p, m.floats(m.builder.shl(n, m.word(23))), m.number(1.0)))


def _erf(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    size = m.clamp(m.unary("fabs", x), 0.0, 4.0)
    square = b.fmul(size, size)
    r = m.polynomial(size, (-1.72853470e-5, 3.83197126e-4))
    u = m.polynomial(size, (-3.88396438e-3, 2.42546219e-2))
    r = m.fma(r, square, u)
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = m.fma(r, size, m.number(c))
    r = m.fma(r, size, b.fneg(size))
    large = b.fsub(m.number(1.0), _bounded_exp(m, r))
    p = m.polynomial(
        square, (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
    )
    small = m.fma(p, size, size)
    result = b.select(b.fcmp_ordered(">", size, m.number(0.927734375)), large, small)
    return m.with_sign_of(result, x)


def _normcdf(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    size = m.unary("fabs", x)
    near = b.select(b.fcmp_ordered(">", size, m.number(5.5)), m.number(5.5), size)
    power = b.fmul(near, m.polynomial(near, _NORMCDF))
    power = m.fma(b.fmul(size, m.number(-0.5)), size, b.fneg(power))
    gone = b.fcmp_ordered("<", power, m.number(-87.0))
    tail = _bounded_exp(m, b.select(gone, m.number(-87.0), power), 0.5)
    tail = b.select(gone, m.number(0.0), tail)
    return b.select(b.fcmp_ordered("<", x, m.number(0.0)), tail, b.fsub(m.number(1.0), tail))


def _gelu(m: Maker, x: ir.Value) -> ir.Value:
    """x * normcdf(x) as max(x, 0) - |x| * normcdf(-|x|), whose second factor is the eighth power of a polynomial."""
    b, two = m.builder, m.number(2.0)
    v = b.fneg(m.unary("fabs", b.fmul(x, m.number(0.5))))
    t = b.fmul(m.polynomial(v, _ROOT_OF_NORMCDF), v)
    # (1 + t)**2 - 1 and (1 + t)**4 - 1 keep the digits of a small t
    t = b.fmul(t, b.fadd(t, two))
    power = m.fma(t, b.fadd(t, two), m.number(1.0))
    above = b.select(b.fcmp_ordered("<", x, m.number(0.0)), m.number(0.0), x)
    near = b.fcmp_unordered(">=", v, m.number(-3.0))
    return b.select(near, m.fma(b.fmul(v, power), power, above), above)


@dataclass(frozen=True, slots=True)
class Circular:
    """The numbers of sin and cos in one dtype.

    half_pi  pi / 2 in three parts
    rounder  adding it to a number rounds that to an integer, whose bits stand below
    sine     of sin(r) as r + r**3 * sine(r**2)
    cosine   of cos(r) as 1 - r**2 / 2 + r**4 * cosine(r**2)
    shift    from the second bit to that of the sign
    """

    half_pi: tuple[float, float, float]
    rounder: float
    sine: tuple[float, ...]
    cosine: tuple[float, ...]
    shift: int

    def __call__(self, m: Maker, x: ir.Value, quarters: int) -> ir.Value:
        """sin(x + quarters * pi / 2) for |x| below the dtype's limit; sin(-0.0) is -0.0."""
        b = m.builder
        shifted = m.fma(x, m.number(2 / math.pi), m.number(self.rounder))
        n = b.fneg(b.fsub(shifted, m.number(self.rounder)))
        r = x
        for part in self.half_pi:
            r = m.fma(n, m.number(part), r)
        z = b.fmul(r, r)
        sine = m.fma(b.fmul(m.polynomial(z, self.sine), z), r, r)
        cosine = m.fma(b.fmul(m.polynomial(z, self.cosine), z), z, m.fma(z, m.number(-0.5), m.number(1.0)))
        quarter = b.add(m.bits(shifted), m.word(quarters))
        is_odd = b.icmp_signed("!=", b.and_(quarter, m.word(1)), m.word(0))
        sign = b.shl(b.and_(quarter, m.word(2)), m.word(self.shift))
        result = b.xor(m.bits(b.select(is_odd, cosine, sine)), sign)
        zero = b.fcmp_ordered("==", x, m.number(0.0))
        return b.select(zero, x, m.floats(result)) if quarters == 0 else m.floats(result)


_CIRCULAR = Circular(
    _HALF_PI, _ROUND, sine=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    cosine=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2), shift=30,
)  # fmt: skip


def _asin(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    is_large, angle = _arc(m, x)
    return m.with_sign_of(b.select(is_large, m.fma(m.number(-2.0), angle, m.number(math.pi / 2)), angle), x)


def _acos(m: Maker, x: ir.Value) -> ir.Value:
    b = m.builder
    is_large, angle = _arc(m, x)
    twice = b.fadd(angle, angle)
    large = b.select(b.fcmp_ordered("<", x, m.number(0.0)), b.fsub(m.number(math.pi), twice), twice)
    return b.select(is_large, large, b.fsub(m.number(math.pi / 2), m.with_sign_of(angle, x)))


def _arc(m: Maker, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(whether |x| > 1/2, the arcsine of |x|, or where it is larger of sqrt((1 - |x|) / 2)); NaN for |x| > 1."""
    b = m.builder
    size = m.unary("fabs", x)
    is_large = b.fcmp_ordered(">", size, m.number(0.5))
    square = b.select(is_large, m.fma(size, m.number(-0.5), m.number(0.5)), b.fmul(size, size))
    sine = b.select(is_large, m.unary("sqrt", square), size)
    p = m.polynomial(square, (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1))
    return is_large, m.fma(b.fmul(p, square), sine, sine)


def _atan(m: Maker, x: ir.Value) -> ir.Value:
    b, one = m.builder, m.number(1.0)
    size = m.unary("fabs", x)
    is_large = b.fcmp_ordered(">", size, m.number(math.tan(3 * math.pi / 8)))
    is_middle = b.fcmp_ordered(">", size, m.number(math.tan(math.pi / 8)))
    above = b.select(is_large, m.number(-1.0), b.select(is_middle, b.fsub(size, one), size))
    below = b.select(is_large, size, b.select(is_middle, b.fadd(size, one), one))
    start = b.select(is_middle, m.number(math.pi / 4), m.number(0.0))
    start = b.select(is_large, m.number(math.pi / 2), start)
    tangent = b.fdiv(above, below)
    z = b.fmul(tangent, tangent)
    p = m.polynomial(z, (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1))
    return m.with_sign_of(b.fadd(start, m.fma(b.fmul(p, z), tangent, tangent)), x)


Function = Callable[[Maker, ir.Value], ir.Value]
CIRCULAR = ("sin", "cos")
FUNCTIONS: dict[str, Function] = {
    "exp": _exp, EXP_BELOW: _exp_below, "log": _log, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf,
    "normcdf": _normcdf, GELU: _gelu, SILU: _silu, "asin": _asin, "acos": _acos, "atan": _atan,
    "sin": partial(_CIRCULAR, quarters=0), "cos": partial(_CIRCULAR, quarters=1),
}  # fmt: skip
