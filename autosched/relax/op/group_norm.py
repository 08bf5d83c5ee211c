"""Normalisations over groups of channels and over each image's channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import topi
from autosched.errors import ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axes_tuple, axis_index, float_same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.topi.shapes import int_shape


def _group_shape(shape: Sequence[int], groups: int, axis: int) -> tuple[int, ...]:
    s = shape
    return (*s[:axis], groups, s[axis] // groups, *s[axis + 1 :])


def _group_norm_type(
    data: StructInfo, gamma: StructInfo, beta: StructInfo, num_groups: int, channel_axis: int, **_: object
) -> TensorStructInfo:
    t = float_same(data)
    channels = t.static_shape[axis_index(channel_axis, t.ndim)]
    if channels % num_groups:
        raise ShapeError(f"{channels} channels cannot be divided into {num_groups} groups")
    for what, p in (("gamma", tensor(gamma)), ("beta", tensor(beta))):
        if p.static_shape != (channels,):
            raise ShapeError(f"{what} of shape {p.static_shape} for {channels} channels")
    return t


def _group_axes(axes: Sequence[int], ndim: int, channel: int) -> tuple[int, ...]:
    """The normalised axes after the channels were divided: the channels' inner part and `axes`."""
    given = axes_tuple(axes, ndim)
    return tuple(sorted({channel + 1, *(a + 1 if a > channel else a for a in given if a != channel)}))


def _group_norm(
    x: Array, gamma: Array, beta: Array, num_groups: int, channel_axis: int, axes: Sequence[int], epsilon: float,
    center: bool, scale: bool,
) -> Array:  # fmt: skip
    c = channel_axis % x.ndim
    wide = x.astype(np.float64).reshape(_group_shape(x.shape, num_groups, c))
    over = _group_axes(axes, x.ndim, c)
    normal = (wide - wide.mean(axis=over, keepdims=True)) / np.sqrt(wide.var(axis=over, keepdims=True) + epsilon)
    out = normal.reshape(x.shape)
    shape = [-1 if i == c else 1 for i in range(x.ndim)]
    out = out * gamma.reshape(shape) if scale else out
    return (out + beta.reshape(shape) if center else out).astype(x.dtype)  # type: ignore[no-any-return]


def _normalised(x: Tensor, over: tuple[int, ...], epsilon: float) -> Tensor:
    centred = topi.subtract(x, topi.mean(x, over, True))
    spread = topi.mean(topi.multiply(centred, centred), over, True)
    return topi.multiply(centred, topi.rsqrt(topi.add(spread, epsilon)))


def _affine(x: Tensor, gamma: Tensor, beta: Tensor, axis: int, center: bool, scale: bool) -> Tensor:
    shape = tuple(s if i == axis else 1 for i, s in enumerate(int_shape(x)))
    x = topi.multiply(x, topi.reshape(gamma, shape)) if scale else x
    return topi.add(x, topi.reshape(beta, shape)) if center else x


def _group_norm_compute(
    x: Tensor, gamma: Tensor, beta: Tensor, num_groups: int, channel_axis: int, axes: Sequence[int], epsilon: float,
    center: bool, scale: bool,
) -> Tensor:  # fmt: skip
    c, shape = channel_axis % x.ndim, int_shape(x)
    grouped = topi.reshape(x, _group_shape(shape, num_groups, c))
    normal = topi.reshape(_normalised(grouped, _group_axes(axes, x.ndim, c), epsilon), shape)
    return _affine(normal, gamma, beta, c, center, scale)


group_norm = define_op(
    "nn.group_norm", inputs=("data", "gamma", "beta"),
    attributes={
        "num_groups": 1, "channel_axis": 1, "axes": (), "epsilon": 1e-5, "center": True, "scale": True,
    },
    infer_type=_group_norm_type, compute=_group_norm_compute, reference=_group_norm,
    samples=[sample((2, 4, 3, 3), (4,), (4,), num_groups=2, channel_axis=1, axes=(2, 3))],
)  # fmt: skip


def _instance_norm_type(
    data: StructInfo, gamma: StructInfo, beta: StructInfo, channel_axis: int, **_: object
) -> TensorStructInfo:
    t = float_same(data)
    return _group_norm_type(t, gamma, beta, t.static_shape[axis_index(channel_axis, t.ndim)], channel_axis)


instance_norm = define_op(
    "nn.instance_norm", inputs=("data", "gamma", "beta"),
    attributes={"channel_axis": 1, "axes": (), "epsilon": 1e-5, "center": True, "scale": True},
    infer_type=_instance_norm_type,
    compute=lambda x, gamma, beta, channel_axis, axes, epsilon, center, scale: _affine(
        _normalised(x, axes_tuple(axes, x.ndim), epsilon), gamma, beta, channel_axis % x.ndim, center, scale
    ),
    reference=lambda x, gamma, beta, channel_axis, axes, epsilon, center, scale: _group_norm(
        x, gamma, beta, x.shape[channel_axis], channel_axis, axes, epsilon, center, scale
    ),
    samples=[sample((2, 3, 4, 4), (3,), (3,), channel_axis=1, axes=(2, 3))],
)  # fmt: skip
