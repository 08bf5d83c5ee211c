"""Emits divisions of whole numbers of which none is undefined."""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.types import constant, element_of

MOST_BITS = 32  # of integers that are divided as float64 in vectors: CPUs divide integers one by one


def signed_division(b: ir.IRBuilder, x: ir.Value, y: ir.Value, floor: bool, modulo: bool) -> ir.Value:
    """Quotient or remainder of integers (in each lane), rounding down or to zero; LLVM's round to zero.

    As in NumPy, x / 0 and x % 0 are 0, and the least number divided by -1 is itself: no result is undefined.
    """
    zero, none = constant(x.type, 0), None
    if not _divides(y):
        none = b.icmp_signed("==", y, zero)
        least = constant(x.type, -(1 << (element_of(x.type).width - 1)))
        over = b.and_(b.icmp_signed("==", y, constant(x.type, -1)), b.icmp_signed("==", x, least))
        y = b.select(b.or_(none, over), constant(x.type, 1), y)
    if isinstance(x.type, ir.VectorType) and element_of(x.type).width <= MOST_BITS and not isinstance(y, ir.Constant):
        quotient = _in_floats(b, x, y)
        remainder = b.sub(x, b.mul(quotient, y))
    else:
        quotient, remainder = b.sdiv(x, y), b.srem(x, y)
    if none is not None:
        quotient = b.select(none, zero, quotient)  # the remainder of a division by 1 is 0
    if not floor:
        return remainder if modulo else quotient
    wrong = b.and_(b.icmp_signed("!=", remainder, zero), b.icmp_signed("<", b.xor(remainder, y), zero))
    if modulo:
        return b.select(wrong, b.add(remainder, y), remainder)
    return b.select(wrong, b.sub(quotient, constant(x.type, 1)), quotient)


def _in_floats(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The quotient towards 0: that in float64, rounded, is cut off right, as no fraction is nearer to 1 than 1 / x."""
    wide = ir.VectorType(ir.DoubleType(), x.type.count)
    return b.fptosi(b.fdiv(b.sitofp(x, wide), b.sitofp(y, wide)), x.type)


def _divides(y: ir.Value) -> bool:
    """Whether a divisor is constant, not 0 and not -1: then every quotient exists."""
    if not isinstance(y, ir.Constant):
        return False
    lanes = y.constant if isinstance(y.constant, list | tuple) else [y]
    return all(isinstance(c, ir.Constant) and c.constant not in (0, -1, None) for c in lanes)
