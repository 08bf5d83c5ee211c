"""Attention."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend.size_arithmetic import agreeing
from autosched.frontend.torch.converters.activation import gelu
from autosched.frontend.torch.converters.linear import linear, product
from autosched.frontend.torch.converters.norm import layer_norm, safe_softmax
from autosched.frontend.torch.converters.shape import chunk
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim

KEYS = 1  # the kind of mask that tells for each key of a sequence


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


@converter("_native_multi_head_attention")
def multi_head_attention(
    t: Emitter,
    query: Expr,
    key: Expr,
    value: Expr,
    embed_dim: int,
    num_head: int,
    qkv_weight: Expr,
    qkv_bias: Expr,
    proj_weight: Expr,
    proj_bias: Expr,
    mask: Expr | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Expr, Expr | None]:
    """(what the tokens become, the scores); a key counts where the mask is false, or 0. Without any there is NaN."""
    if query is key and query is value:
        parts = chunk(t, t(linear(t, query, qkv_weight, qkv_bias)), 3, -1)
    else:
        weights = zip(chunk(t, qkv_weight, 3), chunk(t, qkv_bias, 3), strict=True)
        parts = tuple(t(linear(t, x, *own)) for x, own in zip((query, key, value), weights, strict=True))
    dtype, (batch, tokens, width) = info_of(query).dtype, t.shape(query)
    split_up = [t.reshape(x, (*t.shape(x)[:2], num_head, embed_dim // num_head)) for x in parts]
    heads, keys, values = (
        t(op.permute_dims(x, axes=axes)) for x, axes in zip(split_up, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    )
    factor = constant(1.0 / math.sqrt(embed_dim // num_head), dtype)
    scores = t(op.multiply(product(t, heads, keys), factor))
    if mask is not None:
        if mask_type == KEYS:
            mask = t(op.expand_dims(mask, axis=[1, 2]))
        hidden = mask if info_of(mask).dtype == "bool" else t(op.not_equal(mask, constant(0, info_of(mask).dtype)))
        scores = t(op.where(hidden, constant(-np.inf, dtype), scores))
    scores = t(op.nn.softmax(scores, axis=-1))
    joined = t.reshape(t(op.permute_dims(product(t, scores, values), axes=[0, 2, 1, 3])), (batch, tokens, width))
    weights_out = (t(op.mean(scores, axis=1)) if average_attn_weights else scores) if need_weights else None
    return t(linear(t, joined, proj_weight, proj_bias)), weights_out


@converter("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    t: Emitter,
    src: Expr,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Expr,
    qkv_bias: Expr,
    proj_weight: Expr,
    proj_bias: Expr,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Expr,
    norm_bias_1: Expr,
    norm_weight_2: Expr,
    norm_bias_2: Expr,
    ffn_weight_1: Expr,
    ffn_bias_1: Expr,
    ffn_weight_2: Expr,
    ffn_bias_2: Expr,
    mask: Expr | None = None,
    mask_type: int | None = None,
) -> Expr:
    """A layer of `nn.TransformerEncoder`: one operator in graphs of `torch.compile` and in strict exports."""
    activate = gelu if use_gelu else lambda t, x: op.nn.relu(x)

    def attend(x: Expr) -> Expr:
        return multi_head_attention(
            t, x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False,
            mask_type=mask_type,
        )[0]  # fmt: skip

    def feed_forward(x: Expr) -> Expr:
        return linear(t, t(activate(t, t(linear(t, x, ffn_weight_1, ffn_bias_1)))), ffn_weight_2, ffn_bias_2)

    parts = (attend, norm_weight_1, norm_bias_1), (feed_forward, norm_weight_2, norm_bias_2)
    for part, weight, bias in parts:
        if norm_first:
            src = t(op.add(src, t(part(t(layer_norm(t, src, [embed_dim], weight, bias, eps))))))
        else:
            src = t(layer_norm(t, t(op.add(src, t(part(src)))), [embed_dim], weight, bias, eps))
    return src
