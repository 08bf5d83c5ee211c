"""Tensors from nothing."""

from __future__ import annotations

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError
from autosched.relax.expr import Constant, PrimValue
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.struct_info import Dim, ShapeStructInfo, StructInfo, TensorStructInfo, to_dim
from autosched.tir.expr import as_int
from autosched.topi import create


def _type(shape: StructInfo, dtype: str, fill_value: float = 0) -> TensorStructInfo:
    if not isinstance(shape, ShapeStructInfo) or shape.values is None:
        raise InvalidTypeError("the shape must be known")
    return TensorStructInfo(shape.values, dtype)


def _number(x: object) -> object:
    """A number that may be given as a constant or a scalar value."""
    if isinstance(x, Constant):
        return x.data.item()
    return as_int(x.value) if isinstance(x, PrimValue) else x


def _full_attrs(attrs: dict[str, object]) -> dict[str, object]:
    value = attrs["fill_value"]
    dtype = attrs["dtype"] or (str(value.data.dtype) if isinstance(value, Constant) else "float32")
    return {"fill_value": _number(value), "dtype": dtype}


full = define_op(
    "full",
    inputs=("shape",),
    canonical=_full_attrs,
    attributes={"fill_value": 0.0, "dtype": None},
    infer_type=_type,
    compute=lambda shape, fill_value, dtype: topi.full(shape, dtype, fill_value),
    reference=lambda shape, fill_value, dtype: np.full(shape, fill_value, dtype),
    samples=[
        sample(ShapeStructInfo((2, 3)), fill_value=1.5),
        sample(ShapeStructInfo((4,)), fill_value=3, dtype="int64"),
    ],
)


def _filled(name: str, value: int) -> OpDef:
    return define_op(
        name, inputs=("shape",), attributes={"dtype": "float32"}, infer_type=_type,
        compute=lambda shape, dtype: topi.full(shape, dtype, value),
        reference=lambda shape, dtype: np.full(shape, value, dtype),
        samples=[sample(ShapeStructInfo((2, 3))), sample(ShapeStructInfo((4,)), dtype="int64")],
    )  # fmt: skip


zeros = _filled("zeros", 0)
ones = _filled("ones", 1)


def _range_attrs(attrs: dict[str, object]) -> dict[str, object]:
    start, end, step = (_number(attrs[k]) for k in ("start", "end", "step"))
    if end is None:  # arange(n)
        start, end = 0, start
    kind = "float32" if any(isinstance(v, float) for v in (start, end, step)) else "int64"
    return {"start": start, "end": end, "step": step, "dtype": attrs["dtype"] or kind}


def _sizes(shape: StructInfo) -> tuple[Dim, ...]:
    if not isinstance(shape, ShapeStructInfo) or shape.values is None:
        raise InvalidTypeError("the sizes must be known")
    return TensorStructInfo(shape.values).dims


def _sequence_type(shape: StructInfo, step: int, dtype: str) -> TensorStructInfo:
    _, count = _sizes(shape)
    return TensorStructInfo((count,), dtype)


# `count` numbers from `start` on, in steps; both may be expressions of symbols.
size_range = define_op(
    "size_range",
    inputs=("shape",),  # (start, count)
    attributes={"step": 1, "dtype": "int64"},
    infer_type=_sequence_type,
    limits=lambda shape, step, dtype: [(to_dim(_sizes(shape)[1]), 1, None)],
    compute=lambda shape, step, dtype: topi.counted(shape[0], shape[1], step, dtype),
    reference=lambda shape, step, dtype: (shape[0] + step * np.arange(shape[1])).astype(dtype),
    samples=[sample(ShapeStructInfo((3, 5))), sample(ShapeStructInfo((0, 4)), step=-2, dtype="float32")],
)

# Sizes as a tensor [count], or a 0-d one.
size_values = define_op(
    "size_values",
    inputs=("shape",),
    attributes={"is_scalar": False, "dtype": "int64"},
    infer_type=lambda shape, is_scalar, dtype: TensorStructInfo(() if is_scalar else (len(_sizes(shape)),), dtype),
    compute=lambda shape, is_scalar, dtype: topi.listed(shape, is_scalar, dtype),
    reference=lambda shape, is_scalar, dtype: np.asarray(shape[0] if is_scalar else shape, dtype),
    samples=[sample(ShapeStructInfo((3, 5))), sample(ShapeStructInfo((7,)), is_scalar=True, dtype="float32")],
)

arange = define_op(
    "arange",
    inputs=(),
    canonical=_range_attrs,
    attributes={"start": 0, "end": None, "step": 1, "dtype": None},
    infer_type=lambda start, end, step, dtype: TensorStructInfo((len(np.arange(start, end, step)),), dtype),
    compute=create.arange,
    reference=lambda start, end, step, dtype: np.arange(start, end, step, dtype=dtype),
    samples=[sample(start=1, end=8, step=2), sample(start=5)],
)
