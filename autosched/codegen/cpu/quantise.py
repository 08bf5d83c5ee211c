"""Floats rounded to bytes, as quantisers do: uint8(max(min(nearbyint(x) + zero, 255), 0)).

x86-64 rounds where it converts, so that x is cut off first, at 255 - zero and 0 - zero, and takes four instructions
instead of seven. No number becomes 0 as it does in other conversions. LLVM leaves the lower bound out where it knows x
to be 0 or more or no number; what no number is converted to, the least int32, ends in 0, or is cut off afterwards.

A byte that becomes a float again at once, less a zero point, stays a whole number of 32 bits: packing and unpacking
take as many instructions as all else between two quantisers.

A quotient y / s by a constant, which takes 16 cycles a vector, is made by its reciprocal r and then mended:
q = y * r, q + (y - q * s) * r, which is y / s but for the last digit of few (Markstein, IBM J. of Research 34, 1990).
Of 320 million quotients within three floats of the ties that bytes are rounded at, of 120,000 scales, none became
another byte. Quotients that are cut off anyway, infinite ones among them, are not mended.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir

from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.types import call_intrinsic, constant, lanes_of, suffix, value_type
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr

LIMIT = 255
FAR = 2.0**20  # beyond all limits
MANTISSA = 0x7FFFFF
SCALES = 2.0**-60, 2.0**60  # with which nothing that counts overflows or loses digits


def rounded(e: E.Cast) -> tuple[PrimExpr, int] | None:
    """(x, zero) of a float that is rounded to an unsigned byte; None for other conversions."""
    if e.dtype != "uint8" or e.value.dtype != "float32":
        return None
    least = e.value
    if type(least) is not E.Max or _number(least.b) != 0 or type(least.a) is not E.Min:
        return None
    value, zero = least.a.a, 0.0
    if _number(least.a.b) != LIMIT:
        return None
    if isinstance(value, E.Add) and (shift := _number(value.b)) is not None:
        value, zero = value.a, shift
    if not isinstance(value, E.Call) or value.op != "nearbyint" or not 0 <= zero <= LIMIT or zero != int(zero):
        return None
    return value.args[0], int(zero)


def requantised(e: E.Cast) -> tuple[PrimExpr, int, int] | None:
    """(x, zero, z) of float32(int32(uint8(rounded x)) - z); None for other conversions."""
    if e.dtype != "float32" or e.value.dtype != "int32":
        return None
    whole, z = e.value, 0
    if type(whole) is E.Sub and isinstance(shift := whole.b, E.IntImm):
        whole, z = whole.a, shift.value
    byte = whole.value if isinstance(whole, E.Cast) else None
    found = rounded(byte) if isinstance(byte, E.Cast) and 0 <= z <= LIMIT else None
    return None if found is None else (*found, z)


def _number(e: PrimExpr) -> float | None:
    return e.value if isinstance(e, E.FloatImm) else None


def scaled(x: PrimExpr) -> tuple[PrimExpr, float] | None:
    """(y, s) of a quotient y / s by a constant of which the reciprocal serves."""
    s = _number(x.b) if isinstance(x, E.Div) else None
    if s is None or not SCALES[0] < s < SCALES[1]:
        return None
    assert isinstance(x, E.Div), "just seen"
    digits = int(np.float32(s).view(np.uint32)) & MANTISSA
    return (x.a, s) if digits != MANTISSA and float(np.float32(s)) == s else None


def most(e: PrimExpr) -> float:
    """What the size of a number that bytes and constants make is at most; infinite where that is not known."""
    match e:
        case E.IntImm() | E.FloatImm():
            return abs(float(e.value))
        case E.Cast() if e.dtype in ("int32", "float32") and e.value.dtype in ("uint8", "int32"):
            return float(LIMIT) if e.value.dtype == "uint8" else most(e.value)
        case E.Add() | E.Sub():
            return most(e.a) + most(e.b)
        case E.Mul():
            sides = most(e.a), most(e.b)
            return sides[0] * sides[1] if math.inf not in sides else math.inf
        case E.Max() | E.Min():
            return max(most(e.a), most(e.b))
    return math.inf


def emit_quotient(emitter: Emitter, y: ir.Value, s: float, size: float = math.inf) -> ir.Value:
    """y / s where it is small; something large with the same sign elsewhere.

    size  what y's is at most
    """
    b = emitter.builder
    inverse = constant(y.type, float(np.float32(1) / np.float32(s)))
    q = b.fmul(y, inverse)
    rest = emitter.fused(b.fneg(q), constant(y.type, s), y)
    if size < FAR / 2 * s:
        return emitter.fused(rest, inverse, q)
    near = b.fcmp_ordered("<", call_intrinsic(b, f"llvm.fabs.{suffix(y.type)}", y.type, [q]), constant(y.type, FAR))
    return b.select(near, emitter.fused(rest, inverse, q), q)


def emit_rounded(emitter: Emitter, x: ir.Value, zero: int) -> ir.Value:
    """The bytes of LLVM floats."""
    b, least = emitter.builder, constant(x.type, float(-zero))
    x = _cut_above(emitter, x, zero)
    x = b.select(b.fcmp_ordered(">", x, least), x, least)
    y = _whole(emitter, x)
    return b.trunc(b.add(y, constant(y.type, zero)) if zero else y, value_type("uint8", lanes_of(x)))


def emit_whole(emitter: Emitter, x: ir.Value, zero: int, z: int = 0) -> ir.Value:
    """The bytes of LLVM floats, less z, in 32 bits."""
    b, y = emitter.builder, _whole(emitter, _cut_above(emitter, x, zero))
    least = constant(y.type, -zero)
    y = b.select(b.icmp_signed(">", y, least), y, least)
    return b.add(y, constant(y.type, zero - z)) if zero != z else y


def _cut_above(emitter: Emitter, x: ir.Value, zero: int) -> ir.Value:
    most = constant(x.type, float(LIMIT - zero))
    return emitter.builder.select(emitter.builder.fcmp_ordered("<", most, x), most, x)


def _whole(emitter: Emitter, x: ir.Value) -> ir.Value:
    """The nearest int32, the least one where there is none."""
    whole = value_type("int32", lanes_of(x))
    return call_intrinsic(emitter.builder, f"llvm.lrint.{suffix(whole)}.{suffix(x.type)}", whole, [x])


__all__ = ["emit_quotient", "emit_rounded", "emit_whole", "requantised", "rounded", "scaled"]
