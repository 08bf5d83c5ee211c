"""Losses: cross entropy and negative log likelihood."""

from __future__ import annotations

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.relax.expr import Call, Constant
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import float_same, tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.shapes import axis_names, int_shape


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
