"""Pooling."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import product_of
from autosched.frontend.torch.converters.conv import several
from autosched.frontend.torch.emitter import Emitter, Ints, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr
from autosched.relax.struct_info import Dim
from autosched.tir.dtypes import INT_RANGES, is_float

PLANES: Mapping[int, Sequence[tuple[int | None, int | None]]] = {  # dimensions that are pooled as height and width
    1: [(None, 0)], 2: [(0, 1)], 3: [(0, None), (1, 2)],
}  # fmt: skip


@converter("max_pool2d")
def max_pool2d(
    t: Emitter,
    input: Expr,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Expr:
    if return_indices:
        raise t.fail("max_pool2d with return_indices is not supported")
    return _largest_of(t, input, 2, kernel_size, stride, padding, dilation, ceil_mode)


def _in_planes(t: Emitter, x: Expr, dims: int, pooled: Callable[[Expr, Sequence[int | None]], Expr]) -> Expr:
    """Pool the last dimensions as images [N, C, H, W]: of one dimension as rows, of three the first one by itself.

    pooled  (images, which dimension the height is and which the width; None for one that stays) -> images
    """
    for axes in PLANES[dims]:
        lead, spatial = t.shape(x)[:-dims], t.shape(x)[-dims:]
        kept: tuple[Dim, ...] = ()
        if dims == 3:
            lead, spatial, kept = (
                (lead, (spatial[0], product_of(spatial[1:])), spatial[1:]) if axes[0] == 0
                else ((*lead, spatial[0]), spatial[1:], ())
            )  # fmt: skip
        before = lead if len(lead) == 2 and isinstance(lead[1], int) else (product_of(lead), 1)
        found = t(pooled(t.reshape(x, (*before, *((1,) if dims == 1 else ()), *spatial)), axes))
        height, width = t.shape(found)[2:]
        x = t.reshape(found, (*lead, *((width,) if dims == 1 else (height, *(kept or (width,))))))
    return x


def _window(axes: Sequence[int | None], kernel: Ints, stride: Ints, pads: Ints, dilation: Ints = 1) -> dict[str, Any]:
    """A pool's attributes for two of its dimensions."""
    given, steps = several(kernel, 3), several(stride or kernel, 3)
    values = (given, steps, several(pads, 3), several(dilation, 3))
    size, strides, padding, apart = (
        [(0 if v is values[2] else 1) if a is None else v[a] for a in axes] for v in values
    )  # fmt: skip
    return {"pool_size": size, "strides": strides, "padding": padding, "dilation": apart}


def _largest_of(
    t: Emitter, x: Expr, dims: int, kernel: Ints, stride: Ints, pads: Ints, dilation: Ints, ceil_mode: bool
) -> Expr:
    return _in_planes(
        t, x, dims, lambda image, axes: op.nn.max_pool2d(
            image, **_window(axes, kernel, stride, pads, dilation), ceil_mode=ceil_mode, keep_nan=True
        )
    )  # fmt: skip


def _wants_indices(t: Emitter) -> bool:
    """Whether anything reads the positions that the operator at work gives beside its values."""
    users = () if t.source is None else t.source.users
    return t.source is None or any(u.target is not operator.getitem or (u.args[1] == 1 and u.users) for u in users)


@converter("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(
    t: Emitter, input: Expr, kernel_size: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Expr, Expr | None]:  # fmt: skip
    """Values, and for each the position in its image counted over the spatial dimensions, where these are read."""
    dims = _spatial_dims(t)
    is_plain = is_float(info_of(input).dtype)
    if is_plain and not _wants_indices(t):
        return _largest_of(t, input, dims, kernel_size, stride, padding, dilation, ceil_mode), None
    spatial = t.shape(input)[-dims:]
    lines = [
        _windows(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(
            spatial, several(kernel_size, dims), several(stride or kernel_size, dims), several(padding, dims),
            several(dilation, dims), strict=True,
        )
    ]  # fmt: skip
    values, indices = _largest(t, input, lines)
    if dims == 2 and is_plain:
        return (max_pool2d(t, input, kernel_size, stride, padding, dilation, ceil_mode), indices)
    return (values, indices)


@converter("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(t: Emitter, input: Expr, output_size: Ints) -> tuple[Expr, Expr | None]:
    """As `max_pool_with_indices`, over windows that share the elements between them."""
    dims = _spatial_dims(t)
    if {*several(output_size, dims)} == {1} and not _wants_indices(t):
        return t(op.max(input, axis=list(range(-dims, 0)), keepdims=True, keep_nan=True)), None
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


def _avg_pool(
    t: Emitter, dims: int, input: Expr, kernel_size: Ints, stride: Ints = (), padding: Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Expr:  # fmt: skip
    """Means of windows, over the elements inside or those of the padding too; or sums by a divisor."""
    if divisor_override is not None:
        return _divided(
            t, input, several(kernel_size, dims), several(stride or kernel_size, dims), several(padding, dims),
            ceil_mode, divisor_override,
        )  # fmt: skip
    if dims == 3 and not is_float(info_of(input).dtype):  # a mean of means would be rounded twice
        shape = t.shape(input)
        found = t(
            op.nn.avg_pool3d(
                t.reshape(input, (product_of(shape[:-4]), *shape[-4:])), pool_size=kernel_size,
                strides=stride or kernel_size, padding=padding, ceil_mode=ceil_mode,
                count_include_pad=count_include_pad,
            )
        )  # fmt: skip
        return t.reshape(found, (*shape[:-3], *t.shape(found)[-3:]))
    return _in_planes(
        t, input, dims, lambda image, axes: op.nn.avg_pool2d(
            image, **_window(axes, kernel_size, stride, padding), ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )
    )  # fmt: skip


def _divided(
    t: Emitter, x: Expr, kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int], ceil_mode: bool,
    divisor: int,
) -> Expr:  # fmt: skip
    dims, shape, dtype = len(kernel), t.shape(x), info_of(x).dtype
    spatial, lead = shape[-dims:], shape[:-dims]
    lines = [_windows(n, k, s, p, 1, ceil_mode) for n, k, s, p in zip(spatial, kernel, stride, pads, strict=True)]
    flat, inside, sizes = _flat_windows(spatial, lines)
    rows = t.reshape(x, (*lead, math.prod(spatial)))
    values = t(op.take(rows, constant(flat, "int64"), axis=len(lead)))
    if not inside.all():
        values = t(op.where(constant(inside, "bool"), values, constant(0, dtype)))
    total = t(op.sum(values, axis=-1))
    return t.reshape(t(op.divide(total, constant(divisor, dtype))), (*lead, *sizes))


def _adaptive_avg_pool(t: Emitter, dims: int, input: Expr, output_size: Ints) -> Expr:
    """Means over windows that share the elements between them."""
    wanted = several(output_size, dims)
    if {*wanted} == {1} and dims != 2:
        return op.mean(input, axis=list(range(-dims, 0)), keepdims=True)

    def pooled(image: Expr, axes: Sequence[int | None]) -> Expr:
        sizes = [n if a is None else wanted[a] or n for a, n in zip(axes, t.shape(image)[2:])]
        return op.nn.adaptive_avg_pool2d(image, output_size=sizes)

    return _in_planes(t, input, dims, pooled)


def _of_dims(function: Callable[..., Expr], dims: int) -> Callable[..., Expr]:
    return lambda t, *args, **kwargs: function(t, dims, *args, **kwargs)


for _dims in PLANES:
    converter(f"avg_pool{_dims}d")(_of_dims(_avg_pool, _dims))
    converter(f"adaptive_avg_pool{_dims}d", f"_adaptive_avg_pool{_dims}d")(_of_dims(_adaptive_avg_pool, _dims))
