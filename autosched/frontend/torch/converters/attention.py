"""Attention."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend.torch.converters.linear import product
from autosched.frontend.torch.converters.norm import safe_softmax
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr


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
        lower = np.tril(np.ones((shape[-2], t.shape(key)[-2]), bool))
        scores = t(op.add(scores, Constant(np.where(lower, 0.0, -np.inf).astype(dtype))))
    if attn_mask is not None:
        scores = t(_masked(scores, attn_mask, dtype))
        return product(t, t(safe_softmax(t, scores, -1)), value)
    return product(t, t(op.nn.softmax(scores, axis=-1)), value)


def _repeated(t: Emitter, x: Expr, heads: int) -> Expr:
    """Keys or values [..., heads, tokens, dim] with each head as often as several queries share it."""
    *lead, own, tokens, dim = t.shape(x)
    if own == heads:
        return x
    wide = t.reshape(x, (*lead, own, 1, tokens, dim))
    return t.reshape(t(op.broadcast_to(wide, (*lead, own, heads // own, tokens, dim))), (*lead, heads, tokens, dim))


def _masked(scores: Expr, mask: Expr, dtype: str) -> Expr:
    if info_of(mask).dtype == "bool":
        return op.where(mask, scores, constant(-np.inf, dtype))
    return op.add(scores, mask)
