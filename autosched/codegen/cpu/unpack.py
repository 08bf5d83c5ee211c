"""Integers of a few bits inside of a word, as floats, without a conversion.

The bits of the float 2^(23 - p), with an integer q put into its lowest bits from bit p on, are those of 2^(23 - p) + q.
So `q - c` is one logical operation and one exact subtraction, where p + bits <= 23; else the word is shifted first.

Before:  float32(word >> 4 & 15) - 8
After:   reinterpret(word & 0xf0 | bits of 2^19) - (2^19 + 8)
"""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.types import constant, lanes_of, value_type
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr

MANTISSA_BITS, BIAS = 23, 127
MOST_BITS = 8


def emit_field(emitter: Emitter, e: PrimExpr, less: PrimExpr | None = None) -> ir.Value:
    """The float32 of a field of a uint32, `float32(word >> c & mask) - less`; None where the expression is no such.

    less  a whole number below 2^8, or nothing
    """
    if less is not None and not isinstance(less, E.FloatImm):
        return None
    found = _field(emitter, e)
    offset = less.value if isinstance(less, E.FloatImm) else 0.0
    if found is None or offset != int(offset) or not 0 <= offset <= 1 << MOST_BITS:
        return None
    word, shift, bits = found
    b, x = emitter.builder, emitter.value(word)
    if shift + bits > MANTISSA_BITS:
        moved = 32 - MANTISSA_BITS + (-(32 - MANTISSA_BITS) % bits)  # the same for all fields that are shifted
        x, shift = b.lshr(x, constant(x.type, moved)), shift - moved
    exponent = BIAS + MANTISSA_BITS - shift
    kept = b.and_(x, constant(x.type, ((1 << bits) - 1) << shift))
    made = b.or_(kept, constant(x.type, exponent << MANTISSA_BITS))
    real = b.bitcast(made, value_type("float32", lanes_of(made)))
    return b.fsub(real, constant(real.type, float(1 << MANTISSA_BITS - shift) + offset))


def _field(emitter: Emitter, e: PrimExpr) -> tuple[PrimExpr, int, int] | None:
    """(word, shift, bits) of float32(word >> shift & (2^bits - 1)), where the shift is known when code is made."""
    if not (isinstance(e, E.Cast) and e.dtype == "float32" and _is(e.value, "bitwise_and")):
        return None
    moved, mask = e.value.args  # type: ignore[attr-defined]
    if not isinstance(mask, E.IntImm) or mask.value not in (3, 15, 255) or not _is(moved, "shift_right"):
        return None
    word, shift = moved.args
    if not emitter.is_pure(shift):
        return None
    at, bits = emitter.index(shift), mask.value.bit_length()
    if not isinstance(at, Affine) or at.terms or at.lane or not 0 <= at.const <= 32 - bits or at.const % bits:
        return None
    return word, at.const, bits


def _is(e: PrimExpr, op: str) -> bool:
    return isinstance(e, E.Call) and e.op == op and e.dtype == "uint32"
