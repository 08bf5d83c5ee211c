"""Relay's element-wise operators, reductions and rearrangements: relax's operators with Relay's signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax import Expr, TensorStructInfo, Tuple, op
from autosched.relax.op.manipulate import resolve_shape
from autosched.relay.expr import TupleWrapper, const, unwrap
from autosched.runtime import NDArray


def info(x: object) -> TensorStructInfo:
    """The type of a tensor expression. Raises InvalidTypeError for anything else."""
    found = getattr(x, "struct_info", None)
    if not isinstance(found, TensorStructInfo):
        raise InvalidTypeError(f"a tensor is needed, not {type(x).__name__} of type {found}")
    return found


def _binary(name: str) -> Callable[[object, object], Expr]:
    function: Callable[..., Expr] = getattr(op, name)

    def apply(lhs: object, rhs: object) -> Expr:
        return function(unwrap(lhs), unwrap(rhs))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name}` of two tensors, broadcast to one shape."
    return apply


def _unary(name: str, of: Callable[..., Expr] | None = None) -> Callable[[object], Expr]:
    function = of or getattr(op, name)

    def apply(data: object) -> Expr:
        return function(unwrap(data))

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name}` of each element."
    return apply


add, subtract, multiply, divide, power = map(_binary, ("add", "subtract", "multiply", "divide", "power"))
maximum, minimum, floor_divide = map(_binary, ("maximum", "minimum", "floor_divide"))
equal, not_equal, less, less_equal = map(_binary, ("equal", "not_equal", "less", "less_equal"))
greater, greater_equal = map(_binary, ("greater", "greater_equal"))
logical_and, logical_or = map(_binary, ("logical_and", "logical_or"))
exp, log, sqrt, rsqrt, tanh, sigmoid, erf = map(_unary, ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf"))
abs, negative, ceil, floor, round, sign = map(_unary, ("abs", "negative", "ceil", "floor", "round", "sign"))
sin, cos, logical_not = map(_unary, ("sin", "cos", "logical_not"))
copy, identity = _unary("copy", op.identity), _unary("identity", op.identity)


def clip(a: object, a_min: float, a_max: float) -> Expr:
    """Elements held between two numbers."""
    return op.clip(unwrap(a), a_min, a_max)


def cast(data: object, dtype: str) -> Expr:
    """Elements converted to another dtype."""
    return op.astype(unwrap(data), dtype)


def where(condition: object, x: object, y: object) -> Expr:
    """Elements of `x` where the condition holds, else of `y`."""
    return op.where(unwrap(condition), unwrap(x), unwrap(y))


# Reductions


def _axes(data: object, axis: int | Sequence[int] | None, exclude: bool) -> list[int] | None:
    if axis is None or not exclude:
        return None if axis is None else [axis] if isinstance(axis, int) else list(axis)
    ndim = info(data).ndim
    chosen = {a % ndim for a in ([axis] if isinstance(axis, int) else axis)}
    return [a for a in range(ndim) if a not in chosen]


def _reduction(name: str) -> Callable[..., Expr]:
    function: Callable[..., Expr] = getattr(op, name)

    def apply(
        data: object, axis: int | Sequence[int] | None = None, keepdims: bool = False, exclude: bool = False
    ) -> Expr:
        x = unwrap(data)
        return function(x, _axes(x, axis, exclude), keepdims)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name}` over axes, over all of them where none is given; `exclude`: over all others."
    return apply


sum, mean, max, min, prod, variance = map(_reduction, ("sum", "mean", "max", "min", "prod", "variance"))


def _position(name: str) -> Callable[..., Expr]:
    function: Callable[..., Expr] = getattr(op, name)

    def apply(
        data: object,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> Expr:
        x = unwrap(data)
        if select_last_index or exclude:
            raise InvalidValueError(f"{name}: select_last_index and exclude are not available")
        return function(x, axis if axis is None or isinstance(axis, int) else axis[0], keepdims)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Position of the first {name[3:]}imum along an axis."
    return apply


argmax, argmin = map(_position, ("argmax", "argmin"))


# Rearrangements


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


def take(data: object, indices: object, axis: int | None = None, batch_dims: int = 0, mode: str = "clip") -> Expr:
    """Elements, or slices along an axis, at positions; `mode` "clip", "wrap" or "fast" (here: those out are errors)."""
    if mode not in ("clip", "wrap", "fast"):
        raise InvalidValueError(f"take: mode '{mode}'", hint='use "clip", "wrap" or "fast"')
    if batch_dims:
        raise InvalidValueError("take: batch_dims is not available")
    x = unwrap(data)
    if axis is None:
        x, axis = op.reshape(x, (-1,)), 0
    return op.take(x, unwrap(indices), axis, mode)


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


# Creation


def full(fill_value: object, shape: Sequence[int] = (), dtype: str = "") -> Expr:
    """A tensor of one value."""
    value = fill_value.numpy() if isinstance(fill_value, NDArray) else getattr(fill_value, "data", fill_value)
    number = np.asarray(value)
    return op.full(
        tuple(shape), number.item(), dtype or {"float64": "float32"}.get(str(number.dtype), str(number.dtype))
    )


def zeros(shape: Sequence[int], dtype: str) -> Expr:
    """A tensor of zeros."""
    return op.zeros(tuple(shape), dtype)


def ones(shape: Sequence[int], dtype: str) -> Expr:
    """A tensor of ones."""
    return op.ones(tuple(shape), dtype)


def zeros_like(data: object) -> Expr:
    """Zeros in a tensor's shape and dtype."""
    found = info(unwrap(data))
    return op.zeros(found.static_shape, found.dtype)


def ones_like(data: object) -> Expr:
    """Ones in a tensor's shape and dtype."""
    found = info(unwrap(data))
    return op.ones(found.static_shape, found.dtype)


def full_like(data: object, fill_value: object) -> Expr:
    """One value in a tensor's shape and dtype."""
    found = info(unwrap(data))
    return full(fill_value, found.static_shape, found.dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "float32") -> Expr:
    """Numbers from `start` to before `stop`."""
    if stop is None:
        start, stop = 0, start
    return const(np.arange(start, stop, step, dtype=dtype))


def shape_of(data: object, dtype: str = "int32") -> Expr:
    """A tensor's shape as a tensor."""
    return const(np.asarray(info(unwrap(data)).static_shape, dtype))


def ndarray_size(data: object, dtype: str = "int32") -> Expr:
    """The number of a tensor's elements."""
    return const(np.asarray(math.prod(info(unwrap(data)).static_shape), dtype))
