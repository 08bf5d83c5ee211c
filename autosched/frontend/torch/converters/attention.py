"""Attention."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend.size_arithmetic import agreeing
from autosched.frontend.torch.converters.linear import product
from autosched.frontend.torch.converters.norm import safe_softmax
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim


@converter("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
def attention(
    t: Emitter,
    query: Expr,
    key: Expr,
    value: Expr,
    attn_mask: Expr | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """softmax(Q K' * scale + mask) V over [..., tokens, dim], as the operators that fusion recognises."""
    if dropout_p:
        raise t.fail(f"attention with dropout_p={dropout_p} is not supported")
    if enable_gqa:
        key, value = (_repeated(t, x, t.shape(query)[-3]) for x in (key, value))
    shape, dtype = t.shape(query), info_of(query).dtype
    axes = list(range(len(shape)))
    axes[-1], axes[-2] = axes[-2], axes[-1]
    scores = product(t, query, t(op.permute_dims(key, axes=axes)))
    factor = 1.0 / math.sqrt(shape[-1]) if scale is None else float(scale)
    scores = t(op.multiply(scores, constant(factor, dtype)))
    if is_causal:
        scores = t(op.add(scores, _causal_mask(t, shape[-2], t.shape(key)[-2], dtype)))
    if attn_mask is not None:
        scores, attn_mask = agreeing([scores, attn_mask], t)
        scores = t(_masked(scores, attn_mask, dtype))
        return product(t, t(safe_softmax(t, scores, -1)), value)
    return product(t, t(op.nn.softmax(scores, axis=-1)), value)


def _causal_mask(t: Emitter, rows: Dim, columns: Dim, dtype: str) -> Expr:
    """Zero up to the diagonal, minus infinity above it."""
    if isinstance(rows, int) and isinstance(columns, int):
        lower = np.tril(np.ones((rows, columns), bool))
        return Constant(np.where(lower, 0.0, -np.inf).astype(dtype))
    row, column = (t(op.size_range(ShapeExpr((0, n)))) for n in (rows, columns))
    seen = t(op.less_equal(t(op.expand_dims(column, axis=0)), t(op.expand_dims(row, axis=1))))
    return t(op.where(seen, constant(0.0, dtype), constant(-np.inf, dtype)))


def _repeated(t: Emitter, x: Expr, heads: int) -> Expr:
    """Keys or values [..., heads, tokens, dim] with each head as often as several queries share it."""
    *lead, own, tokens, dim = t.shape(x)
    if own == heads:
        return x
    wide = t.reshape(x, (*lead, own, 1, tokens, dim))
    return t.reshape(t.broadcast(wide, (*lead, own, heads // own, tokens, dim)), (*lead, heads, tokens, dim))


def _masked(scores: Expr, mask: Expr, dtype: str) -> Expr:
    if info_of(mask).dtype == "bool":
        return op.where(mask, scores, constant(-np.inf, dtype))
    return op.add(scores, mask)
