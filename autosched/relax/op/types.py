"""Type rules that several operator families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.struct_info import Dim, StructInfo, TensorStructInfo, same_dim
from autosched.tir.dtypes import is_float


def tensor(t: StructInfo, what: str = "the argument") -> TensorStructInfo:
    """`t` itself. Raises TypeError if it is no tensor."""
    if not isinstance(t, TensorStructInfo):
        raise InvalidTypeError(f"{what} must be a tensor, got {type(t).__name__}")
    return t


def same(x: StructInfo, **_: object) -> TensorStructInfo:
    """The result has the argument's type."""
    return tensor(x)


def float_same(x: StructInfo, **_: object) -> TensorStructInfo:
    """The argument's type, which must be of floating point."""
    t = tensor(x)
    if not is_float(t.dtype):
        raise InvalidTypeError(f"needs a floating-point tensor, got {t.dtype}", hint="cast it with astype")
    return t


def common_dtype(*types: TensorStructInfo) -> str:
    """The one dtype of all. Raises TypeError where they differ."""
    dtypes = {t.dtype for t in types}
    if len(dtypes) != 1:
        raise InvalidTypeError(f"dtypes differ: {', '.join(t.dtype for t in types)}", hint="cast with astype")
    return types[0].dtype


def broadcast_dims(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """NumPy's broadcasting, symbolic dimensions included. Raises ShapeError."""
    ndim = max(map(len, shapes))
    result: list[Dim] = []
    for axis in range(-ndim, 0):
        column = [s[axis] for s in shapes if len(s) >= -axis]
        wide = [d for d in column if not (isinstance(d, int) and d == 1)]
        if any(not same_dim(d, wide[0]) for d in wide[1:]):
            texts = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            raise ShapeError(f"shapes {texts} cannot be broadcast")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def broadcast(x: StructInfo, y: StructInfo, **_: object) -> TensorStructInfo:
    """Two tensors of one dtype, broadcast."""
    a, b = tensor(x), tensor(y)
    dtype = common_dtype(a, b)
    return TensorStructInfo(broadcast_dims(a.dims, b.dims), dtype)


def compare(x: StructInfo, y: StructInfo, **_: object) -> TensorStructInfo:
    """Two tensors of one dtype, broadcast, giving booleans."""
    return TensorStructInfo(broadcast(x, y).shape, "bool")


def axis_index(axis: int, ndim: int) -> int:
    """A possibly negative axis as 0 … ndim - 1. Raises ValueError outside."""
    if not hasattr(axis, "__index__"):
        raise InvalidTypeError(f"axis is an integer, not {type(axis).__name__}")
    if not -ndim <= axis < ndim:
        raise InvalidValueError(f"axis {axis} is outside a tensor of {ndim} dimensions")
    return axis % ndim


def axes_tuple(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes as a sorted tuple of non-negative numbers; None is all. Raises ValueError for a repeated one."""
    if axis is None:
        return tuple(range(ndim))
    items = tuple(axis) if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    result = tuple(sorted(axis_index(a, ndim) for a in items))
    if len(set(result)) != len(result):
        raise InvalidValueError(f"an axis is repeated in {items}")
    return result


def pair(x: Any, what: str) -> tuple[int, int]:
    """One number or two as two."""
    if isinstance(x, str) or not (hasattr(x, "__index__") or isinstance(x, Sequence)):
        raise InvalidTypeError(f"{what}: one integer or two, got {x!r} of type {type(x).__name__}")
    items = (int(x), int(x)) if hasattr(x, "__index__") else tuple(int(v) for v in x)
    if len(items) == 1:
        items = items * 2
    if len(items) != 2:
        raise InvalidValueError(f"{what} needs one number or two, got {items}")
    return items


def four(x: Any, what: str = "padding") -> tuple[int, int, int, int]:
    """Padding as (top, left, bottom, right) from one number, two (rows, columns) or four."""
    items = (x,) if isinstance(x, int) else tuple(int(v) for v in x)
    if len(items) == 1:
        items = items * 4
    elif len(items) == 2:
        items = items * 2
    if len(items) != 4:
        raise InvalidValueError(f"{what} needs one, two or four numbers, got {items}")
    return items
