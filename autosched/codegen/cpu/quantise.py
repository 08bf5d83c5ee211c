"""Floats rounded to bytes, as quantisers do: uint8(max(min(nearbyint(x) + zero, 255), 0)).

x86-64 rounds where it converts, so that x is cut off first, at 255 - zero and 0 - zero, and takes four instructions
instead of seven; three where packing cuts off above (AVX-512), which takes the least int32, that large numbers are
converted to, for a large number without a sign. No number becomes 0 as it does in other conversions. LLVM leaves the
lower bound out where it knows x to be 0 or more or no number; what no number is converted to, the least int32, ends in
0, or is cut off afterwards.

A byte that becomes a float again at once, less a zero point, stays a whole number of 32 bits: packing and unpacking
take as many instructions as all else between two quantisers.

A quotient y / s by a constant, which takes 16 cycles a vector, is made by a sum of two products, y * high + y * low,
where high + low is 1 / s in twice the digits. Both grow with y, so that they round to the same whole numbers everywhere
if they do around the ties; that is looked at for each scale, and one that fails is divided by (none is known).
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import TypeGuard

import numpy as np
from llvmlite import ir

from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.types import call_intrinsic, constant, lanes_of, suffix, value_type
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, const_int

LIMIT = 255
LITERAL = "literal"  # (number of a word) -> what data of the kernel is there: see `literals.py`
QUOTIENT = "quotient"  # (y, high, low) -> y / s, where high + low is 1 / s: a scale that is data of the kernel
ZERO_POINT = "zero_point"  # (number of a word) -> 1 to 255; behind it are that as an integer, -z, 255 - z
AROUND = 4  # floats on each side of one
SCALES = 2.0**-60, 2.0**60  # with which nothing that counts overflows or loses digits


Shift = int | E.Call  # a zero point: a number, or one that is data


def rounded(e: E.Cast) -> tuple[PrimExpr, Shift] | None:
    """(x, zero) of a float that is rounded to an unsigned byte; None for other conversions."""
    if e.dtype != "uint8" or e.value.dtype != "float32":
        return None
    least = e.value
    if type(least) is not E.Max or _number(least.b) != 0 or type(least.a) is not E.Min:
        return None
    value, zero = least.a.a, 0.0
    if _number(least.a.b) != LIMIT:
        return None
    data: E.Call | None = None
    if isinstance(value, E.Add) and _is_zero_point(word := value.b):
        value, data = value.a, word
    elif isinstance(value, E.Add) and (shift := _number(value.b)) is not None:
        value, zero = value.a, shift
    if not isinstance(value, E.Call) or value.op != "nearbyint" or not 0 <= zero <= LIMIT or zero != int(zero):
        return None
    return value.args[0], int(zero) if data is None else data


def requantised(e: E.Cast) -> tuple[PrimExpr, Shift, PrimExpr] | None:
    """(x, zero, z) of float32(int32(uint8(rounded x)) - z); None for other conversions."""
    if e.dtype != "float32" or e.value.dtype != "int32":
        return None
    whole: PrimExpr = e.value
    z: PrimExpr = E.IntImm(0, "int32")
    if isinstance(whole, E.Sub) and (_is_data(shift := whole.b) or isinstance(shift, E.IntImm)):
        whole, z = whole.a, shift
    if isinstance(z, E.IntImm) and not 0 <= z.value <= LIMIT:
        return None
    byte = whole.value if isinstance(whole, E.Cast) else None
    found = rounded(byte) if isinstance(byte, E.Cast) else None
    return None if found is None else (*found, z)


def _is_data(e: PrimExpr) -> bool:
    return isinstance(e, E.Call) and e.op in (ZERO_POINT, LITERAL)


def _is_zero_point(e: PrimExpr) -> TypeGuard[E.Call]:
    return isinstance(e, E.Call) and e.op == ZERO_POINT


def _number(e: PrimExpr) -> float | None:
    return e.value if isinstance(e, E.FloatImm) else None


def scaled(x: PrimExpr) -> tuple[PrimExpr, float] | None:
    """(y, s) of a quotient y / s by a constant of which the reciprocal serves."""
    s = _number(x.b) if isinstance(x, E.Div) else None
    if s is None or not SCALES[0] < s < SCALES[1] or float(np.float32(s)) != s:
        return None
    assert isinstance(x, E.Div), "just seen"
    return (x.a, s) if _has_reciprocal(s) else None


def emit_quotient(emitter: Emitter, y: ir.Value, s: float) -> ir.Value:
    """y / s, with the same nearest integer in all that bytes are made of, and as infinite as y."""
    high, low = (float(part) for part in reciprocal(s))
    if not low:
        return emitter.builder.fmul(y, constant(y.type, high))
    return emitter.fused(y, constant(y.type, high), emitter.builder.fmul(y, constant(y.type, low)))


def reciprocal(s: float) -> tuple[np.float32, np.float32]:
    """1 / s as the sum of two floats, neither of which has another sign: infinite numbers stay what they are."""
    exact = 1 / Fraction(s)
    high = np.float32(1 / s)
    if Fraction(float(high)) > exact:
        high = np.nextafter(high, np.float32(0))
    return high, np.float32(float(exact - Fraction(float(high))))


@functools.lru_cache(maxsize=4096)
def _has_reciprocal(s: float) -> bool:
    """Whether the sum of two products has the quotient's nearest integer for every float, up to where bytes end.

    Both become larger with y, so it is enough to look at the floats around those for which the quotient is a tie.
    """
    high, low = reciprocal(s)
    ties = (np.arange(LIMIT + 1) + 0.5) * s
    around = np.arange(-AROUND, AROUND + 1, dtype=np.int32)
    y = (ties.astype(np.float32).view(np.int32)[:, None] + around).view(np.float32)
    divided = np.rint(y / np.float32(s))
    added = np.rint(_rounded_once(y.astype(np.float64) * float(high), (y * low).astype(np.float64)))
    ends = np.arange(LIMIT + 1)[:, None] + np.array([0, 1])
    return bool(np.array_equal(divided, added) and np.array_equal(divided[:, [0, -1]], ends))


def _rounded_once(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32(a + b) as a fused operation rounds it: the sum in float64 is made odd where digits are lost."""
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)
    bits = total.view(np.int64)
    odd = np.where((lost > 0) == (total > 0), bits | 1, bits - 1)
    bits = np.where((lost != 0) & (bits & 1 == 0), odd, bits)
    result: np.ndarray = bits.view(np.float64).astype(np.float32)
    return result


def emit_by_parts(emitter: Emitter, e: E.Call) -> ir.Value:
    """y / s of a scale that is data: `QUOTIENT`."""
    y, high, low = map(emitter.value, e.args)
    return emitter.fused(y, high, emitter.builder.fmul(*emitter.both(y, low)))


def emit_rounded(emitter: Emitter, x: ir.Value, zero: Shift) -> ir.Value:
    """The bytes of LLVM floats."""
    b, at = emitter.builder, _ZeroPoint(emitter, zero, lanes_of(x))
    packing_cuts = emitter.isa.vector_bits == 512
    if not packing_cuts:
        x = b.select(b.fcmp_ordered("<", at.most, x), at.most, x)
    x = b.select(b.fcmp_ordered(">", x, at.least), x, at.least)
    y = _whole(emitter, x)
    y = b.add(y, at.whole) if isinstance(zero, E.Call) or zero else y
    if packing_cuts:
        y = call_intrinsic(b, f"llvm.umin.{suffix(y.type)}", y.type, [y, constant(y.type, LIMIT)])
    return b.trunc(y, value_type("uint8", lanes_of(x)))


def emit_whole(emitter: Emitter, x: ir.Value, zero: Shift, z: PrimExpr) -> ir.Value:
    """The bytes of LLVM floats, less z, in 32 bits."""
    b, at = emitter.builder, _ZeroPoint(emitter, zero, lanes_of(x))
    y = _whole(emitter, b.select(b.fcmp_ordered("<", at.most, x), at.most, x))
    least = b.sub(constant(y.type, 0), at.whole)
    y = b.select(b.icmp_signed(">", y, least), y, least)
    if isinstance(z, E.IntImm) and isinstance(zero, int):
        return b.add(y, constant(y.type, zero - z.value)) if zero != z.value else y
    if isinstance(zero, E.Call) and at.is_whole(z):
        return y
    return b.add(y, b.sub(at.whole, emitter.in_lanes(emitter.value(z), lanes_of(x))))


class _ZeroPoint:
    """A zero point in vectors: as an integer, what is least and most before it is added."""

    def __init__(self, emitter: Emitter, zero: Shift, lanes: int):
        self._emitter, self._zero, self._lanes = emitter, zero, lanes
        self._numbers = (zero, -zero, LIMIT - zero) if isinstance(zero, int) else None

    def _part(self, place: int, dtype: str) -> ir.Value:
        if self._numbers is not None:
            kind = value_type(dtype, self._lanes)
            return constant(kind, self._numbers[place] if dtype == "int32" else float(self._numbers[place]))
        return self._emitter.in_lanes(self._emitter.value(self._word(1 + place, dtype)), self._lanes)

    def _word(self, behind: int, dtype: str) -> E.Call:
        assert isinstance(self._zero, E.Call) and isinstance(at := self._zero.args[0], E.IntImm), "as it is made"
        return E.Call(ZERO_POINT, (E.IntImm(at.value + behind),), dtype)

    @property
    def whole(self) -> ir.Value:
        return self._part(0, "int32")

    @property
    def least(self) -> ir.Value:
        return self._part(1, "float32")

    @property
    def most(self) -> ir.Value:
        return self._part(2, "float32")

    def is_whole(self, z: PrimExpr) -> bool:
        """Whether an integer that is data is this zero point."""
        own = self._word(1, "int32").args[0]
        return isinstance(z, E.Call) and z.op == ZERO_POINT and const_int(z.args[0]) == const_int(own)


def _whole(emitter: Emitter, x: ir.Value) -> ir.Value:
    """The nearest int32, the least one where there is none."""
    whole = value_type("int32", lanes_of(x))
    return call_intrinsic(emitter.builder, f"llvm.lrint.{suffix(whole)}.{suffix(x.type)}", whole, [x])


__all__ = [
    "LITERAL", "QUOTIENT", "ZERO_POINT", "emit_by_parts", "emit_quotient", "emit_rounded", "emit_whole", "requantised",
    "rounded", "scaled",
]  # fmt: skip
