"""Normalisations, softmax, dropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import topi
from autosched.errors import ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axes_tuple, axis_index, float_same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, same_dims
from autosched.te import Tensor


def _softmax(x: Array, axis: int) -> Array:
    with np.errstate(invalid="ignore"):  # rows of -inf alone
        e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)  # type: ignore[no-any-return]


def _log_softmax(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))  # type: ignore[no-any-return]


def _axis_type(x: StructInfo, axis: int) -> TensorStructInfo:
    t = float_same(x)
    axis_index(axis, t.ndim)
    return t


_ALONG = [sample((3, 5), axis=-1), sample((2, 3, 4), axis=1), sample((6,), axis=0)]
softmax = define_op(
    "nn.softmax",
    attributes={"axis": -1},
    infer_type=_axis_type,
    compute=topi.softmax,
    reference=_softmax,
    samples=_ALONG,
)
log_softmax = define_op(
    "nn.log_softmax",
    attributes={"axis": -1},
    infer_type=_axis_type,
    compute=topi.log_softmax,
    reference=_log_softmax,
    samples=_ALONG,
)


def _layer_norm_type(
    x: StructInfo, gamma: StructInfo, beta: StructInfo, axes: Sequence[int], **_: object
) -> TensorStructInfo:
    t = float_same(x)
    own = [t.dims[a] for a in axes_tuple(axes, t.ndim)]
    for what, p in (("gamma", tensor(gamma)), ("beta", tensor(beta))):
        if not same_dims(p.dims, own):
            raise ShapeError(f"{what} is {p!r}, the normalised dimensions are {tuple(own)}")
    return t


def _layer_norm(
    x: Array, gamma: Array, beta: Array, axes: Sequence[int], epsilon: float, center: bool, scale: bool
) -> Array:
    over = axes_tuple(axes, x.ndim)
    wide = x.astype(np.float64)
    shape = [s if i in over else 1 for i, s in enumerate(x.shape)]
    out = (wide - wide.mean(axis=over, keepdims=True)) / np.sqrt(wide.var(axis=over, keepdims=True) + epsilon)
    out = out * gamma.reshape(shape) if scale else out
    return (out + beta.reshape(shape) if center else out).astype(x.dtype)  # type: ignore[no-any-return]


layer_norm = define_op(
    "nn.layer_norm",
    inputs=("data", "gamma", "beta"),
    attributes={"axes": -1, "epsilon": 1e-5, "center": True, "scale": True},
    infer_type=_layer_norm_type,
    compute=lambda x, gamma, beta, axes, **more: topi.layer_norm(x, gamma, beta, axes_tuple(axes, x.ndim), **more),
    reference=_layer_norm,
    samples=[
        sample((3, 5), (5,), (5,), axes=-1),
        sample((2, 3, 4), (3, 4), (3, 4), axes=(1, 2)),
        sample((3, 5), (5,), (5,), axes=(-1,), center=False, scale=False),
    ],
)


def _rms_norm_type(data: StructInfo, weight: StructInfo, axes: Sequence[int], epsilon: float) -> TensorStructInfo:
    t = float_same(data)
    own = [t.dims[a] for a in axes_tuple(axes, t.ndim)]
    if not same_dims(tensor(weight).dims, own):
        raise ShapeError(f"weight is {weight!r}, the normalised dimensions are {tuple(own)}")
    return t


def _rms_norm(data: Array, weight: Array, axes: Sequence[int], epsilon: float) -> Array:
    over = axes_tuple(axes, data.ndim)
    wide = data.astype(np.float64)
    shape = [s if i in over else 1 for i, s in enumerate(data.shape)]
    inverse = 1 / np.sqrt(np.square(wide).mean(axis=over, keepdims=True) + epsilon)
    return (wide * inverse * weight.reshape(shape)).astype(data.dtype)  # type: ignore[no-any-return]


rms_norm = define_op(
    "nn.rms_norm",
    inputs=("data", "weight"),
    attributes={"axes": -1, "epsilon": 1e-5},
    infer_type=_rms_norm_type,
    compute=lambda x, weight, axes, epsilon: topi.rms_norm(x, weight, axes_tuple(axes, x.ndim), epsilon),
    reference=_rms_norm,
    samples=[sample((3, 5), (5,)), sample((2, 3, 40), (3, 40), axes=(1, 2), epsilon=1e-3)],
)


def _batch_norm_type(
    data: StructInfo,
    gamma: StructInfo,
    beta: StructInfo,
    mean: StructInfo,
    var: StructInfo,
    axis: int,
    training: bool,
    **_: object,
) -> TupleStructInfo:
    t = float_same(data)
    size = t.dims[axis_index(axis, t.ndim)]
    for what, p in (("gamma", gamma), ("beta", beta), ("moving_mean", mean), ("moving_var", var)):
        if not same_dims(tensor(p).dims, (size,)):
            raise ShapeError(f"{what} is {p!r}, dimension {axis} of the data is {size}")
    return TupleStructInfo((t, tensor(mean), tensor(var)))


def _batch_norm(
    data: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    momentum: float,
    training: bool,
) -> tuple[Array, Array, Array]:
    shape = [-1 if i == axis % data.ndim else 1 for i in range(data.ndim)]
    moved_mean, moved_var = mean, var
    if training:
        over = tuple(i for i in range(data.ndim) if i != axis % data.ndim)
        own_mean, own_var = (f(data.astype(np.float64), axis=over) for f in (np.mean, np.var))
        moved_mean, moved_var = (
            (old * (1 - momentum) + own * momentum).astype(old.dtype) for old, own in ((mean, own_mean), (var, own_var))
        )
        mean, var = own_mean, own_var
    factor = 1 / np.sqrt(var.astype(np.float64) + epsilon)
    out = (data - mean.reshape(shape)) * factor.reshape(shape)
    out = out * gamma.reshape(shape) if scale else out
    out = out + beta.reshape(shape) if center else out
    return out.astype(data.dtype), moved_mean, moved_var


def _batch_norm_compute(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, axis: int, epsilon: float, center: bool,
    scale: bool, momentum: float, training: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Inference by the moving statistics; training by those of the batch, towards which the moving ones go."""
    axis %= x.ndim
    if not training:
        return topi.batch_norm(x, gamma, beta, mean, var, axis, epsilon, center, scale)
    over = tuple(i for i in range(x.ndim) if i != axis)
    own = topi.mean(x, over), topi.variance(x, over)
    moved = [
        topi.add(topi.multiply(old, 1 - momentum), topi.multiply(new, momentum))
        for old, new in zip((mean, var), own, strict=True)
    ]
    return topi.batch_norm(x, gamma, beta, *own, axis, epsilon, center, scale)[0], moved[0], moved[1]


batch_norm = define_op(
    "nn.batch_norm",
    inputs=("data", "gamma", "beta", "moving_mean", "moving_var"),
    attributes={"axis": 1, "epsilon": 1e-5, "center": True, "scale": True, "momentum": 0.1, "training": True},
    infer_type=_batch_norm_type,
    reference=_batch_norm,
    compute=_batch_norm_compute,
    samples=[
        sample((2, 3, 4, 4), (3,), (3,), (3,), (3,), axis=1, training=False, low=0.1),
        sample((4, 3), (3,), (3,), (3,), (3,), axis=-1, training=False, epsilon=1e-3, low=0.1),
        sample((4, 3, 2), (3,), (3,), (3,), (3,), axis=1, training=True, momentum=0.3, low=0.1),
    ],
)


def _lrn(x: Array, size: int, axis: int, alpha: float, beta: float, bias: float) -> Array:
    squares = np.square(x.astype(np.float64))
    total = np.zeros_like(squares)
    n, before = x.shape[axis], (size - 1) // 2
    for shift in range(-before, size - before):
        low, high = max(0, -shift), min(n, n - shift)
        if low < high:
            here, there = [slice(None)] * x.ndim, [slice(None)] * x.ndim
            here[axis], there[axis] = slice(low, high), slice(low + shift, high + shift)
            total[tuple(here)] += squares[tuple(there)]
    return (x / (bias + alpha / size * total) ** beta).astype(x.dtype)


lrn = define_op(
    "nn.lrn",
    inputs=("data",),
    attributes={"size": 5, "axis": 1, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
    infer_type=lambda data, size, axis, alpha, beta, bias: _axis_type(data, axis),
    compute=topi.lrn,
    reference=_lrn,
    samples=[
        sample((1, 7, 2, 3)),
        sample((2, 4, 2, 2), size=3, alpha=0.5, beta=0.6, bias=2.0),
        sample((1, 3, 1, 2), size=4, alpha=1.0),
    ],
)


dropout = define_op(
    "nn.dropout",
    inputs=("data",),
    attributes={"rate": 0.5},
    infer_type=lambda x, rate: TupleStructInfo((tensor(x), tensor(x))),
    compute=lambda x, rate: (topi.identity(x), topi.full_like(x, 1.0)),
    reference=lambda x, rate: (x, np.ones_like(x)),
    samples=[sample((3, 5), rate=0.3)],
)
