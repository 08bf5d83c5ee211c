"""Sums with values of few bits, which are read as they are: quantised ones, and bfloat16."""

from __future__ import annotations

import numpy as np

from autosched import te
from autosched.errors import InvalidTypeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir.expr import PrimExpr

Array = np.ndarray


def _type(x: StructInfo, q: StructInfo, scale: float, zero: int) -> TensorStructInfo:
    values, whole = tensor(x, "x"), tensor(q, "q")
    kinds = values.dtype, whole.dtype
    if kinds not in (("float32", "uint8"), ("float32", "int8")) or values.static_shape != whole.static_shape:
        raise InvalidTypeError(f"add_dequantised of {values} and {whole}: float32 and bytes of one shape are needed")
    return TensorStructInfo(values.shape, "float32", values.ndim)


def _compute(x: Tensor, q: Tensor, scale: float, zero: int) -> Tensor:
    def element(*i: PrimExpr) -> PrimExpr:
        whole = q[i].astype("int32")
        centred = whole - te.const(zero, "int32") if zero else whole
        return x[i] + centred.astype("float32") * te.const(scale, "float32")

    return te.compute(x.shape, element, name="add_dequantised")


def _reference(x: Array, q: Array, scale: float, zero: int) -> Array:
    values = (q.astype(np.int32) - np.int32(zero)).astype(np.float32) * np.float32(scale)
    return np.asarray(x + values)


add_dequantised = define_op(
    "add_dequantised",
    inputs=("x", "q"),
    attributes={"scale": 1.0, "zero": 0},
    infer_type=_type,
    compute=_compute,
    reference=_reference,
    samples=[
        sample((3, 5), ((3, 5), "uint8"), scale=0.05, zero=7, low=0, high=255),
        sample((2, 3, 4), ((2, 3, 4), "int8"), scale=1.5, zero=0, low=-128, high=127),
    ],
)


def _wide_type(x: StructInfo, q: StructInfo) -> TensorStructInfo:
    values, narrow = tensor(x, "x"), tensor(q, "q")
    types_fit = values.dtype == "float32" and narrow.dtype in ("bfloat16", "float32")
    if not types_fit or values.static_shape != narrow.static_shape:
        raise InvalidTypeError(f"add_widened of {values} and {narrow}: float32 and bfloat16 of one shape are needed")
    return TensorStructInfo(values.shape, "float32", values.ndim)


add_widened = define_op(
    "add_widened",
    inputs=("x", "q"),
    infer_type=_wide_type,
    compute=lambda x, q: te.compute(x.shape, lambda *i: x[i] + q[i].astype("float32"), name="add_widened"),
    reference=lambda x, q: np.asarray(x + q.astype(np.float32)),
    samples=[sample((3, 5), ((3, 5), "bfloat16")), sample((2, 3, 4), ((2, 3, 4), "bfloat16"))],
)

__all__ = ["add_dequantised", "add_widened"]
