"""Attention between quantisers: whole numbers are multiplied, and the softmax's weights are made whole in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.topi.attention import Layered, broadcast

WIDE = "float32"
Steps = tuple[float, int, str]  # a quantiser: its scale, its zero point, its dtype
# ("multiply", number), ("divide", number), ("add",), or ("quantise", *steps, the scale by which bytes are floats again)
Change = tuple[Any, ...]


def whole(x: PrimExpr, steps: Steps) -> PrimExpr:
    """The byte of a float less the zero point, in int32."""
    scale, zero, dtype = steps
    limits = np.iinfo(dtype)
    value = te.nearbyint(E.Div(x, E.const(scale, WIDE)))
    value = value + E.const(float(zero), WIDE) if zero else value
    value = E.maximum(E.minimum(value, E.const(float(limits.max), WIDE)), E.const(float(limits.min), WIDE))
    byte = E.cast("int32", E.cast(dtype, value))
    return byte - E.const(zero, "int32") if zero else byte


def attention_bytes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    changes: Sequence[Change],
    weights: Steps,
    layouts: Sequence[str],
) -> Tensor:
    """whole(softmax(changed(query keyᵀ))) value, a head for itself, in float32.

    query, key, value  whole numbers in bfloat16, which holds those of a byte less a zero point, in their layouts
    bias     what the change ("add",) adds, broadcast to [B, H, S, T]
    changes  what becomes of the scores before the softmax, in order
    weights  the quantiser behind it
    returns  sums of products of whole numbers, to be multiplied by the scales of weights and values
    """
    q, k, v = (Layered(x, layout) for x, layout in zip((query, key, value), layouts, strict=False))
    batch, heads, rows, columns = q.size("B"), q.size("H"), q.size("S"), k.size("S")
    d = te.reduce_axis((0, q.size("D")), "d")
    names = ["b", "h", "i", "j"]

    def product(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return te.sum(E.cast(WIDE, q(B=b, H=h, S=i, D=d)) * E.cast(WIDE, k(B=b, H=h, S=j, D=d)), axis=d)

    scores = te.compute((batch, heads, rows, columns), product, name="attention_scores", varargs_names=names)

    def changed(*at: PrimExpr) -> PrimExpr:
        x: PrimExpr = scores(*at)
        for kind, *given in changes:
            if kind == "add":
                assert bias is not None, "the type rule looked"
                x = x + broadcast(bias, *at)
            elif kind == "quantise":
                scale, zero, dtype, again = given
                x = E.cast(WIDE, whole(x, (scale, zero, dtype))) * E.const(again, WIDE)
            else:
                number = E.const(given[0], WIDE)
                x = x * number if kind == "multiply" else E.Div(x, number)
        return x

    scaled = te.compute(scores.shape, changed, name="attention_scaled", varargs_names=names)
    over = [te.reduce_axis((0, columns), "j") for _ in range(3)]
    largest = te.compute(
        (batch, heads, rows), lambda b, h, i: te.max(scaled(b, h, i, over[0]), axis=over[0]), name="attention_max"
    )
    power = te.compute(
        scores.shape, lambda b, h, i, j: te.exp(scaled(b, h, i, j) - largest(b, h, i)), name="attention_exp",
        varargs_names=names,
    )  # fmt: skip
    total = te.compute(
        (batch, heads, rows), lambda b, h, i: te.sum(power(b, h, i, over[1]), axis=over[1]), name="attention_sum"
    )

    def weight(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        share = power(b, h, i, j) * E.Div(E.const(1.0, WIDE), total(b, h, i))
        return E.cast(query.dtype, E.cast(WIDE, whole(share, weights)))

    bytes_ = te.compute(scores.shape, weight, name="attention_weights", varargs_names=names)
    sizes = {"B": batch, "S": rows, "H": heads, "D": v.size("D")}

    def weighted(*at: PrimExpr) -> PrimExpr:
        to = dict(zip(layouts[3], at, strict=True))
        k = over[2]
        element = v(B=to["B"], H=to["H"], S=k, D=to["D"])
        return te.sum(E.cast(WIDE, bytes_(to["B"], to["H"], to["S"], k)) * E.cast(WIDE, element), axis=k)

    shape = tuple(sizes[x] for x in layouts[3])
    return te.compute(shape, weighted, name="attention_context", varargs_names=[x.lower() for x in layouts[3]])


__all__ = ["attention_bytes", "whole"]
