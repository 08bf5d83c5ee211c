"""TVM's `topi.testing`: references of operators in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import refuse
from autosched.te import Schedule

Array: TypeAlias = Any  # np.ndarray: its stubs type most results as Any


def _pair(x: int | Sequence[int]) -> tuple[int, int]:
    return (x, x) if isinstance(x, int) else (int(x[0]), int(x[1]))


def _sides(padding: int | str | Sequence[int], kernel: tuple[int, int]) -> tuple[int, int, int, int]:
    if isinstance(padding, str):
        total = [k - 1 for k in kernel] if padding.upper() == "SAME" else [0, 0]
        return total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    return padding[0], padding[1], padding[2], padding[3]


def dilate_python(input_np: Array, strides: Sequence[int], dilation_value: float = 0.0) -> Array:
    """An array with `dilation_value` between its elements."""
    shape = tuple((n - 1) * s + 1 for n, s in zip(input_np.shape, strides, strict=True))
    result = np.full(shape, dilation_value, input_np.dtype)
    result[tuple(slice(None, None, s) for s in strides)] = input_np
    return result


def conv2d_nchw_python(
    a_np: Array,
    w_np: Array,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """2-D convolution [N, C, H, W] * [O, C / groups, KH, KW]."""
    weight = dilate_python(w_np, (1, 1, *_pair(dilation)))
    n, channels, *_ = a_np.shape
    out_channels, _, kh, kw = weight.shape
    top, left, bottom, right = _sides(padding, (kh, kw))
    padded = np.pad(a_np, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))
    sh, sw = _pair(stride)
    windows = windows[:, :, ::sh, ::sw]
    size, out_size = channels // groups, out_channels // groups
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, g * size : (g + 1) * size], weight[g * out_size : (g + 1) * out_size])
        for g in range(groups)
    ]
    return np.concatenate(parts, axis=1).astype(a_np.dtype)


def conv2d_nhwc_python(
    a_np: Array,
    w_np: Array,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """2-D convolution [N, H, W, C] * [KH, KW, C / groups, O]."""
    result = conv2d_nchw_python(
        a_np.transpose(0, 3, 1, 2), w_np.transpose(3, 2, 0, 1), stride, padding, groups, dilation
    )
    return result.transpose(0, 2, 3, 1)


def conv2d_hwcn_python(
    a_np: Array,
    w_np: Array,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int] = 1,
) -> Array:
    """2-D convolution [H, W, C, N] * [KH, KW, C, O]."""
    result = conv2d_nchw_python(a_np.transpose(3, 2, 0, 1), w_np.transpose(3, 2, 0, 1), stride, padding, 1, dilation)
    return result.transpose(2, 3, 1, 0)


def depthwise_conv2d_python_nchw(
    input_np: Array,
    filter_np: Array,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int] = 1,
) -> Array:
    """Depthwise 2-D convolution [N, C, H, W] * [C, multiplier, KH, KW]."""
    channels, multiplier, *kernel = filter_np.shape
    weight = filter_np.reshape(channels * multiplier, 1, *kernel)
    return conv2d_nchw_python(input_np, weight, stride, padding, channels, dilation)


def dense(x: Array, y: Array, bias: Array | None = None, use_bias: bool = False, use_relu: bool = False,
          out_dtype: str | None = None) -> Array:  # fmt: skip
    """x · yᵀ (+ bias)."""
    result = x.astype(out_dtype or x.dtype) @ y.astype(out_dtype or y.dtype).T
    result = result if bias is None or not use_bias else result + bias
    return np.maximum(result, 0) if use_relu else result


def batch_matmul(x: Array, y: Array, out_dtype: str | None = None) -> Array:
    """x [B, M, K] times y [B, N, K] transposed."""
    return np.matmul(x.astype(out_dtype or x.dtype), y.astype(out_dtype or y.dtype).transpose(0, 2, 1))


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """exp(x) over its sum along an axis."""
    powers = np.exp(a_np - a_np.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax."""
    shifted = a_np - a_np.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def poolnd_python(
    np_data: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int],
    padding_before: Sequence[int], padding_after: Sequence[int], pool_type: str, count_include_pad: bool = True,
    ceil_mode: bool = False, dtype: str = "float32", layout: str = "NCHW",
) -> Array:  # fmt: skip
    """Maxima ("max") or means ("avg") of windows of the last dimensions; with ceil_mode of those that begin inside.

    Raises ValueError for a layout whose channels come last, or in blocks.
    """
    refuse("poolnd_python", hint="use the plain layout", layout=layout not in ("NCW", "NCHW", "NCDHW"))
    rank = len(kernel)
    if ceil_mode:
        padding_after = [
            after + max(0, -(n + before + after - (k - 1) * d - 1) % s)
            for n, before, after, k, d, s in zip(
                np_data.shape[-rank:], padding_before, padding_after, kernel, dilation, strides, strict=True
            )
        ]
    sides = [(0, 0)] * (np_data.ndim - rank) + list(zip(padding_before, padding_after, strict=True))
    outside = -np.inf if pool_type == "max" and np_data.dtype.kind == "f" else 0
    spatial = tuple(range(np_data.ndim - rank, np_data.ndim))

    def windows(x: Array) -> Array:
        view: Array = np.lib.stride_tricks.sliding_window_view(
            x, [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)], axis=spatial
        )
        view = view[(..., *(slice(None, None, s) for s in strides), *([slice(None)] * rank))]
        return view[(..., *(slice(None, None, d) for d in dilation))]

    parts = windows(np.pad(np_data, sides, constant_values=outside))
    inner = tuple(range(parts.ndim - rank, parts.ndim))
    if pool_type == "max":
        return parts.max(axis=inner).astype(dtype)
    if count_include_pad:
        return parts.mean(axis=inner).astype(dtype)
    counts = windows(np.pad(np.ones_like(np_data), sides)).sum(axis=inner)
    return (parts.sum(axis=inner) / np.maximum(counts, 1)).astype(dtype)


def layer_norm_python(
    data: Array, gamma: Array | None, beta: Array | None, axis: Sequence[int], epsilon: float = 1e-5
) -> Array:
    """Normalised over some axes, times gamma, plus beta."""
    axes = tuple(axis) if not isinstance(axis, int) else (axis,)
    mean, variance = data.mean(axis=axes, keepdims=True), data.var(axis=axes, keepdims=True)
    shape = [n if i in [a % data.ndim for a in axes] else 1 for i, n in enumerate(data.shape)]
    result = (data - mean) / np.sqrt(variance + epsilon)
    result = result if gamma is None else result * gamma.reshape(shape)
    return result if beta is None else result + beta.reshape(shape)


def batch_norm(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_var: Array, axis: int = 1,
    epsilon: float = 1e-5, center: bool = True, scale: bool = True, training: bool = False, momentum: float = 0.1,
) -> list[Array]:  # fmt: skip
    """[normalised x, the moving mean, the moving variance]; in training these follow the batch's by `momentum`."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    mean, variance = (x.mean(axis=others), x.var(axis=others)) if training else (moving_mean, moving_var)
    result = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    result = result * gamma.reshape(shape) if scale else result
    result = result + beta.reshape(shape) if center else result
    if training:
        moving_mean = (1 - momentum) * moving_mean + momentum * mean
        moving_var = (1 - momentum) * moving_var + momentum * variance
    return [result, moving_mean, moving_var]


def l2_normalize_python(a_np: Array, eps: float, axis: int | tuple[int, ...] | None = None) -> Array:
    """x over its length along an axis."""
    return a_np / np.sqrt(np.maximum(np.broadcast_to((a_np**2).sum(axis=axis, keepdims=True), a_np.shape), eps))


def strided_slice_python(
    data: Array, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None, **_: object
) -> Array:
    """data[begin:end:strides]."""
    steps = strides or [1] * len(begin)
    return data[tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps, strict=True))]


def gather_nd_python(a_np: Array, indices_np: Array) -> Array:
    """Elements at indices that stand in the first dimension of `indices_np`."""
    return a_np[tuple(indices_np.astype("int32"))]


def get_injective_schedule(target: object) -> Callable[..., Schedule]:
    """The schedule of element-wise operators."""
    from autosched.topi import generic

    return generic.default_schedule


get_reduce_schedule = get_broadcast_schedule = get_elemwise_schedule = get_injective_schedule
