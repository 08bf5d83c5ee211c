"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autosched.frontend.torch.converters.conv import several
from autosched.frontend.torch.emitter import Emitter, Ints, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr
from autosched.tir.dtypes import INT_RANGES, is_float


@converter("max_pool2d")
def max_pool2d(
    t: Emitter,
    input: Expr,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Expr:
    if return_indices:
        raise t.fail("max_pool2d with return_indices is not supported")
    kernel = several(kernel_size, 2)
    shape = t.shape(input)
    if len(shape) == 3:
        one = t.reshape(input, (1, *shape))
        pooled = t(max_pool2d(t, one, kernel_size, stride, padding, dilation, ceil_mode))
        return t.reshape(pooled, t.shape(pooled)[1:])
    return op.nn.max_pool2d(
        input, pool_size=kernel, strides=several(stride, 2) if stride else kernel, padding=several(padding, 2),
        dilation=several(dilation, 2), ceil_mode=ceil_mode, keep_nan=True,
    )  # fmt: skip


@converter("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    t: Emitter, input: Expr, kernel_size: object, stride: object = None, padding: object = 0, dilation: object = 1,
    ceil_mode: bool = False,
) -> tuple[Expr, Expr]:  # fmt: skip
    """Values, and for each the position in its image counted over the spatial dimensions."""
    dims = _spatial_dims(t)
    spatial = t.shape(input)[-dims:]
    lines = [
        _windows(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(
            spatial, several(kernel_size, dims), several(stride or kernel_size, dims), several(padding, dims),
            several(dilation, dims), strict=True,
        )
    ]  # fmt: skip
    values, indices = _largest(t, input, lines)
    if dims == 2 and is_float(info_of(input).dtype):
        return (max_pool2d(t, input, kernel_size, stride, padding, dilation, ceil_mode), indices)
    return (values, indices)


@converter("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(t: Emitter, input: Expr, output_size: Ints) -> tuple[Expr, Expr]:
    """As `max_pool_with_indices`, over windows that share the elements between them."""
    dims = _spatial_dims(t)
    spatial = t.shape(input)[-dims:]
    lines = [_shares(n, wanted or n) for n, wanted in zip(spatial, several(output_size, dims), strict=True)]
    return _largest(t, input, lines)


def _spatial_dims(t: Emitter) -> int:
    """Of the operator at work, by its name."""
    return 3 if t.source is not None and "3d" in t.source.target.__name__ else 2


def _shares(n: int, count: int) -> np.ndarray:
    """Positions [windows, elements] of adaptive pooling in one dimension; -1 behind the end of a shorter window."""
    begin, end = (np.arange(count) * n) // count, -((-(np.arange(count) + 1) * n) // count)
    place = begin[:, None] + np.arange((end - begin).max())
    return np.where(place < end[:, None], place, -1)


def _largest(t: Emitter, x: Expr, lines: Sequence[np.ndarray]) -> tuple[Expr, Expr]:
    """(the largest elements, their positions) of windows, which are as wide as `lines` says in each dimension."""
    dims, shape, dtype = len(lines), t.shape(x), info_of(x).dtype
    lead, spatial = shape[:-dims], shape[-dims:]
    flat, inside, sizes = _flat_windows(spatial, lines)
    rows = t.reshape(x, (*lead, math.prod(spatial)))
    values = t(op.take(rows, constant(flat, "int64"), axis=len(lead)))
    if not inside.all():
        lowest = -np.inf if is_float(dtype) else INT_RANGES[dtype][0]
        values = t(op.where(constant(inside, "bool"), values, constant(lowest, dtype)))
    best = t(op.argmax(values, axis=-1))
    at = t(op.expand_dims(best, axis=len(lead) + 1))
    table = t(op.broadcast_to(constant(flat, "int64"), (*lead, *flat.shape)))
    indices = t.reshape(t(op.gather_elements(table, at, axis=len(lead) + 1)), (*lead, *sizes))
    return (t.reshape(t(op.max(values, axis=-1, keep_nan=True)), (*lead, *sizes)), indices)


def _windows(n: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> np.ndarray:
    """Positions [windows, kernel] in one dimension; outside of it those below 0 or from n on."""
    span = n + 2 * pad - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (count - 1) * stride >= n + pad:  # the last window starts inside
        count -= 1
    return (np.arange(count) * stride - pad)[:, None] + np.arange(kernel) * dilation


def _flat_windows(
    spatial: Sequence[int], lines: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """(positions [windows, elements] over all dimensions, which of them are inside, windows in each dimension)."""
    dims = len(spatial)
    flat = np.zeros((1,) * (2 * dims), np.int64)
    inside = np.ones((1,) * (2 * dims), bool)
    for d, (n, line) in enumerate(zip(spatial, lines, strict=True)):
        form = [1] * (2 * dims)
        form[d], form[dims + d] = line.shape
        place = line.reshape(form)
        inside = inside & (place >= 0) & (place < n)
        flat = flat * n + np.clip(place, 0, n - 1)
    sizes = tuple(line.shape[0] for line in lines)
    form2 = (math.prod(sizes), -1)
    return flat.reshape(form2), np.broadcast_to(inside, flat.shape).reshape(form2), sizes


@converter("avg_pool1d", "avg_pool3d")
def avg_pool(
    t: Emitter, input: Expr, kernel_size: object, stride: object = None, padding: object = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Expr:  # fmt: skip
    """Means of windows, by sums of the elements inside and a count for each."""
    dims = 3 if t.source is not None and "3d" in t.source.target.__name__ else 1
    return _averaged(
        t, input, several(kernel_size, dims), several(stride or kernel_size, dims), several(padding, dims), ceil_mode,
        count_include_pad, divisor_override,
    )  # fmt: skip


def _averaged(
    t: Emitter,
    x: Expr,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    ceil_mode: bool,
    with_padding: bool,
    divisor: int | None,
) -> Expr:
    dims, shape, dtype = len(kernel), t.shape(x), info_of(x).dtype
    spatial, lead = shape[-dims:], shape[:-dims]
    lines = [_windows(n, k, s, p, 1, ceil_mode) for n, k, s, p in zip(spatial, kernel, stride, pads, strict=True)]
    flat, inside, sizes = _flat_windows(spatial, lines)
    rows = t.reshape(x, (*lead, math.prod(spatial)))
    values = t(op.take(rows, constant(flat, "int64"), axis=len(lead)))
    if not inside.all():
        values = t(op.where(constant(inside, "bool"), values, constant(0, dtype)))
    padded = [((line >= -p) & (line < n + p)).sum(1) for line, n, p in zip(lines, spatial, pads, strict=True)]
    counts = np.ones(())
    for line in padded:
        counts = np.multiply.outer(counts, line)
    number = divisor or (counts.reshape(-1) if with_padding else inside.sum(1))
    total = t(op.sum(values, axis=-1))
    return t.reshape(t(op.divide(total, constant(number, dtype))), (*lead, *sizes))


@converter("avg_pool2d")
def avg_pool2d(
    t: Emitter,
    input: Expr,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Expr:
    kernel = several(kernel_size, 2)
    if divisor_override is not None or ceil_mode or len(t.shape(input)) == 3:
        steps = several(stride, 2) if stride else kernel
        return _averaged(
            t, input, kernel, steps, several(padding, 2), ceil_mode, count_include_pad, divisor_override
        )  # fmt: skip
    return op.nn.avg_pool2d(
        input, pool_size=kernel, strides=several(stride, 2) if stride else kernel, padding=several(padding, 2),
        ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip


@converter("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_avg_pool2d(t: Emitter, input: Expr, output_size: Ints) -> Expr:
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    shape = t.shape(input)
    height, width = shape[-2:]
    x = t.reshape(input, (1, *shape)) if len(shape) == 3 else input
    result = op.nn.adaptive_avg_pool2d(x, output_size=[sizes[0] or height, sizes[1] or width])
    return t.reshape(t(result), (shape[0], sizes[0] or height, sizes[1] or width)) if len(shape) == 3 else result


@converter("adaptive_avg_pool1d", "adaptive_avg_pool3d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(t: Emitter, input: Expr, output_size: Ints) -> Expr:
    """Dimension by dimension: means over windows that share the elements between them."""
    x = input
    sizes = [output_size] if isinstance(output_size, int) else list(output_size)
    if t.source is not None and "3d" in t.source.target.__name__:
        sizes = several(sizes, 3)
    ndim, dtype = len(t.shape(x)), info_of(input).dtype
    for i, wanted in enumerate(sizes):
        axis = ndim - len(sizes) + i
        n = t.shape(x)[axis]
        if wanted is None or wanted == n:
            continue
        begin, end = (np.arange(wanted) * n) // wanted, -((-(np.arange(wanted) + 1) * n) // wanted)
        share = ((np.arange(n)[:, None] >= begin) & (np.arange(n)[:, None] < end)) / (end - begin)
        order = [a for a in range(ndim) if a != axis]
        rows = t(op.permute_dims(x, axes=[*order, axis]))
        means = t(op.matmul(rows, constant(share, dtype)))
        back = [*order, axis]
        x = t(op.permute_dims(means, axes=[back.index(a) for a in range(ndim)]))
    return x
