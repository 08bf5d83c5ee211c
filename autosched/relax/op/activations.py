"""Activations with parameters: softplus, SELU, PReLU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched import te, topi
from autosched.errors import ShapeError
from autosched.ir.node import Attrs
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import axis_index, float_same, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.topi.shapes import int_shape
from autosched.topi.unary import elementwise

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


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
