"""The form of sums of products: x[i] = x[i] + a * b, of bytes or int16 as int32, or of bfloat16 as float32.

Four products of bytes that lie side by side in words are also a call: x[i] = dot_bytes(x[i], a, b).
"""

from __future__ import annotations

from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.stmt import BufferStore, Stmt

DOT_BYTES = "dot_bytes"  # (int32 sum, word of four unsigned bytes, word of four signed ones) -> sum with products
BITS = 16  # of bfloat16: the upper half of a float32


def added_product(stmt: Stmt) -> tuple[BufferLoad, E.Mul] | None:
    """(the element before, the product that a statement adds to it); None for other statements."""
    if not isinstance(stmt, BufferStore) or not isinstance(stmt.value, E.Add):
        return None
    before, product = stmt.value.a, stmt.value.b
    if not isinstance(product, E.Mul) or not isinstance(before, BufferLoad) or not is_own(before, stmt):
        return None
    return before, product


def byte_factors(product: E.Mul) -> tuple[BufferLoad, BufferLoad] | None:
    """(the unsigned byte, the signed one) of a product of both in int32."""
    casts = [x for x in (product.a, product.b) if isinstance(x, E.Cast) and isinstance(x.value, BufferLoad)]
    loads = {x.value.dtype: x.value for x in casts}
    found = loads.get("uint8"), loads.get("int8")
    return found if product.dtype == "int32" and None not in found else None  # type: ignore[return-value]


def added_words(stmt: Stmt) -> tuple[BufferLoad, BufferLoad] | None:
    """(the word of unsigned bytes, that of signed ones) of which a statement adds the dot product; None for others."""
    if not isinstance(stmt, BufferStore) or not isinstance(stmt.value, E.Call) or stmt.value.op != DOT_BYTES:
        return None
    before, unsigned, signed = stmt.value.args
    if not isinstance(before, BufferLoad) or not is_own(before, stmt):
        return None
    return (unsigned, signed) if isinstance(unsigned, BufferLoad) and isinstance(signed, BufferLoad) else None


def short_factors(product: E.Mul) -> tuple[BufferLoad, BufferLoad] | None:
    """The factors of a product of two int16 in int32."""
    factors = [x.value for x in (product.a, product.b) if isinstance(x, E.Cast) and isinstance(x.value, BufferLoad)]
    if product.dtype != "int32" or [f.dtype for f in factors] != ["int16"] * 2:
        return None
    return factors[0], factors[1]


def bfloat_factors(product: E.Mul) -> tuple[BufferLoad, BufferLoad] | None:
    """The bits of both factors of a product of bfloat16 in float32."""
    a, b = _bits(product.a), _bits(product.b)
    return None if a is None or b is None else (a, b)


def _bits(e: PrimExpr) -> BufferLoad | None:
    """The 16 bits that an expression makes a float32 of, as `codegen.lower.half` writes it."""
    if not isinstance(e, E.Call) or e.op != "reinterpret" or e.dtype != "float32":
        return None
    moved = e.args[0]
    if not isinstance(moved, E.Call) or moved.op != "shift_left" or const_int(moved.args[1]) != BITS:
        return None
    x = moved.args[0]
    x = x.value if isinstance(x, E.Cast) else x
    return x if isinstance(x, BufferLoad) and x.buffer.dtype == "uint16" else None


__all__ = ["BITS", "DOT_BYTES", "added_product", "added_words", "bfloat_factors", "byte_factors", "short_factors"]
