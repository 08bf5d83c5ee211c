"""Normalisations and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.errors import InvalidValueError
from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import filled, scalar, value_of
from autosched.frontend.nn.op.elementwise import add, matmul, multiply
from autosched.frontend.nn.op.shapes import permute_dims, reshape
from autosched.relax import op as R


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x) over its sum along an axis."""
    return wrap_nested(R.nn.softmax(value_of(x, name), axis=axis), name)  # type: ignore[no-any-return]


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Over the last dimensions."""
    own = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    gamma = filled(own, 1.0, x.dtype) if weight is None else weight._expr
    beta = filled(own, 0.0, x.dtype) if bias is None else bias._expr
    axes = list(range(-len(own), 0))
    return wrap_nested(R.nn.layer_norm(value_of(x, name), gamma, beta, axes=axes, epsilon=eps), name)  # type: ignore[no-any-return]


def rms_norm(
    x: Tensor, weight: Tensor, axes: int | Sequence[int], epsilon: float = 1e-5, name: str = "rms_norm"
) -> Tensor:
    """x * weight over the root of x's mean square along the axes."""
    along = [axes] if isinstance(axes, int) else list(axes)
    scale = R.rsqrt(R.add(R.mean(R.multiply(x._expr, x._expr), axis=along, keepdims=True), scalar(epsilon, x)))
    return wrap_nested(R.multiply(R.multiply(value_of(x, name), scale), weight._expr), name)  # type: ignore[no-any-return]


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Any = None,
    name: str = "group_norm",
) -> Tensor:
    """Over the channels of each group and all that follows."""
    if channel_axis % x.ndim != 1 or (axes is not None and [a % x.ndim for a in axes] != list(range(2, x.ndim))):
        raise InvalidValueError("group_norm is supported with channels in dimension 1 and over all behind it")
    shape = x.struct_info.static_shape
    rest = math.prod(shape[1:]) // num_groups
    grouped = reshape(x, [shape[0], num_groups, rest])
    result = reshape(layer_norm(grouped, rest, None, None, eps), shape, name)
    wide = [1, shape[1], *[1] * (len(shape) - 2)]
    if weight is not None:
        result = multiply(result, reshape(weight, wide))
    return result if bias is None else add(result, reshape(bias, wide))


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """softmax(Q K' * scale + mask) V over [batch, tokens, heads, dim]; the mask over [batch, heads, tokens, tokens]."""
    q, k, v = (permute_dims(t, [0, 2, 1, 3]) for t in (query, key, value))
    factor = 1.0 / math.sqrt(int(query.struct_info.dims[-1])) if scale is None else scale  # type: ignore[arg-type]
    scores = multiply(matmul(q, permute_dims(k, [0, 1, 3, 2])), factor)
    if is_causal:
        rows, columns = scores.struct_info.static_shape[-2:]
        below = np.tril(np.ones((rows, columns), bool), columns - rows)
        scores = add(scores, Tensor.from_const(np.where(below, 0.0, -np.inf).astype(query.dtype)))
    if attn_mask is not None:
        scores = add(scores, attn_mask)
    return permute_dims(matmul(softmax(scores), v), [0, 2, 1, 3], name)
