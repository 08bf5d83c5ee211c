"""Operators that move elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import Limit, define_op, sample, some_elements
from autosched.relax.op.types import axes_tuple, axis_index, common_dtype, tensor
from autosched.relax.struct_info import (
    Dim,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    same_dim,
    to_dim,
)  # fmt: skip
from autosched.te import Tensor
from autosched.tir.expr import IntImm, PrimExpr, as_int, const_int
from autosched.tir.simplify import Analyzer
from autosched.tir.size_expr import same_extent
from autosched.topi import manipulate
from autosched.topi.shapes import extent_of, known, open_shape


def _tensor(shape: Iterable[Dim], dtype: str) -> TensorStructInfo:
    return TensorStructInfo(tuple(shape), dtype)


def resolve_shape(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """The new shape with its one -1 replaced. Raises ShapeError where the number of elements differs."""
    known = math.prod(d for d in new if d != -1)
    total = math.prod(old)
    if 0 in new and total:  # 0 stands for the size that the dimension had
        new = tuple(old[a] if d == 0 and a < len(old) else d for a, d in enumerate(new))
        known = math.prod(d for d in new if d != -1)
    if new.count(-1) == 1 and known and total % known == 0:
        new = tuple(total // known if d == -1 else d for d in new)
    if -1 in new or math.prod(new) != total:
        raise ShapeError(f"{total} elements of shape {old} cannot take the shape {new}")
    return new


def _symbolic_reshape(t: TensorStructInfo, target: TensorStructInfo) -> TensorStructInfo:
    """With symbols the new shape is taken as it is; a -1 becomes what is left."""
    if t.shape is None or not any(isinstance(d, int) and d == -1 for d in target.dims):
        return target
    total: PrimExpr = IntImm(1, "int64")
    for d in t.dims:
        total = total * d
    known: PrimExpr = IntImm(1, "int64")
    for d in target.dims:
        known = known * (1 if isinstance(d, int) and d == -1 else d)
    left = Analyzer().simplify(total // known)
    return _tensor((left if isinstance(d, int) and d == -1 else d for d in target.dims), t.dtype)


def _sum_of(sizes: Sequence[Dim]) -> Dim:
    """The sum of sizes, some of which may be symbols."""
    total: Dim = 0
    for s in sizes:
        total = total + s
    return total if isinstance(total, int) else Analyzer().simplify(total)


def _reshape_type(x: StructInfo, shape: StructInfo) -> TensorStructInfo:
    t = tensor(x)
    if not isinstance(shape, ShapeStructInfo) or shape.values is None:
        raise InvalidTypeError("the new shape must be known")
    target = _tensor(shape.values, t.dtype)
    if not t.is_static or not target.is_static:
        return _symbolic_reshape(t, target)
    return _tensor(resolve_shape(t.static_shape, _tensor(shape.values, t.dtype).static_shape), t.dtype)


def _same_count(x: StructInfo, shape: StructInfo) -> list[Limit]:
    """Both shapes have as many elements."""
    old, new = tensor(x), _reshape_type(x, shape)
    if old.shape is None or new.shape is None or old.is_static and new.is_static:
        return []
    apart = [(a, b) for a, b in zip(old.dims, new.dims) if not same_extent(a, b)] if old.ndim == new.ndim else []
    counts = tuple(map(_count, zip(*apart, strict=True) if apart else (old.dims, new.dims)))
    return [] if same_extent(*counts) else [(counts[0] - counts[1], 0, 0)]


def _count(dims: Sequence[Dim]) -> PrimExpr:
    total: PrimExpr = IntImm(1, "int64")
    for d in dims:
        total = total * d
    return total


reshape = define_op(
    "reshape",
    inputs=("x", "shape"),
    infer_type=_reshape_type,
    limits=_same_count,
    is_view=True,
    compute=lambda x, shape: manipulate.reshape(x, resolve_shape(tuple(int(s) for s in x.shape), shape)),
    reference=lambda x, shape: x.reshape(resolve_shape(x.shape, shape)),
    samples=[
        sample((2, 6), ShapeStructInfo((3, 4))),
        sample((2, 3, 4), ShapeStructInfo((0, -1))),
        sample((2, 3, 4), ShapeStructInfo((2, -1))),
        sample((6,), ShapeStructInfo((1, 6, 1))),
        sample((4, 6), ShapeStructInfo((8, 3))),
    ],
)

flatten = define_op(
    "flatten",
    infer_type=lambda x: _reshape_type(x, ShapeStructInfo((-1,))),
    is_view=True,
    compute=lambda x: manipulate.reshape(x, (math.prod(int(s) for s in x.shape),)),
    reference=lambda x: x.reshape(-1),
    samples=[sample((2, 3))],
    legal_name="reshape",
)


def _order(axes: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    order = tuple(reversed(range(ndim))) if axes is None else tuple(axis_index(a, ndim) for a in axes)
    if sorted(order) != list(range(ndim)):
        raise InvalidValueError(f"axes {order} are no order of {ndim} dimensions")
    return order


def _transposed(x: Array, axes: Sequence[int]) -> Array:
    """Dimensions in another order. A large matrix is copied in tiles, four times as fast as whole."""
    order = _order(axes, x.ndim)
    if order != (1, 0) or x.size < 1 << 20:
        return np.transpose(x, order)
    out = np.empty(x.shape[::-1], x.dtype)
    for i in range(0, x.shape[0], 16):
        for j in range(0, x.shape[1], 1024):
            out[j : j + 1024, i : i + 16] = x[i : i + 16, j : j + 1024].T
    return out


permute_dims = define_op(
    "permute_dims",
    attributes={"axes": None},
    legal_name="transpose",
    infer_type=lambda x, axes: _tensor((tensor(x).dims[a] for a in _order(axes, tensor(x).ndim)), tensor(x).dtype),
    compute=lambda x, axes: topi.transpose(x, _order(axes, x.ndim)),
    reference=_transposed,
    samples=[sample((2, 3)), sample((2, 3, 4), axes=(0, 2, 1)), sample((2, 3, 4), axes=(-1, 0, 1))],
)


def _expanded_axes(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    items = (axis,) if isinstance(axis, int) else tuple(axis)
    return axes_tuple(items, ndim + len(items))


def _expand_type(x: StructInfo, axis: int | Sequence[int]) -> TensorStructInfo:
    t = tensor(x)
    dims: list[Dim] = list(t.dims)
    for a in _expanded_axes(axis, t.ndim):
        dims.insert(a, 1)
    return _tensor(dims, t.dtype)


expand_dims = define_op(
    "expand_dims",
    attributes={"axis": 0},
    infer_type=_expand_type,
    is_view=True,
    compute=lambda x, axis: manipulate.expand_dims(x, _expanded_axes(axis, x.ndim)),
    reference=lambda x, axis: np.expand_dims(x, _expanded_axes(axis, x.ndim)),
    samples=[sample((3, 4), axis=0), sample((3, 4), axis=(1, -1)), sample((3,), axis=(0, 2))],
)


def _squeezed_axes(shape: Sequence[Dim], axis: int | Sequence[int] | None) -> tuple[int, ...]:
    if axis is None:
        return tuple(i for i, s in enumerate(shape) if same_dim(s, 1))
    axes = axes_tuple(axis, len(shape))
    if any(not same_dim(shape[a], 1) for a in axes):
        raise ShapeError(f"dimensions {axes} of {tuple(shape)} are not all 1")
    return axes


def _squeeze_type(x: StructInfo, axis: int | Sequence[int] | None) -> TensorStructInfo:
    t = tensor(x)
    gone = _squeezed_axes(t.dims, axis)
    return _tensor((d for i, d in enumerate(t.dims) if i not in gone), t.dtype)


squeeze = define_op(
    "squeeze",
    attributes={"axis": None},
    infer_type=_squeeze_type,
    is_view=True,
    compute=lambda x, axis: topi.squeeze(x, _squeezed_axes(x.shape, axis)),
    reference=lambda x, axis: np.squeeze(x, _squeezed_axes(x.shape, axis)),
    samples=[sample((1, 3, 1), axis=None), sample((1, 3, 1), axis=(-1,))],
)


def _concat_type(tensors: StructInfo, axis: int | None) -> TensorStructInfo:
    if not isinstance(tensors, TupleStructInfo) or not tensors.fields:
        raise InvalidTypeError("takes a tuple of tensors")
    parts = [tensor(f) for f in tensors.fields]
    dtype, first = common_dtype(*parts), parts[0]
    if axis is None and any(p.ndim != 1 for p in parts):
        raise ShapeError("without an axis takes tensors of one dimension")
    a = axis_index(axis or 0, first.ndim)
    for p in parts[1:]:
        if p.ndim != first.ndim or any(i != a and not same_dim(d, first.dims[i]) for i, d in enumerate(p.dims)):
            raise ShapeError(f"{p!r} and {first!r} differ elsewhere than in dimension {a}")
    total = _sum_of([p.dims[a] for p in parts])
    return _tensor((total if i == a else d for i, d in enumerate(first.dims)), dtype)


concat = define_op(
    "concat",
    inputs=("tensors",),
    attributes={"axis": 0},
    infer_type=_concat_type,
    legal_name="concatenate",
    compute=lambda tensors, axis: topi.concatenate(tensors, (axis or 0) % tensors[0].ndim),
    reference=lambda tensors, axis: np.concatenate(tensors, axis or 0),
    samples=[
        sample([(2, 3), (2, 1), (2, 4)], axis=1),
        sample([(2, 3), (1, 3)], axis=-2),
        sample([(3,)], axis=0),
        sample([(3,), (2,)], axis=None),
    ],
)


def split_sizes(size: int, indices_or_sections: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of the pieces: a number of equal ones (the last may be smaller), or the positions to cut at."""
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise InvalidValueError(f"{indices_or_sections} sections; at least 1 is needed")
        each = -(-size // indices_or_sections)
        return tuple(max(0, min(each, size - i * each)) for i in range(indices_or_sections))
    cuts = [0, *(min(int(i), size) for i in indices_or_sections), size]
    return tuple(b - a for a, b in zip(cuts, cuts[1:], strict=False))


def _split_type(x: StructInfo, indices_or_sections: int | Sequence[int], axis: int) -> TupleStructInfo:
    t = tensor(x)
    a = axis_index(axis, t.ndim)
    whole = t.dims[a]
    if not isinstance(whole, int):
        if not isinstance(indices_or_sections, int):
            raise ShapeError(f"the symbolic dimension {a} of {t!r} cannot be cut by {indices_or_sections}")
        part = Analyzer().simplify(-(-whole // indices_or_sections))
        piece = _tensor((part if i == a else d for i, d in enumerate(t.dims)), t.dtype)
        return TupleStructInfo((piece,) * indices_or_sections)
    sizes = split_sizes(whole, indices_or_sections)
    if any(s <= 0 for s in sizes):
        raise ShapeError(f"dimension {a} of {t!r} cannot be cut by {indices_or_sections}")
    return TupleStructInfo(tuple(_tensor((s if i == a else d for i, d in enumerate(t.dims)), t.dtype) for s in sizes))


def _split_compute(x: Tensor, indices_or_sections: int | Sequence[int], axis: int) -> tuple[Tensor, ...]:
    a = axis % x.ndim
    return tuple(manipulate.split(x, split_sizes(extent_of(x, a), indices_or_sections), a))


def _split(x: Array, indices_or_sections: int | Sequence[int], axis: int) -> list[Array]:
    sizes = split_sizes(x.shape[axis], indices_or_sections)
    return np.split(x, np.cumsum(sizes)[:-1], axis)


split = define_op(
    "split",
    attributes={"indices_or_sections": 1, "axis": 0},
    infer_type=_split_type,
    compute=_split_compute,
    reference=_split,
    samples=[sample((4, 6), indices_or_sections=2, axis=1), sample((5, 3), indices_or_sections=(1, 3), axis=0)],
)


def slice_plan(
    shape: Sequence[Dim], axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
) -> tuple[list[Dim], list[int], list[int]]:
    """(size, begin, stride) for each dimension, Python's slicing rules; negative strides too; others may be open."""
    sizes, starts, steps = list(shape), [0] * len(shape), [1] * len(shape)
    for n, axis in enumerate(axes):
        a = axis_index(axis, len(shape))
        step, size = strides[n] if strides is not None else 1, as_int(shape[a])
        chosen = range(*slice(begin[n], end[n], step).indices(size))
        if step < 0 and end[n] < -size:
            chosen = range(*slice(begin[n], None, step).indices(size))
        sizes[a], starts[a], steps[a] = len(chosen), (chosen.start if len(chosen) else 0), step
    return sizes, starts, steps


def _slice_type(
    x: StructInfo, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
) -> TensorStructInfo:
    t = tensor(x)
    if t.is_static:
        return _tensor(slice_plan(t.static_shape, axes, begin, end, strides)[0], t.dtype)
    cut = {axis_index(a, t.ndim) for a in axes}
    if any(not isinstance(t.dims[a], int) for a in cut):
        raise ShapeError(f"a slice of a symbolic dimension of {t!r}", hint="bind it with BindSymbolicVars")
    sizes = slice_plan(tuple(d if isinstance(d, int) else 1 for d in t.dims), axes, begin, end, strides)[0]
    return _tensor((s if i in cut else d for i, (s, d) in enumerate(zip(sizes, t.dims, strict=True))), t.dtype)


def _slice(
    x: Array, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
) -> Array:
    sizes, starts, steps = slice_plan(x.shape, axes, begin, end, strides)
    index = np.ix_(*(np.arange(as_int(n)) * s + b for n, b, s in zip(sizes, starts, steps, strict=True)))
    return x[index]


def _slice_compute(
    x: Tensor, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None
) -> Tensor:
    return manipulate.strided_slice(x, *slice_plan(open_shape(x), axes, begin, end, strides))


strided_slice = define_op(
    "strided_slice",
    attributes={"axes": (), "begin": (), "end": (), "strides": None},
    infer_type=_slice_type,
    compute=_slice_compute,
    reference=_slice,
    samples=[
        sample((5, 6), axes=(0, 1), begin=(1, 0), end=(4, 6), strides=(1, 2)),
        sample((7,), axes=(0,), begin=(-1,), end=(-8,), strides=(-2,)),
        sample((3, 4), axes=(-1,), begin=(1,), end=(9223372036854775807,)),
    ],
)


def _begin_and_count(shape: StructInfo) -> tuple[Dim, Dim]:
    if not isinstance(shape, ShapeStructInfo) or shape.values is None or len(shape.values) != 2:
        raise InvalidTypeError("a slice has a begin and a count")
    begin, count = _tensor(shape.values, "int64").dims
    return begin, count


def _sized_slice_type(x: StructInfo, shape: StructInfo, axis: int, step: int) -> TensorStructInfo:
    t = tensor(x)
    a, (_, count) = axis_index(axis, t.ndim), _begin_and_count(shape)
    for inside in _inside(x, shape, axis, step):
        if (known := const_int(Analyzer().simplify(inside[0]))) is not None and known < inside[1]:
            raise ShapeError(f"a slice of {count} elements of dimension {a} of {t!r} is not inside of it")
    return _tensor((count if i == a else d for i, d in enumerate(t.dims)), t.dtype)


def _inside(x: StructInfo, shape: StructInfo, axis: int, step: int) -> list[Limit]:
    """The first and the last element are there."""
    t = tensor(x)
    begin, count = map(to_dim, _begin_and_count(shape))
    first, last = begin, begin + (count - 1) * step
    low, high = (first, last) if step > 0 else (last, first)
    return [(low, 0, None), (to_dim(t.dims[axis_index(axis, t.ndim)]) - 1 - high, 0, None), *some_elements(count)]


def _sized_slice_compute(x: Tensor, shape: Sequence[Dim], axis: int, step: int) -> Tensor:
    a, (begin, count) = axis % x.ndim, shape
    sizes = [count if i == a else d for i, d in enumerate(open_shape(x))]
    starts, steps = ([v if i == a else other for i in range(x.ndim)] for v, other in ((begin, 0), (step, 1)))
    return manipulate.strided_slice(x, sizes, starts, steps)


# `count` elements of one dimension from `begin` on, which may be symbols: they must be there.
sized_slice = define_op(
    "sized_slice",
    inputs=("x", "shape"),  # shape: (begin, count)
    attributes={"axis": 0, "step": 1},
    infer_type=_sized_slice_type,
    limits=_inside,
    compute=_sized_slice_compute,
    reference=lambda x, shape, axis, step: np.take(x, shape[0] + step * np.arange(shape[1]), axis),
    samples=[
        sample((5, 6), ShapeStructInfo((1, 3)), axis=1), sample((7, 2), ShapeStructInfo((6, 3)), axis=-2, step=-2),
    ],
)  # fmt: skip


def _pad_widths(pad_width: Sequence[int], ndim: int) -> list[tuple[int, int]]:
    if len(pad_width) != 2 * ndim:
        raise ShapeError(f"{len(pad_width)} widths for {ndim} dimensions", hint="give (before, after) for each")
    return [(int(pad_width[2 * i]), int(pad_width[2 * i + 1])) for i in range(ndim)]


def _pad_type(x: StructInfo, pad_width: Sequence[int], pad_mode: str, pad_value: float) -> TensorStructInfo:
    t = tensor(x)
    if pad_mode not in manipulate.PAD_MODES:
        raise InvalidValueError(f"pad_mode '{pad_mode}'", hint=f"one of {manipulate.PAD_MODES}")
    widths = _pad_widths(pad_width, t.ndim)
    return _tensor((known(s + b + a) for s, (b, a) in zip(t.dims, widths, strict=True)), t.dtype)


def _pad_compute(x: Tensor, pad_width: Sequence[int], pad_mode: str, pad_value: float) -> Tensor:
    before, after = zip(*_pad_widths(pad_width, x.ndim), strict=True)
    if pad_mode != "constant":
        return manipulate.pad_by(x, before, after, pad_mode)
    return topi.pad(x, before, after, pad_value)


def _pad_reference(x: np.ndarray, pad_width: Sequence[int], pad_mode: str, pad_value: float) -> np.ndarray:
    widths = _pad_widths(pad_width, x.ndim)
    if pad_mode == "constant":
        return np.pad(x, widths, constant_values=pad_value)
    how: Any = {"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode)
    found: np.ndarray = np.pad(x, widths, mode=how)
    return found


pad = define_op(
    "nn.pad",
    inputs=("data",),
    attributes={"pad_width": (), "pad_mode": "constant", "pad_value": 0.0},
    infer_type=_pad_type,
    compute=_pad_compute,
    reference=_pad_reference,
    samples=[
        sample((2, 3), pad_width=(0, 1, 2, 0)),
        sample((3,), pad_width=(1, 1), pad_value=-1.5),
        *(sample((2, 4), pad_width=(0, 1, 2, 1), pad_mode=mode) for mode in manipulate.PAD_MODES[1:]),
    ],
)


def _repeats(shape: Sequence[Dim], repeats: int | Sequence[int]) -> tuple[int, ...]:
    items = (repeats,) if isinstance(repeats, int) else tuple(repeats)
    return (1,) * (len(shape) - len(items)) + items


def _tile_type(x: StructInfo, repeats: int | Sequence[int]) -> TensorStructInfo:
    t = tensor(x)
    r = _repeats(t.dims, repeats)
    dims = (*(1,) * (len(r) - t.ndim), *t.dims)  # more repeats than dimensions: new ones in front
    for axis, (size, times) in enumerate(zip(dims, r, strict=True)):
        if not isinstance(size, int) and times != 1:
            raise ShapeError(f"dimension {axis}, '{size}', whose size is not known, {times} times")
    return _tensor((s * n if isinstance(s, int) else s for s, n in zip(dims, r, strict=True)), t.dtype)


tile = define_op(
    "tile",
    attributes={"repeats": ()},
    infer_type=_tile_type,
    compute=lambda x, repeats: topi.tile(x, _repeats(x.shape, repeats)),
    reference=lambda x, repeats: np.tile(x, _repeats(x.shape, repeats)),
    samples=[sample((2, 3), repeats=(2, 1)), sample((2, 3), repeats=(2, 1, 3))],
)
