"""Keys and values that a decoder keeps from one call to the next."""

from __future__ import annotations

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, const_int
from autosched.topi.shapes import dims


def cache_update(past: Tensor, new: Tensor, start: Tensor, length: PrimExpr, keep_rest: bool = True) -> Tensor:
    """What was kept with what is new written over it, or behind it.

    past    [B, H, P, D]; new [B, H, S, D], of position start[b] of sequence b on
    start   [B], integers in [0, min(P, length - S)]
    length  of the result [B, H, length, D]; positions that neither has are those of the last one kept
    keep_rest  False: behind what is new stands its last position again, and nothing that was kept
    """
    batch, heads, kept, width = dims(past.shape)
    count = dims(new.shape)[2]

    def element(b: PrimExpr, h: PrimExpr, j: PrimExpr, d: PrimExpr) -> PrimExpr:
        at = j - E.cast("int64", start(b))
        own = new(b, h, at if keep_rest else E.minimum(at, count - 1), d)
        is_new = te.all(at >= 0, at < count) if keep_rest else at >= 0
        if const_int(kept) == 0:
            return E.if_then_else(is_new, own, E.const(0, past.dtype))
        there = past(b, h, E.minimum(j, kept - 1), d)
        old = E.if_then_else(kept > 0, there, E.const(0, past.dtype))
        return E.if_then_else(is_new, own, old)

    return te.compute((batch, heads, length, width), element, name="T_cache_update")


def window_cache_length(total: Tensor, capacity: PrimExpr, window: int) -> Tensor:
    """How many of `total` positions a cache keeps that is cut back to `window` whenever it is full.

    total     [B], integers, 0 at least
    capacity  rows that there are, `window` at least
    returns   [B], int64
    """

    def element(b: PrimExpr) -> PrimExpr:
        count = E.cast("int64", total(b))
        step = capacity - window + 1
        return count - E.floordiv(E.maximum(count - capacity, 0) + step - 1, step) * step

    return te.compute(dims(total.shape), element, name="T_window_cache_length")


def cache_slide(kept: Tensor, start: Tensor, length: PrimExpr) -> Tensor:
    """Rows from start[b] on of each sequence, [B, H, length, D] of [B, H, P, D]; behind the last row it is repeated."""
    batch, heads, rows, width = dims(kept.shape)

    def element(b: PrimExpr, h: PrimExpr, j: PrimExpr, d: PrimExpr) -> PrimExpr:
        return kept(b, h, E.minimum(j + E.cast("int64", start(b)), rows - 1), d)

    return te.compute((batch, heads, length, width), element, name="T_cache_slide")
