"""Further operators that move elements: stacks, repeats, reversals, and reductions to a shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidTypeError, ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axis_index, broadcast_dims, common_dtype, tensor
from autosched.relax.struct_info import Dim, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, same_dims
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.shapes import axis_names, dims, int_shape

T = TypeVar("T", Tensor, np.ndarray)


def _compute(shape: Sequence[Dim], element: Callable[..., PrimExpr], name: str) -> Tensor:
    return te.compute(dims(shape), element, name=name, varargs_names=axis_names(len(shape)))


def _fields(tensors: StructInfo) -> list[TensorStructInfo]:
    if not isinstance(tensors, TupleStructInfo) or not tensors.fields:
        raise InvalidTypeError("takes a tuple of tensors")
    return [tensor(f) for f in tensors.fields]


def _stack_type(tensors: StructInfo, axis: int) -> TensorStructInfo:
    parts = _fields(tensors)
    if any(not same_dims(p.dims, parts[0].dims) for p in parts):
        raise ShapeError("the tensors of a stack have one shape")
    a = axis_index(axis, parts[0].ndim + 1)
    return TensorStructInfo((*parts[0].dims[:a], len(parts), *parts[0].dims[a:]), common_dtype(*parts))


def _stack_compute(tensors: Sequence[Tensor], axis: int) -> Tensor:
    a = axis % (tensors[0].ndim + 1)
    return topi.concatenate([topi.expand_dims(t, a) for t in tensors], a)


stack = define_op(
    "stack", inputs=("tensors",), attributes={"axis": 0}, infer_type=_stack_type, compute=_stack_compute,
    reference=np.stack, samples=[sample([(2, 3), (2, 3)], axis=0), sample([(2, 3)] * 3, axis=-1)],
)  # fmt: skip


def _repeat_type(x: StructInfo, repeats: int, axis: int | None) -> TensorStructInfo:
    t = tensor(x)
    if axis is None:
        return TensorStructInfo((int(np.prod(t.static_shape)) * repeats,), t.dtype)
    a = axis_index(axis, t.ndim)
    return TensorStructInfo(tuple(d * repeats if i == a else d for i, d in enumerate(t.dims)), t.dtype)


def _repeat_compute(x: Tensor, repeats: int, axis: int | None) -> Tensor:
    if axis is None:
        x, axis = topi.reshape(x, (math.prod(int_shape(x)),)), 0
    a = axis % x.ndim
    shape: list[Dim] = [as_int(s) * repeats if i == a else s for i, s in enumerate(x.shape)]
    return _compute(shape, lambda *i: x(*(v // repeats if n == a else v for n, v in enumerate(i))), "T_repeat")


repeat = define_op(
    "repeat", attributes={"repeats": 1, "axis": None}, infer_type=_repeat_type, compute=_repeat_compute,
    reference=np.repeat, samples=[sample((2, 3), repeats=2), sample((2, 3), repeats=3, axis=1)],
)  # fmt: skip


def _flip_type(x: StructInfo, axis: int) -> TensorStructInfo:
    t = tensor(x)
    axis_index(axis, t.ndim)
    return t


def _flip_compute(x: Tensor, axis: int) -> Tensor:
    a = axis % x.ndim
    last = E.sub(x.shape[a], 1)
    return _compute(x.shape, lambda *i: x(*(last - v if n == a else v for n, v in enumerate(i))), "T_reverse")


flip = define_op(
    "flip", inputs=("data",), attributes={"axis": 0}, infer_type=_flip_type, compute=_flip_compute, reference=np.flip,
    samples=[sample((3, 4)), sample((3, 4), axis=-1)],
)  # fmt: skip


def _collapsed(x: TensorStructInfo, shape: object) -> TensorStructInfo:
    small, large = TensorStructInfo(shape, x.dtype).static_shape, x.static_shape
    fits = len(small) <= len(large) and all(
        s in (1, d) for s, d in zip(reversed(small), reversed(large), strict=False)
    )  # fmt: skip
    if not fits:
        raise ShapeError(f"a tensor of {large} cannot be summed to {small}")
    return TensorStructInfo(small, x.dtype)


def _collapse_to_type(data: StructInfo, shape: StructInfo) -> TensorStructInfo:
    if not isinstance(shape, ShapeStructInfo) or shape.values is None:
        raise InvalidTypeError("the shape must be known")
    return _collapsed(tensor(data), shape.values)


def _collapse(
    x: T,
    shape: Sequence[Dim],
    total: Callable[[T, tuple[int, ...], bool], T],
    reshape: Callable[[T, tuple[int, ...]], T],
) -> T:
    full = int_shape(x) if isinstance(x, Tensor) else x.shape
    ndim, small = len(full), [as_int(s) for s in shape]
    wide = [1] * (ndim - len(small)) + small
    axes = tuple(i for i, (s, d) in enumerate(zip(wide, full, strict=True)) if s == 1 and d != 1)
    return reshape(total(x, axes, True) if axes else x, tuple(small))


def _collapse_compute(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    return _collapse(x, shape, topi.sum, topi.reshape)


def _collapse_reference(x: Array, shape: Sequence[Dim]) -> Array:
    return _collapse(x, shape, lambda v, axes, keep: v.sum(axis=axes, keepdims=keep), np.reshape)


collapse_sum_to = define_op(
    "collapse_sum_to", inputs=("data", "shape"), infer_type=_collapse_to_type, compute=_collapse_compute,
    reference=_collapse_reference, samples=[sample((2, 3, 4), ShapeStructInfo((3, 1)))],
)  # fmt: skip
collapse_sum_like = define_op(
    "collapse_sum_like", inputs=("data", "collapse_target"),
    infer_type=lambda data, target: _collapsed(tensor(data), tensor(target).dims),
    compute=lambda x, target: _collapse_compute(x, target.shape),
    reference=lambda x, target: _collapse_reference(x, target.shape), samples=[sample((2, 3, 4), (3, 1))],
)  # fmt: skip


def _outer_type(x1: StructInfo, x2: StructInfo) -> TensorStructInfo:
    a, b = tensor(x1), tensor(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError("an outer product takes two vectors")
    return TensorStructInfo((*a.dims, *b.dims), common_dtype(a, b))


outer = define_op(
    "outer", inputs=("x1", "x2"), infer_type=_outer_type,
    compute=lambda a, b: _compute((*a.shape, *b.shape), lambda i, j: a(i) * b(j), "T_outer"), reference=np.outer,
    samples=[sample((3,), (4,))],
)  # fmt: skip


def _masked_fill_type(x: StructInfo, mask: StructInfo, value: float) -> TensorStructInfo:
    if tensor(mask).dtype != "bool":
        raise InvalidTypeError(f"a mask is of dtype bool, not {tensor(mask).dtype}")
    if not same_dims(broadcast_dims(tensor(x).dims, tensor(mask).dims), tensor(x).dims):
        raise ShapeError(f"a mask of {tensor(mask)} has more elements than {tensor(x)}")
    return tensor(x)


masked_fill = define_op(
    "masked_fill", inputs=("x", "mask"), attributes={"value": 0.0}, infer_type=_masked_fill_type,
    compute=lambda x, mask, value: topi.where(mask, topi.full_like(x, value), x),
    reference=lambda x, mask, value: np.where(mask, np.asarray(value, x.dtype), x),
    samples=[sample((3, 4), ((3, 4), "bool"), value=-1.0)],
)  # fmt: skip
