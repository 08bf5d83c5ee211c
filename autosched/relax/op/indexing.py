"""Elements chosen by a tensor of positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError, ShapeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axis_index, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo


def _positions(t: StructInfo) -> TensorStructInfo:
    info = tensor(t, "indices")
    if not info.dtype.startswith(("int", "uint")):
        raise InvalidTypeError(f"positions must be integers, got {info.dtype}")
    return info


def _take_type(x: StructInfo, indices: StructInfo, axis: int) -> TensorStructInfo:
    t, i = tensor(x), _positions(indices)
    a = axis_index(axis, t.ndim)
    return TensorStructInfo((*t.dims[:a], *i.dims, *t.dims[a + 1 :]), t.dtype)


take = define_op(
    "take",
    inputs=("x", "indices"),
    attributes={"axis": 0},
    infer_type=_take_type,
    compute=lambda x, indices, axis: topi.take(x, indices, axis % x.ndim),
    reference=lambda x, indices, axis: np.take(x, indices, axis),
    samples=[
        sample((4, 3), ((2,), "int64")),
        sample((3, 4, 2), ((2, 2), "int32"), axis=1),
        sample((4,), ((), "int64")),
        sample((2, 4), ((3,), "int64"), axis=-1),
    ],
)


def _gather_type(data: StructInfo, indices: StructInfo, axis: int) -> TensorStructInfo:
    t, i = tensor(data), _positions(indices)
    axis_index(axis, t.ndim)
    if t.ndim != i.ndim:
        raise ShapeError(f"data of {t.ndim} dimensions, indices of {i.ndim}")
    return TensorStructInfo(i.shape, t.dtype)


gather_elements = define_op(
    "gather_elements",
    inputs=("data", "indices"),
    attributes={"axis": 0},
    infer_type=_gather_type,
    compute=lambda x, indices, axis: topi.gather(x, indices, axis % x.ndim),
    reference=lambda x, indices, axis: np.take_along_axis(x, indices, axis),
    samples=[sample((3, 4), ((2, 4), "int64"))],
)


def _gather_nd_type(data: StructInfo, indices: StructInfo) -> TensorStructInfo:
    t, i = tensor(data), _positions(indices)
    depth = i.static_shape[-1]
    if depth > t.ndim:
        raise ShapeError(f"index vectors of {depth} for {t.ndim} dimensions")
    return TensorStructInfo((*i.dims[:-1], *t.dims[depth:]), t.dtype)


def _gather_nd(x: Any, indices: Any) -> Any:
    return x[tuple(np.moveaxis(indices, -1, 0))]


gather_nd = define_op(
    "gather_nd",
    inputs=("data", "indices"),
    infer_type=_gather_nd_type,
    compute=topi.gather_nd,
    reference=_gather_nd,
    samples=[sample((3, 4), ((5, 2), "int64")), sample((3, 4), ((2, 1), "int64"))],
)
