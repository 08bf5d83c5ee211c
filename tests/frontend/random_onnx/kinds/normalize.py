"""Normalisations."""

from __future__ import annotations

import numpy as np

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Unfit, Value, draw


@kind(("float32",), least_rank=2, weight=2)
def layer_norm(m: Maker, x: Value) -> None:
    axis = m.random.randrange(1, x.rank)
    scale, bias = (m.other(x.shape[axis:], x.dtype) for _ in range(2))
    m.node("LayerNormalization", x, scale, *([bias] if m.chance(0.7) else []), axis=axis - m.choose(0, x.rank))


@kind(("float32",), least_rank=1)
def rms_norm(m: Maker, x: Value) -> None:
    m.node("RMSNormalization", x, m.other(x.shape[-1:], x.dtype), axis=-1)


@kind(("float32",), least_rank=2)
def written_out_norm(m: Maker, x: Value) -> None:
    """The mean taken off, over the root of the mean square."""
    axes, rows = m.ints(-1), (*x.shape[:-1], 1)
    centred = m.node("Sub", x, m.node("ReduceMean", x, axes, shape=rows)) if m.chance(0.5) else x
    square = m.node("Mul", centred, centred) if m.chance(0.5) else m.node("Pow", centred, m.scalar(2, x))
    mean = m.node("Add", m.node("ReduceMean", square, axes, shape=rows), m.scalar(1e-5, x))
    scaled = m.node("Div", centred, m.node("Sqrt", mean))
    m.node("Mul", scaled, m.other(x.shape[-1:], x.dtype))


@kind(("float32",), least_rank=2)
def batch_norm(m: Maker, x: Value) -> None:
    channels = x.shape[1:2]
    scale, bias, mean = (m.other(channels, x.dtype, is_constant=True) for _ in range(3))
    variance = m.constant(np.abs(draw(m.numbers, channels, x.dtype)) + np.float32(0.5))
    m.node("BatchNormalization", x, scale, bias, mean, variance)


@kind(("float32",), least_rank=3)
def instance_norm(m: Maker, x: Value) -> None:
    m.node("InstanceNormalization", x, *(m.other(x.shape[1:2], x.dtype) for _ in range(2)))


@kind(("float32",), least_rank=3)
def group_norm(m: Maker, x: Value) -> None:
    channels = x.shape[1]
    groups = [g for g in (1, 2, 3, 4, 8, 16) if channels % g == 0]
    if not groups or channels == 0:
        raise Unfit
    m.node("GroupNormalization", x, *(m.other((channels,), x.dtype) for _ in range(2)), num_groups=m.choose(*groups))


@kind(("float32",), least_rank=2)
def lp_norm(m: Maker, x: Value) -> None:
    m.node("LpNormalization", x, axis=m.axis(x), p=m.choose(1, 2))


@kind(("float32",), least_rank=3, most_rank=4)
def mean_variance_norm(m: Maker, x: Value) -> None:
    """Of several elements: ONNX Runtime takes the root of a rounded 0 for one."""
    axes = [0, *range(2, x.rank)]
    if all(x.shape[n] == 1 for n in axes):
        raise Unfit
    m.node("MeanVarianceNormalization", x, axes=axes)
