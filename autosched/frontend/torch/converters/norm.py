"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import plain, product_of
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, TupleGetItem

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def filled(shape: tuple[int, ...], value: float, dtype: str) -> Constant:
    """A constant of one value."""
    return Constant(np.full(shape, value, np.dtype(dtype)))


@converter("batch_norm")
def batch_norm(
    t: Emitter,
    input: Expr,
    weight: Expr | None = None,
    bias: Expr | None = None,
    running_mean: Expr | None = None,
    running_var: Expr | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Expr:
    if running_mean is None or running_var is None:
        return _normed_batch(t, input, weight, bias, eps)[0]
    if training:  # PyTorch's own rules say what it writes
        raise t.fail("batch_norm that updates its statistics", hint="import with run_ep_decomposition=True")
    channels, dtype = t.shape(running_mean), info_of(input).dtype
    normed = op.nn.batch_norm(
        input, filled(channels, 1.0, dtype) if weight is None else weight,
        filled(channels, 0.0, dtype) if bias is None else bias, running_mean, running_var, axis=1, epsilon=eps,
        training=False,
    )  # fmt: skip
    return TupleGetItem(t(normed), 0)


@converter("_native_batch_norm_legit_no_training")
def native_batch_norm(
    t: Emitter,
    input: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr,
    var: Expr,
    momentum: float,
    eps: float,
) -> tuple[Expr, None, None]:
    """The decomposed form; of its three results only the first means something at inference."""
    return (batch_norm(t, input, weight, bias, mean, var, eps=eps), None, None)


@converter("_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def training_batch_norm(
    t: Emitter, input: Expr, weight: Expr | None, bias: Expr | None, *args: Any
) -> tuple[Expr | None, ...]:
    """(result, mean, 1 / deviation) by the batch's own statistics; the new running statistics where these are given.

    In the other mode the running statistics are those of the result, and nothing is updated.
    """
    *running, training, momentum, eps = args
    if running and not training:
        center, spread = running
        return (batch_norm(t, input, weight, bias, center, spread, eps=eps), None, None)
    found: tuple[Expr, ...] = _normed_batch(t, input, weight, bias, eps)
    if running:
        found = (*found, *_updated(t, input, found[1], running, momentum))
    if t.source is not None and (noted := t.source.meta.get("val")):  # of halves some are float32
        found = tuple(t.cast(x, t.dtype(like.dtype)) for x, like in zip(found, noted, strict=True))
    return found


def _normed_batch(
    t: Emitter, x: Expr, weight: Expr | None, bias: Expr | None, eps: float
) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    """(result, mean, 1 / deviation) by the batch's own statistics, which are float32 of halves."""
    shape, dtype = t.shape(x), info_of(x).dtype
    wide = (1, shape[1], *(1,) * (len(shape) - 2))
    x = _single(t, x)
    center, inverse = _statistics(t, x, _all_but_channels(t, x), eps)
    result = t(op.multiply(t(op.subtract(x, center)), inverse))
    if weight is not None:
        result = t(op.multiply(result, t.cast(t.reshape(weight, wide), info_of(x).dtype)))
    if bias is not None:
        result = t(op.add(result, t.cast(t.reshape(bias, wide), info_of(x).dtype)))
    return (t.cast(result, dtype), t.reshape(center, (shape[1],)), t.reshape(inverse, (shape[1],)))


def _single(t: Emitter, x: Expr) -> Expr:
    """Halves as float32, in which PyTorch computes with them."""
    return t.cast(x, "float32") if info_of(x).dtype in ("float16", "bfloat16") else x


def _all_but_channels(t: Emitter, x: Expr) -> tuple[int, ...]:
    return tuple(d for d in range(len(t.shape(x))) if d != 1)


def _updated(t: Emitter, x: Expr, center: Expr, running: Sequence[Expr], momentum: float) -> tuple[Expr, ...]:
    """The running mean and variance behind a batch. Raises ImportModelError for a single value per channel."""
    axes = _all_but_channels(t, x)
    count = plain(product_of([t.shape(x)[d] for d in axes]))
    if count == 1:
        raise t.fail("batch_norm of a single value per channel has no variance to learn from")
    running = [_single(t, x) for x in running]
    wide = info_of(running[0]).dtype
    spread = t.cast(t(op.variance(_single(t, x), axis=axes, keepdims=False)), wide)
    unbiased = t(op.multiply(spread, t(op.divide(t.as_dtype(count, wide), t.as_dtype(plain(count - 1), wide)))))
    new = (t.cast(center, wide), unbiased)
    kept, added = constant(1 - momentum, wide), constant(momentum, wide)
    pairs = ((t(op.multiply(old, kept)), t(op.multiply(x, added))) for old, x in zip(running, new, strict=True))
    return tuple(t(op.add(a, b)) for a, b in pairs)


def _statistics(t: Emitter, x: Expr, axes: tuple[int, ...], eps: float) -> tuple[Expr, Expr]:
    """(mean, 1 / deviation) over axes that stay with size 1."""
    center = t(op.mean(x, axis=axes, keepdims=True))
    spread = t(op.variance(x, axis=axes, keepdims=True))
    return center, t(op.rsqrt(t(op.add(spread, constant(eps, info_of(x).dtype)))))


@converter("layer_norm")
def layer_norm(
    t: Emitter,
    input: Expr,
    normalized_shape: Sequence[int],
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Expr:
    own, dtype, ndim = tuple(normalized_shape), info_of(input).dtype, len(t.shape(input))
    return op.nn.layer_norm(
        input, filled(own, 1.0, dtype) if weight is None else weight,
        filled(own, 0.0, dtype) if bias is None else bias, axes=tuple(range(ndim - len(own), ndim)), epsilon=eps,
    )  # fmt: skip


@converter("native_layer_norm")
def native_layer_norm(
    t: Emitter, input: Expr, normalized_shape: Sequence[int], weight: Expr | None, bias: Expr | None, eps: float
) -> tuple[Expr, Expr, Expr]:
    ndim = len(t.shape(input))
    axes = tuple(range(ndim - len(normalized_shape), ndim))
    return (layer_norm(t, input, normalized_shape, weight, bias, eps), *_statistics(t, input, axes, eps))


@converter("group_norm")
def group_norm(
    t: Emitter,
    input: Expr,
    num_groups: int,
    weight: Expr | None = None,
    bias: Expr | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Expr:
    shape, dtype = t.shape(input), info_of(input).dtype
    if any(w is not None and info_of(w).dtype != dtype for w in (weight, bias)):  # autocast's: halves with float32
        found = group_norm(t, _single(t, input), num_groups, weight, bias, eps)
        return t.cast(t(found), dtype)
    rest = plain(product_of(shape[1:]) // num_groups)
    grouped = t.reshape(input, (shape[0], num_groups, rest))
    if not isinstance(rest, int):
        center, inverse = _statistics(t, grouped, (2,), eps)
        result = t.reshape(t(op.multiply(t(op.subtract(grouped, center)), inverse)), shape)
        return _scaled_channels(t, result, weight, bias)
    ones, zeros = filled((rest,), 1.0, dtype), filled((rest,), 0.0, dtype)
    result = t.reshape(t(op.nn.layer_norm(grouped, ones, zeros, axes=(2,), epsilon=eps)), shape)
    return _scaled_channels(t, result, weight, bias)


def _scaled_channels(t: Emitter, x: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    wide = (1, t.shape(x)[1], *(1,) * (len(t.shape(x)) - 2))
    if weight is not None:
        x = t(op.multiply(x, t.reshape(weight, wide)))
    return x if bias is None else op.add(x, t.reshape(bias, wide))


@converter("native_group_norm")
def native_group_norm(
    t: Emitter, input: Expr, weight: Expr | None, bias: Expr | None, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Expr, Expr, Expr]:
    grouped = t.reshape(input, (n, group, c * hxw // group))
    center, inverse = (t.reshape(v, (n, group)) for v in _statistics(t, grouped, (2,), eps))
    return (group_norm(t, input, group, weight, bias, eps), center, inverse)


@converter("rms_norm")
def rms_norm(
    t: Emitter, input: Expr, normalized_shape: Sequence[int], weight: Expr | None = None, eps: object = None
) -> Expr:
    dtype, ndim = info_of(input).dtype, len(t.shape(input))
    axes = tuple(range(ndim - len(normalized_shape), ndim))
    epsilon = EPSILON[dtype] if eps is None else eps
    mean = t(op.mean(op.multiply(input, input), axis=axes, keepdims=True))
    scaled = t(op.multiply(input, op.rsqrt(op.add(mean, constant(epsilon, dtype)))))
    return scaled if weight is None else op.multiply(scaled, weight)


@converter("softmax", "_softmax")
def softmax(t: Emitter, input: Expr, dim: int = -1, dtype: object = None, **_: object) -> Expr:
    x = _logits(t, input, dtype)
    return op.nn.softmax(x, axis=dim) if t.shape(x) else op.ones_like(x)


def _logits(t: Emitter, x: Expr, dtype: object) -> Expr:
    """What softmax is taken of; the decomposed form has a flag in the dtype's place."""
    return x if dtype is None or isinstance(dtype, bool) else t.cast(x, t.dtype(dtype))


@converter("log_softmax", "_log_softmax")
def log_softmax(t: Emitter, input: Expr, dim: int = -1, dtype: object = None, **_: object) -> Expr:
    x = _logits(t, input, dtype)
    return op.nn.log_softmax(x, axis=dim) if t.shape(x) else op.zeros_like(x)


@converter("_safe_softmax")
def safe_softmax(t: Emitter, input: Expr, dim: int, dtype: object = None) -> Expr:
    """Softmax that gives 0 where nothing but -inf is."""
    x = _logits(t, input, dtype)
    kind = info_of(x).dtype
    largest = t(op.max(x, axis=(dim,), keepdims=True, keep_nan=True))
    result = t(op.nn.softmax(x, axis=dim))
    return op.where(op.equal(largest, constant(-np.inf, kind)), constant(0.0, kind), result)
