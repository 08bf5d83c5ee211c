"""Further activations, normalisations and losses of neural networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.ir.node import Attrs
from autosched.relax.expr import Call, Constant
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import axes_tuple, axis_index, float_same, tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.shapes import axis_names, int_shape
from autosched.topi.unary import elementwise

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805

T = TypeVar("T", Tensor, np.ndarray)


def _activation(
    name: str, scalar: Callable[..., PrimExpr], reference: Callable[..., object], attributes: Attrs | None = None
) -> OpDef:
    def compute(x: Tensor, **attrs: object) -> Tensor:
        return elementwise(x, lambda v: scalar(v, **attrs))

    return define_op(
        f"nn.{name}", attributes=attributes, infer_type=float_same, compute=compute, reference=reference,
        samples=[sample((3, 5)), sample((1,))],
    )  # fmt: skip


def _softplus(v: PrimExpr, beta: float, threshold: float) -> PrimExpr:
    scaled = v * E.const(beta, v.dtype)
    soft = te.log(te.exp(E.minimum(scaled, E.const(threshold, v.dtype))) + E.const(1, v.dtype))
    return E.select(scaled > E.const(threshold, v.dtype), v, soft / E.const(beta, v.dtype))


def _softplus_reference(x: Array, beta: float, threshold: float) -> Array:
    scaled = x.astype(np.float64) * beta
    soft = np.log1p(np.exp(np.minimum(scaled, threshold))) / beta
    return np.where(scaled > threshold, x, soft).astype(x.dtype)


softplus = _activation("softplus", _softplus, _softplus_reference, {"beta": 1.0, "threshold": 20.0})
selu = _activation(
    "selu",
    lambda v: E.const(SELU_SCALE, v.dtype) * E.select(
        v > E.const(0, v.dtype), v, E.const(SELU_ALPHA, v.dtype) * (te.exp(v) - E.const(1, v.dtype))
    ),
    lambda x: (SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * (np.exp(x) - 1))).astype(x.dtype),
)  # fmt: skip


def _prelu_type(data: StructInfo, alpha: StructInfo, axis: int) -> TensorStructInfo:
    t = float_same(data)
    size, own = t.dims[axis_index(axis, t.ndim)], tensor(alpha).static_shape
    if len(own) != 1 or own[0] not in (1, size):
        raise ShapeError(f"alpha of shape {own} for a dimension of {size}")
    return t


def _along(alpha: Tensor | Array, ndim: int, axis: int) -> tuple[int, ...]:
    size = int_shape(alpha)[0] if isinstance(alpha, Tensor) else alpha.shape[0]
    return tuple(size if i == axis % ndim else 1 for i in range(ndim))


prelu = define_op(
    "nn.prelu", inputs=("data", "alpha"), attributes={"axis": 1}, infer_type=_prelu_type,
    compute=lambda x, alpha, axis: topi.where(
        topi.greater(x, 0.0), x, topi.multiply(x, topi.reshape(alpha, _along(alpha, x.ndim, axis)))
    ),
    reference=lambda x, alpha, axis: np.where(x > 0, x, x * alpha.reshape(_along(alpha, x.ndim, axis))),
    samples=[sample((2, 3, 4), (3,)), sample((2, 3), (1,))],
)  # fmt: skip


def _flat_shape(shape: Sequence[int]) -> tuple[int, int]:
    return shape[0], math.prod(shape[1:])


batch_flatten = define_op(
    "nn.batch_flatten", infer_type=lambda x: TensorStructInfo(_flat_shape(tensor(x).static_shape), tensor(x).dtype),
    compute=lambda x: topi.reshape(x, _flat_shape(int_shape(x))), reference=lambda x: x.reshape(_flat_shape(x.shape)),
    samples=[sample((2, 3, 4))], is_view=True, legal_name="reshape",
)  # fmt: skip


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


def _pixel_shuffle_type(data: StructInfo, upscale_factor: int) -> TensorStructInfo:
    t = tensor(data)
    *lead, c, h, w = t.static_shape
    if c % upscale_factor**2:
        raise ShapeError(f"{c} channels for an upscale factor of {upscale_factor}")
    return TensorStructInfo((*lead, c // upscale_factor**2, h * upscale_factor, w * upscale_factor), t.dtype)


def _shuffled(
    x: T, r: int, reshape: Callable[[T, tuple[int, ...]], T], transpose: Callable[[T, tuple[int, ...]], T]
) -> T:
    sizes: list[int] = [E.as_int(s) for s in x.shape]
    lead: list[int] = sizes[:-3]
    n: int = len(lead)
    c, h, w = sizes[-3:]
    parts = reshape(x, (*lead, c // r**2, r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(transpose(parts, order), (*lead, c // r**2, h * r, w * r))


pixel_shuffle = define_op(
    "nn.pixel_shuffle", inputs=("data",), attributes={"upscale_factor": 1}, infer_type=_pixel_shuffle_type,
    compute=lambda x, upscale_factor: _shuffled(x, upscale_factor, topi.reshape, topi.transpose),
    reference=lambda x, upscale_factor: _shuffled(x, upscale_factor, np.reshape, np.transpose),
    samples=[sample((1, 8, 2, 3), upscale_factor=2)],
)  # fmt: skip


def _cross_entropy_type(predictions: StructInfo, labels: StructInfo) -> TensorStructInfo:
    p, q = float_same(predictions), tensor(labels)
    if p.static_shape != q.static_shape:
        raise ShapeError(f"predictions of shape {p.static_shape} and labels of shape {q.static_shape}")
    return TensorStructInfo((), p.dtype)


def _cross_entropy_compute(predictions: Tensor, labels: Tensor) -> Tensor:
    axes = tuple(range(predictions.ndim))
    total = topi.negative(topi.sum(topi.multiply(predictions, labels), axes, False))
    return topi.divide(total, float(int_shape(predictions)[0])) if predictions.ndim > 1 else total


cross_entropy_with_logits = define_op(
    "nn.cross_entropy_with_logits", inputs=("predictions", "labels"), infer_type=_cross_entropy_type,
    compute=_cross_entropy_compute,
    reference=lambda p, q: np.asarray(-(p * q).sum() / (p.shape[0] if p.ndim > 1 else 1), p.dtype),
    samples=[sample((2, 5), (2, 5)), sample((4,), (4,))],
)  # fmt: skip


def _nll_type(
    predictions: StructInfo, targets: StructInfo, weights: StructInfo, reduction: str, ignore_index: int
) -> TensorStructInfo:
    p, t = float_same(predictions), tensor(targets)
    if reduction not in ("mean", "sum", "none"):
        raise InvalidValueError(f"reduction '{reduction}'", hint='use "mean", "sum" or "none"')
    return TensorStructInfo(t.dims if reduction == "none" else (), p.dtype)


def _nll(p: Array, t: Array, w: Array, reduction: str, ignore_index: int) -> Array:
    kept = t != ignore_index
    classes = np.where(kept, t, 0)
    picked = np.take_along_axis(p, np.expand_dims(classes, 1), 1)[:, 0] if p.ndim > 1 else p[classes]
    weight = np.where(kept, w[classes], 0)
    loss = -picked * weight
    if reduction == "none":
        return loss.astype(p.dtype)
    return np.asarray(loss.sum() / (weight.sum() if reduction == "mean" else 1), p.dtype)


def _nll_compute(p: Tensor, t: Tensor, w: Tensor, reduction: str, ignore_index: int) -> Tensor:
    def chosen(*i: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        label = E.cast("int64", t(*i))
        kept = E.compare(E.NE, label, E.IntImm(ignore_index, "int64"))
        label = E.select(kept, label, E.IntImm(0, "int64"))
        weight = E.select(kept, w(label), E.const(0, w.dtype))
        return (p(i[0], label, *i[1:]) if p.ndim > 1 else p(label)), weight

    names = axis_names(t.ndim)
    weights = te.compute(t.shape, lambda *i: chosen(*i)[1], name="T_weight", varargs_names=names)
    loss = te.compute(t.shape, lambda *i: -chosen(*i)[0] * chosen(*i)[1], name="T_nll", varargs_names=names)
    if reduction == "none":
        return loss
    axes = tuple(range(t.ndim))
    total = topi.sum(loss, axes, False) if axes else loss
    if reduction == "sum":
        return total
    return topi.divide(total, topi.sum(weights, axes, False) if axes else weights)


_weighted_nll_loss = define_op(
    "nn.nll_loss", inputs=("predictions", "targets", "weights"),
    attributes={"reduction": "mean", "ignore_index": -100}, infer_type=_nll_type, compute=_nll_compute,
    reference=_nll,
    samples=[
        sample((3, 5), ((3,), "int64"), (5,), low=0.5, high=3),
        sample((3, 5), ((3,), "int64"), (5,), low=0.5, high=3, reduction="sum"),
    ],
)  # fmt: skip


def nll_loss(
    predictions: Expr, targets: Expr, weights: Expr | None = None, reduction: str = "mean", ignore_index: int = -100
) -> Call:
    """The negated log-probabilities of the targets' classes, weighted; without weights each class counts 1."""
    if weights is None:
        t = predictions.struct_info
        assert isinstance(t, TensorStructInfo), "predictions are a tensor"
        weights = Constant(np.ones(as_int(t.dims[1 if t.ndim > 1 else 0]), t.dtype))
    return _weighted_nll_loss(predictions, targets, weights, reduction, ignore_index)
