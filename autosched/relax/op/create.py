"""Tensors from nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError
from autosched.relax.expr import Call
from autosched.relax.op.registry import define_op, sample
from autosched.relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo


def _type(shape: StructInfo, dtype: str, fill_value: float = 0) -> TensorStructInfo:
    if not isinstance(shape, ShapeStructInfo) or shape.values is None:
        raise InvalidTypeError("the shape must be known")
    return TensorStructInfo(shape.values, dtype)


full = define_op(
    "full",
    inputs=("shape",),
    attributes={"fill_value": 0.0, "dtype": "float32"},
    infer_type=_type,
    compute=lambda shape, fill_value, dtype: topi.full(shape, dtype, fill_value),
    reference=lambda shape, fill_value, dtype: np.full(shape, fill_value, dtype),
    samples=[
        sample(ShapeStructInfo((2, 3)), fill_value=1.5),
        sample(ShapeStructInfo((4,)), fill_value=3, dtype="int64"),
    ],
)


def zeros(shape: Any, dtype: str = "float32") -> Call:
    """Zeros of a shape and dtype."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: str = "float32") -> Call:
    """Ones of a shape and dtype."""
    return full(shape, 1, dtype)


arange = define_op(
    "arange",
    inputs=(),
    attributes={"start": 0, "end": 0, "step": 1, "dtype": "int64"},
    infer_type=lambda start, end, step, dtype: TensorStructInfo((len(range(start, end, step)),), dtype),
    compute=topi.arange,
    reference=lambda start, end, step, dtype: np.arange(start, end, step, dtype=dtype),
    samples=[sample(start=1, end=8, step=2)],
)
