"""Operators that gradients are made of, under TVM's names in `relax.op.grad`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.ir.node import Attrs
from autosched.relax.expr import Call, Constant
from autosched.relax.op.conv2d import Array
from autosched.relax.op.indexing import positions_type, resolve
from autosched.relax.op.pool import WINDOW
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import axis_index, four, pair, same, tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo, same_dims
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.checked_index import position
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.conv_nd import Spatial
from autosched.topi.pool_grad import pool_backward
from autosched.topi.pool_nd import pool_shape
from autosched.topi.shapes import axis_names, dims, open_shape

# The value itself, through which no gradient flows back.
no_grad = define_op(
    "grad.no_grad", inputs=("input",), infer_type=same, compute=topi.identity, reference=lambda x: x,
    samples=[sample((3, 4))],
)  # fmt: skip


def _nll_type(
    output_grad: StructInfo, predictions: StructInfo, targets: StructInfo, weights: StructInfo, **_: Any
) -> TensorStructInfo:
    return tensor(predictions)


def _nll_reference(
    g: Array, p: Array, t: Array, w: Array, reduction: str, ignore_index: int
) -> Array:  # fmt: skip
    kept = t != ignore_index
    classes = np.where(kept, t, 0)
    weight = np.where(kept, w[classes], 0).astype(np.float64)
    factor = -weight * g / (weight.sum() if reduction == "mean" else 1)
    out = np.zeros(p.shape)
    axis = 1 if p.ndim > 1 else 0
    np.put_along_axis(out, np.expand_dims(classes, axis), np.expand_dims(factor, axis), axis)
    return out.astype(p.dtype)


def _nll_compute(g: Tensor, p: Tensor, t: Tensor, w: Tensor, reduction: str, ignore_index: int) -> Tensor:
    classes = open_shape(p)[1 if p.ndim > 1 else 0]

    def weight(*i: PrimExpr) -> PrimExpr:
        label = E.cast("int64", t(*i))
        kept = E.compare(E.NE, label, E.IntImm(ignore_index, "int64"))
        at = position(E.select(kept, label, E.IntImm(0, "int64")), classes, "targets of nll_loss")
        return E.select(kept, w(at), E.const(0, w.dtype))

    names = axis_names(t.ndim)
    weights = te.compute(t.shape, weight, name="T_weight", varargs_names=names)
    total = topi.sum(weights) if reduction == "mean" and t.ndim else weights

    def element(*i: PrimExpr) -> PrimExpr:
        at, label = ((i[0], *i[2:]), i[1]) if p.ndim > 1 else ((), i[0])
        value = -(g(*at) if reduction == "none" else g()) * weights(*at)
        value = value / total() if reduction == "mean" else value
        hit = E.compare(E.EQ, E.cast("int64", t(*at)), E.cast("int64", label))
        return E.select(hit, value, E.const(0, p.dtype))

    return te.compute(p.shape, element, name="T_nll_backward", varargs_names=axis_names(p.ndim))


_weighted_nll_backward = define_op(
    "grad.nll_loss_backward", inputs=("output_grad", "predictions", "targets", "weights"),
    attributes={"reduction": "mean", "ignore_index": -100}, infer_type=_nll_type, compute=_nll_compute,
    reference=_nll_reference,
    samples=[
        sample((), (3, 5), ((3,), "int64"), (5,), low=0.5, high=3),
        sample((3, 2), (3, 5, 2), ((3, 2), "int64"), (5,), low=0.5, high=3, reduction="none", ignore_index=1),
    ],
)  # fmt: skip


def nll_loss_backward(
    output_grad: Expr, predictions: Expr, targets: Expr, weights: Expr | None = None, reduction: str = "mean",
    ignore_index: int = -100,
) -> Call:  # fmt: skip
    """The gradient of `nn.nll_loss` with respect to the predictions; without weights each class counts 1."""
    if weights is None:
        p = predictions.struct_info
        assert isinstance(p, TensorStructInfo), "predictions are a tensor"
        weights = Constant(np.ones(as_int(p.dims[1 if p.ndim > 1 else 0]), p.dtype))
    return _weighted_nll_backward(output_grad, predictions, targets, weights, reduction, ignore_index)


def _windows(attrs: Attrs) -> Spatial:
    return Spatial(attrs["strides"], attrs["padding"], attrs["dilation"])


def _pool_canonical(attrs: Attrs) -> Attrs:
    if attrs["layout"] != "NCHW" or attrs["out_layout"] not in (None, "", "NCHW"):
        raise InvalidValueError(f"layout '{attrs['layout']}' is not supported", hint="use NCHW")
    sizes = {k: pair(attrs[k], k) for k in ("pool_size", "strides", "dilation")}
    return {**attrs, **sizes, "padding": four(attrs["padding"]), "out_layout": "NCHW"}


def _pool_type(output_grad: StructInfo, data: StructInfo, **attrs: Any) -> TensorStructInfo:
    t, g = tensor(data), tensor(output_grad)
    wanted = pool_shape(t.static_shape, attrs["pool_size"], _windows(attrs), attrs["ceil_mode"])
    if not same_dims(g.dims, wanted):
        raise ShapeError(f"a gradient of shape {g.dims}; the result has {wanted}")
    return t


def _pool_reference(kind: str, g: Array, x: Array, attrs: Attrs) -> Array:
    s, kernel = _windows(attrs), attrs["pool_size"]
    out = np.zeros(x.shape)
    for n, c, i, j in np.ndindex(*g.shape):
        places = []
        for a, at in ((0, i), (1, j)):
            first = at * s.strides[a] - s.around(a)[0]
            places.append([first + k * s.dilation[a] for k in range(kernel[a])])
        taps = [(y, z) for y, z in itertools.product(*places) if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]]
        if kind == "max":
            best = max(taps, key=lambda t: x[n, c, t[0], t[1]])
            out[n, c, best[0], best[1]] += g[n, c, i, j]
            continue
        ends = [x.shape[2 + a] + s.around(a)[1] for a in (0, 1)]
        padded = [p for p in itertools.product(*places) if all(v < e for v, e in zip(p, ends, strict=True))]
        for y, z in taps:
            out[n, c, y, z] += g[n, c, i, j] / (len(padded) if attrs["count_include_pad"] else len(taps))
    return out.astype(x.dtype)


def _pool_backward(kind: str) -> OpDef:
    def compute(g: Tensor, x: Tensor, **attrs: Any) -> Tensor:
        return pool_backward(g, x, attrs["pool_size"], _windows(attrs), kind, attrs["count_include_pad"])

    return define_op(
        f"grad.{kind}_pool2d_backward", inputs=("output_grad", "data"),
        attributes={**WINDOW, "count_include_pad": False, "layout": "NCHW", "out_layout": None},
        canonical=_pool_canonical, infer_type=_pool_type, compute=compute,
        reference=lambda g, x, **attrs: _pool_reference(kind, g, x, attrs),
        samples=[
            sample((1, 2, 3, 2), (1, 2, 6, 4), pool_size=2, strides=2),
            sample((1, 1, 3, 3), (1, 1, 5, 6), pool_size=3, strides=2, padding=1, count_include_pad=kind == "avg"),
        ],
    )  # fmt: skip


max_pool2d_backward, avg_pool2d_backward = map(_pool_backward, ("max", "avg"))


def _take_type(output_grad: StructInfo, x: StructInfo, indices: StructInfo, axis: int | None) -> TensorStructInfo:
    t, g, i = tensor(x), tensor(output_grad), positions_type(indices)
    a = axis_index(axis or 0, t.ndim)
    if not same_dims(g.dims, (*t.dims[:a], *i.dims, *t.dims[a + 1 :])):
        raise ShapeError(f"a gradient of shape {g.dims} for positions {i.dims} along axis {a} of {t.dims}")
    return t


def _take_compute(g: Tensor, x: Tensor, indices: Tensor, axis: int | None) -> Tensor:
    a, size = (axis or 0) % x.ndim, open_shape(x)[(axis or 0) % x.ndim]
    over = [te.reduce_axis((0, n), f"k{d}") for d, n in enumerate(dims(indices.shape))]

    def element(*i: PrimExpr) -> PrimExpr:
        at = [k.var for k in over]
        hit = E.compare(E.EQ, position(indices(*at), size, "take_backward"), i[a])
        value = E.select(hit, g(*i[:a], *at, *i[a + 1 :]), E.const(0, g.dtype))
        return te.sum(value, axis=over) if over else value

    return te.compute(x.shape, element, name="T_take_backward", varargs_names=axis_names(x.ndim))


def _take_reference(g: Array, x: Array, indices: Array, axis: int | None) -> Array:
    a, out = (axis or 0) % x.ndim, np.zeros(x.shape)
    moved = np.moveaxis(out, a, 0)
    flat = g.reshape(*x.shape[:a], -1, *x.shape[a + 1 :])
    np.add.at(moved, resolve(indices, x.shape[a], "raise").reshape(-1), np.moveaxis(flat, a, 0))
    return out.astype(x.dtype)


take_backward = define_op(
    "grad.take_backward", inputs=("output_grad", "x", "indices"), attributes={"axis": None}, infer_type=_take_type,
    compute=_take_compute, reference=_take_reference,
    samples=[
        sample((3, 6), (3, 4), ((6,), "int64"), axis=1),
        sample((2, 2, 3), (4, 3), ((2, 2), "int64"), axis=-2, low=0, high=4),
    ],
)  # fmt: skip

__all__ = ["avg_pool2d_backward", "max_pool2d_backward", "nll_loss_backward", "no_grad", "take_backward"]
