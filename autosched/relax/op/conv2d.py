"""Convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autosched import topi
from autosched.relax.op.other_layouts import any_layout
from autosched.relax.op.registry import Limit, define_op, sample
from autosched.relax.op.types import common_dtype, four, pair, tensor
from autosched.relax.struct_info import Dim, StructInfo, TensorStructInfo, to_dim
from autosched.te import Tensor
from autosched.tir.expr import as_int
from autosched.topi.conv2d import Geometry, geometry, slack

Array = np.ndarray


def _canonical(attrs: dict[str, object]) -> dict[str, object]:
    return {
        **attrs,
        "strides": pair(attrs["strides"], "strides"),
        "padding": four(attrs["padding"]),
        "dilation": pair(attrs["dilation"], "dilation"),
        "out_layout": attrs["out_layout"] or attrs["data_layout"],
    }


def _type(
    data: StructInfo,
    weight: StructInfo,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str | None,
    pad_value: int,
) -> TensorStructInfo:
    d, w = tensor(data, "data"), tensor(weight, "weight")
    g = geometry(d.image_shape, w.static_shape, strides, padding, dilation, groups, data_layout, out_layout)
    dtype = out_dtype or common_dtype(d, w)
    if g.block_out:
        return TensorStructInfo((g.batch, g.channels_out // g.block_out, *g.out_size, g.block_out), dtype)
    return TensorStructInfo((g.batch, g.channels_out, *g.out_size), dtype)


def _fits(
    data: StructInfo, weight: StructInfo, padding: Sequence[int], dilation: Sequence[int], **_: object
) -> list[Limit]:
    """A window fits into the padded image."""
    d, w = tensor(data, "data").dims, tensor(weight, "weight").dims
    return window_limits(d[2:4], w[2:4], dilation, padding)


def window_limits(
    size: Sequence[Dim], kernel: Sequence[Dim], dilation: Sequence[int], padding: Sequence[int]
) -> list[Limit]:
    """What holds of a window that fits: along each dimension, 0 elements or more are beside it."""
    sides = zip(size, [as_int(k) for k in kernel], dilation, padding[: len(size)], padding[len(size) :], strict=True)
    return [(to_dim(slack(*side)), 0, None) for side in sides]


def _compute(
    data: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str | None,
    pad_value: int,
) -> Tensor:
    return topi.conv2d(data, weight, strides, padding, dilation, groups, data_layout, out_layout, out_dtype, pad_value)


def to_plain(x: Array, block: int) -> Array:
    """[N, C / c, H, W, c] as [N, C, H, W]; the array itself where `block` is 0."""
    if not block:
        return x
    n, chunks, h, w, c = x.shape
    return np.ascontiguousarray(x.transpose(0, 1, 4, 2, 3)).reshape(n, chunks * c, h, w)


def to_blocked(x: Array, block: int) -> Array:
    """[N, C, H, W] as [N, C / c, H, W, c]; the array itself where `block` is 0."""
    if not block:
        return x
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def windows(
    padded: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int], size: Sequence[int]
) -> Array:
    """A view [N, C, KH, KW, OH, OW] of all windows of an image."""
    n, c, _, _ = padded.shape
    s = padded.strides
    shape = (n, c, *kernel, *size)
    steps = (s[0], s[1], s[2] * dilation[0], s[3] * dilation[1], s[2] * strides[0], s[3] * strides[1])
    return np.lib.stride_tricks.as_strided(padded, shape, steps, writeable=False)


def reference(
    data: Array,
    weight: Array,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str | None,
    pad_value: int,
) -> Array:
    """Convolution by unfolding windows into a matrix, one product a group and image."""
    if out_dtype:
        data, weight = data.astype(out_dtype, copy=False), weight.astype(out_dtype, copy=False)
    g = geometry(data.shape, weight.shape, strides, padding, dilation, groups, data_layout, out_layout)
    plain = to_plain(data, g.block_in)
    top, left, bottom, right = padding
    padded = (
        np.pad(plain, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad_value)
        if any(padding)
        else np.ascontiguousarray(plain)
    )
    view = windows(padded, g.kernel, g.strides, g.dilation, [as_int(n) for n in g.out_size])
    if g.is_depthwise:
        out = _depthwise(view, weight, g)
    else:
        out = np.empty((len(data), g.channels_out, math.prod(view.shape[4:])), data.dtype)
        matrix = weight.reshape(g.groups, g.per_group_out, -1)
        for n in range(len(data)):
            columns = view[n].reshape(g.groups, matrix.shape[2], -1)
            np.matmul(matrix, columns, out=out[n].reshape(g.groups, g.per_group_out, -1))
        out = out.reshape(len(data), g.channels_out, *view.shape[4:])
    return to_blocked(out, g.block_out).astype(out_dtype or data.dtype, copy=False)


def _depthwise(view: Array, weight: Array, g: Geometry) -> Array:
    shape = (len(view), g.groups, g.per_group_out, *view.shape[4:])
    out = np.zeros(shape, view.dtype)
    taps = weight.reshape(g.groups, g.per_group_out, *g.kernel)
    for ky in range(g.kernel[0]):
        for kx in range(g.kernel[1]):
            out += view[:, :, ky, kx][:, :, None] * taps[:, :, ky, kx][None, :, :, None, None]
    return out.reshape(len(view), g.channels_out, *view.shape[4:])


ATTRIBUTES = {
    "strides": 1,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
    "data_layout": "NCHW",
    "kernel_layout": "OIHW",
    "out_layout": None,
    "out_dtype": None,
    "pad_value": 0,  # ours: the zero point of quantised data
}

conv2d = define_op(
    "nn.conv2d",
    inputs=("data", "weight"),
    attributes=ATTRIBUTES,
    canonical=_canonical,
    **any_layout("data_layout", _type, _compute, reference, _fits),
    samples=[
        sample((1, 6, 5, 3), (3, 3, 3, 4), padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        sample((1, 6, 5, 3), (4, 3, 3, 3), strides=2, data_layout="NHWC", kernel_layout="OHWI"),
        sample((1, 3, 6, 5), (4, 3, 3, 3), padding=1),
        sample(((1, 2, 4, 4), "float16"), ((3, 2, 3, 3), "float16"), out_dtype="float32"),
        sample(((1, 4, 4, 4), "uint8"), ((3, 4, 3, 3), "int8"), padding=1, out_dtype="int32", pad_value=7),
        sample((2, 3, 7, 7), (2, 3, 3, 2), strides=(2, 1), padding=(0, 1, 2, 0), dilation=(1, 2)),
        sample((1, 4, 5, 5), (6, 2, 3, 3), groups=2),
        sample((1, 3, 5, 5), (6, 1, 3, 3), groups=3, padding=1),
        sample((1, 4, 5, 5), (4, 1, 3, 3), groups=4, strides=2, padding=1),
        sample((1, 3, 5, 5), (8, 3, 3, 3), padding=1, out_layout="NCHW4c"),
        sample((1, 2, 5, 5, 4), (8, 8, 3, 3), padding=1, data_layout="NCHW4c"),
        sample((1, 2, 5, 5, 4), (6, 8, 1, 1), data_layout="NCHW4c", out_layout="NCHW"),
        sample((1, 4, 4, 4, 2), (4, 4, 3, 3), groups=2, data_layout="NCHW2c"),
        sample((1, 2, 5, 4, 8), (16, 4, 3, 3), groups=4, padding=1, data_layout="NCHW8c"),
        sample((1, 2, 5, 5, 4), (8, 1, 3, 3), groups=8, padding=1, strides=2, data_layout="NCHW4c"),
        sample((1, 2, 5, 5, 4), (16, 1, 3, 3), groups=8, padding=1, strides=2, data_layout="NCHW4c"),
        sample((1, 1, 4, 5, 8), (64, 1, 2, 3), groups=8, data_layout="NCHW8c"),
    ],
)
