"""Relay's operators that move elements: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax import Constant, Expr, Tuple, op
from autosched.relax.op.manipulate import resolve_shape
from autosched.relay.expr import TupleWrapper, const, info, unwrap


def reshape(data: object, newshape: int | Sequence[int], allowzero: bool = False) -> Expr:
    """The same elements in another shape; -1 stands for what is left, 0 for the old extent, -2 for all that follow."""
    x = unwrap(data)
    old = info(x).static_shape
    wanted = [int(d) for d in (newshape if isinstance(newshape, Sequence) else [newshape])]
    shape: list[int] = []
    at = 0
    for d in wanted:
        if d == 0 and not allowzero:
            shape.append(old[at])
            at += 1
        elif d == -2:
            shape += old[at:]
            at = len(old)
        elif d == -3:
            shape.append(old[at] * old[at + 1])
            at += 2
        elif d < -3:
            raise ShapeError(f"reshape: {d} is not available in newshape {wanted}")
        else:
            shape.append(d)
            at += 1
    return op.reshape(x, resolve_shape(old, tuple(shape)))


def transpose(data: object, axes: Sequence[int] | None = None) -> Expr:
    """Axes in another order, reversed where none is given."""
    return op.permute_dims(unwrap(data), None if axes is None else list(axes))


def expand_dims(data: object, axis: int, num_newaxis: int = 1) -> Expr:
    """New axes of extent 1."""
    return op.expand_dims(unwrap(data), [axis + i if axis >= 0 else axis - i for i in range(num_newaxis)])


def squeeze(data: object, axis: object = None) -> Expr:
    """Axes of extent 1 left out."""
    return op.squeeze(unwrap(data), [axis] if isinstance(axis, int) else axis)


def concatenate(data: object, axis: int) -> Expr:
    """Tensors one after the other along an axis."""
    return op.concat(unwrap(data), axis)


def stack(data: object, axis: int) -> Expr:
    """Tensors one after the other along a new axis."""
    whole = unwrap(data)
    if not isinstance(whole, Tuple):
        raise InvalidTypeError(f"stack takes several tensors, got a {type(whole).__name__}")
    return op.concat(unwrap([op.expand_dims(field, axis) for field in whole.fields]), axis)


def split(data: object, indices_or_sections: int | Sequence[int], axis: int = 0) -> TupleWrapper:
    """Parts of a tensor along an axis: a number of equal ones, or cut at positions."""
    pieces = indices_or_sections if isinstance(indices_or_sections, int) else list(indices_or_sections)
    size = pieces if isinstance(pieces, int) else len(pieces) + 1
    return TupleWrapper(op.split(unwrap(data), pieces, axis), size)


def strided_slice(
    data: object,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Expr:
    """A part of a tensor; with slice_mode "size" `end` holds extents, -1 for all that follow."""
    x = unwrap(data)
    over = list(axes) if axes is not None else list(range(len(begin)))
    stop = list(end)
    if slice_mode == "size":
        shape = info(x).static_shape
        stop = [shape[a] if size < 0 else b + size for a, b, size in zip(over, begin, end, strict=True)]
    elif slice_mode != "end":
        raise InvalidValueError(f"strided_slice: slice_mode '{slice_mode}'", hint='it is "end" or "size"')
    steps = list(strides) * (len(over) if strides is not None and len(strides) == 1 else 1) if strides else None
    return op.strided_slice(x, over, list(begin), stop, steps)


def tile(data: object, reps: Sequence[int]) -> Expr:
    """A tensor repeated along its axes."""
    return op.tile(unwrap(data), tuple(reps))


def repeat(data: object, repeats: int, axis: int) -> Expr:
    """Every element repeated along an axis."""
    x = unwrap(data)
    axis %= info(x).ndim
    shape = info(x).static_shape
    wide = op.tile(op.expand_dims(x, axis + 1), tuple(repeats if i == axis + 1 else 1 for i in range(len(shape) + 1)))
    return op.reshape(wide, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


def broadcast_to(data: object, shape: Sequence[int]) -> Expr:
    """A tensor repeated to a shape that it fits."""
    return op.broadcast_to(unwrap(data), tuple(shape))


def layout_transform(data: object, src_layout: str, dst_layout: str) -> Expr:
    """A tensor in another layout, such as NCHW in NHWC."""
    if sorted(src_layout) == sorted(dst_layout):
        return op.permute_dims(unwrap(data), [src_layout.index(axis) for axis in dst_layout])
    return op.layout_transform(unwrap(data), src_layout, dst_layout)


def reverse(data: object, axis: int) -> Expr:
    """A tensor back to front along an axis."""
    x = unwrap(data)
    size = info(x).static_shape[axis]
    return op.take(x, const(np.arange(size - 1, -1, -1, dtype="int64")), axis)


def reshape_like(data: object, shape_like: object) -> Expr:
    """The same elements in another tensor's shape."""
    return op.reshape(unwrap(data), info(unwrap(shape_like)).static_shape)


def broadcast_to_like(data: object, broadcast_type: object) -> Expr:
    """A tensor repeated to another one's shape."""
    return op.broadcast_to(unwrap(data), info(unwrap(broadcast_type)).static_shape)


def flip(data: object, axis: int) -> Expr:
    """A tensor back to front along an axis."""
    return op.flip(unwrap(data), axis)


def trilu(data: object, k: Constant | int = 0, upper: bool = True) -> Expr:
    """The upper or lower triangle."""
    number = int(k.data if isinstance(k, Constant) else k)
    return (op.triu if upper else op.tril)(unwrap(data), number)
