"""Keys and values that a decoder keeps from one call to the next."""

from __future__ import annotations

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, const_int
from autosched.topi.shapes import dims


def cache_update(past: Tensor, new: Tensor, start: Tensor, length: PrimExpr) -> Tensor:
    """What was kept with what is new written over it, or behind it.

    past    [B, H, P, D]; new [B, H, S, D], of position start[b] of sequence b on
    start   [B], integers in [0, min(P, length - S)]
    length  of the result [B, H, length, D]; positions that neither has are those of the last one kept
    """
    batch, heads, kept, width = dims(past.shape)
    count = dims(new.shape)[2]

    def element(b: PrimExpr, h: PrimExpr, j: PrimExpr, d: PrimExpr) -> PrimExpr:
        at = j - E.cast("int64", start(b))
        own = new(b, h, at, d)
        if const_int(kept) == 0:
            return E.if_then_else(te.all(at >= 0, at < count), own, E.const(0, past.dtype))
        there = past(b, h, E.minimum(j, kept - 1), d)
        old = E.if_then_else(kept > 0, there, E.const(0, past.dtype))
        return E.if_then_else(te.all(at >= 0, at < count), own, old)

    return te.compute((batch, heads, length, width), element, name="T_cache_update")
