"""Operators that move elements: no arithmetic on values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched import te
from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir.expr import (
    IntImm,
    PrimExpr,
    Var,
    add,
    as_int,
    const,
    const_int,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    minimum,
    select,
    sub,
)  # fmt: skip
from autosched.topi.shapes import (
    Dim,
    compute_over,
    dims,
    flatten_index,
    int_shape,
    normal_axes,
    one_axis,
    open_shape,
    unflatten_index,
)  # fmt: skip


def reshape(x: Tensor, shape: Sequence[int], name: str = "T_reshape") -> Tensor:
    """The elements in their row-major order under another shape."""
    old, new = int_shape(x), tuple(int(s) for s in shape)
    if math.prod(old) != math.prod(new):
        raise ShapeError(f"reshape: {old} has {math.prod(old)} elements, {new} has {math.prod(new)}")

    def compute(*i: Var) -> PrimExpr:
        ranges: dict[Var, tuple[int, int]] = {v: (0, s) for v, s in zip(i, new, strict=True)}
        return x(*unflatten_index(flatten_index(i, new), old, ranges))

    return compute_over(new, compute, name)


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Dimension i of the result is dimension axes[i] of x; all in reverse order where none are given."""
    axes = list(reversed(range(x.ndim))) if axes is None else axes
    inverse = [list(axes).index(a) for a in range(x.ndim)]
    return compute_over([x.shape[a] for a in axes], lambda *i: x(*(i[p] for p in inverse)), "T_transpose")


def expand_dims(x: Tensor, axes: Sequence[int] | int) -> Tensor:
    """New dimensions of size 1 at `axes` of the result. Raises ShapeError for an axis that it does not have."""
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    rank = x.ndim + len(given)
    if wrong := [a for a in given if not -rank <= a < rank]:
        raise ShapeError(f"axis {wrong[0]} of a result of {rank} dimensions", where=f"tensor {x.name}")
    axes = sorted(a % rank for a in given)
    shape = list(x.shape)
    for a in axes:
        shape.insert(a, IntImm(1, "int64"))
    return compute_over(shape, lambda *i: x(*(v for a, v in enumerate(i) if a not in axes)), "expand_dims")


def squeeze(x: Tensor, axes: Sequence[int] | int | None = None) -> Tensor:
    """Without the dimensions `axes`, whose size is 1; all such where none are given. Raises ShapeError for others."""
    axes = [a for a, s in enumerate(x.shape) if const_int(s) == 1] if axes is None else normal_axes(x, axes)
    if wrong := [a for a in axes if const_int(x.shape[a]) not in (1, None)]:
        raise ShapeError(f"squeeze: dimension {wrong[0]} has {x.shape[wrong[0]]} elements", where=f"tensor {x.name}")
    shape = [s for a, s in enumerate(x.shape) if a not in axes]

    def compute(*i: PrimExpr) -> PrimExpr:
        rest = list(i)
        return x(*(IntImm(0, "int64") if a in axes else rest.pop(0) for a in range(x.ndim)))

    return compute_over(shape, compute, "T_squeeze")


MOST_IN_TURN = 16  # inputs that a concatenation asks for one after the other; among more it searches


def concatenate(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The tensors one after the other along `axis`, their sizes numbers or symbols."""
    shapes = [tuple(map(const_int, t.shape)) for t in tensors]
    axis = one_axis(tensors[0], axis)
    if (
        any(a != b and None not in (a, b) for s in shapes for n, (a, b) in enumerate(zip(s, shapes[0])) if n != axis)
        or len({*map(len, shapes)}) != 1
    ):
        raise ShapeError(f"concatenate: {shapes} differ in more than axis {axis}")
    starts: list[PrimExpr] = [const(0, "int64")]
    for size in (dims(t.shape)[axis] for t in tensors):
        starts.append(add(starts[-1], size))
    shape = list(tensors[0].shape)
    shape[axis] = starts[-1]

    def compute(*i: PrimExpr) -> PrimExpr:
        def part(n: int, start: PrimExpr) -> PrimExpr:
            return tensors[n](*(v - start if a == axis and n else v for a, v in enumerate(i)))

        def parts(first: int, last: int) -> PrimExpr:
            """The element where it lies in tensors[first:last]."""
            if last - first > MOST_IN_TURN:
                middle = (first + last) // 2
                return if_then_else(i[axis] >= starts[middle], parts(middle, last), parts(first, middle))
            result = part(first, starts[first])
            for n in range(first + 1, last):
                result = if_then_else(i[axis] >= starts[n], part(n, starts[n]), result)
            return result

        return parts(0, len(tensors))

    return compute_over(shape, compute, "T_concat")


def split(x: Tensor, sections: Sequence[int], axis: int) -> list[Tensor]:
    """Pieces of the given sizes along `axis`."""

    def piece(start: int, size: int) -> Tensor:
        shape = [IntImm(size, "int64") if a == axis else s for a, s in enumerate(x.shape)]
        return compute_over(shape, lambda *i: x(*(v + start if a == axis else v for a, v in enumerate(i))), "T_split")

    starts = [sum(sections[:n]) for n in range(len(sections))]
    return [piece(start, size) for start, size in zip(starts, sections, strict=True)]


def strided_slice(x: Tensor, shape: Sequence[Dim], begin: Sequence[Dim], strides: Sequence[Dim]) -> Tensor:
    """Every strides[a]-th element from begin[a], shape[a] of them, for each dimension."""
    return compute_over(
        shape, lambda *i: x(*(v * s + b for v, b, s in zip(i, begin, strides, strict=True))), "T_strided_slice"
    )


def pad(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
    """`value` around the tensor, before[a] and after[a] elements in each dimension."""
    size = open_shape(x)
    shape = [b + s + a if b or a else s for b, s, a in zip(before, size, after, strict=True)]

    def compute(*i: PrimExpr) -> PrimExpr:
        conditions = []
        for v, b, s, a in zip(i, before, size, after, strict=True):
            conditions += [v >= b] * bool(b) + [v < b + s] * bool(a)
        inner = x(*(v - b if b else v for v, b in zip(i, before, strict=True)))
        return if_then_else(te.all(*conditions), inner, const(value, x.dtype)) if conditions else inner

    return compute_over(shape, compute, "PadInput")


def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """The tensor repeated along its dimensions."""
    size = open_shape(x)
    shape = [s * r if r != 1 else s for s, r in zip(size, repeats, strict=True)]
    return compute_over(shape, lambda *i: x(*(v % s if r > 1 else v for v, s, r in zip(i, size, repeats))), "T_tile")


PAD_MODES = ("constant", "reflect", "replicate", "circular")


def pad_by(x: Tensor, before: Sequence[int], after: Sequence[int], mode: str, name: str = "PadInput") -> Tensor:
    """The tensor continued around itself.

    mode    "reflect": mirrored at its border elements; "replicate": these repeated; "circular": from its other side
    Raises  ShapeError where more is asked for than there is, with "reflect" and "circular".
    """
    size = [as_int(s) for s in x.shape]
    for s, b, a in zip(size, before, after, strict=True):
        most = {"reflect": s - 1, "circular": s}.get(mode)
        if min(a, b) < 0 or most is not None and max(a, b) > most:
            raise ShapeError(f"pad: {b} and {a} elements around {s} with mode '{mode}'")

    def place(v: PrimExpr, s: int, b: int, a: int) -> PrimExpr:
        if not b and not a:
            return v
        p, last = v - b, const(s - 1, "int64")
        if mode == "circular":
            return floormod(p + s, const(s, "int64"))
        if mode == "replicate":
            return maximum(minimum(p, last), const(0, "int64"))
        p = select(p < 0, const(0, "int64") - p, p)
        return select(p > last, last * 2 - p, p)

    shape = [b + s + a for b, s, a in zip(before, size, after, strict=True)]
    return compute_over(shape, lambda *i: x(*map(place, i, size, before, after)), name)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    return concatenate([expand_dims(t, axis) for t in tensors], axis)


def flip(x: Tensor, axis: int = 0) -> Tensor:
    """The elements along an axis in the opposite order."""
    (place,) = normal_axes(x, axis)

    def compute(*i: PrimExpr) -> PrimExpr:
        return x(*(sub(x.shape[k] - 1, v) if k == place else v for k, v in enumerate(i)))

    return compute_over(x.shape, compute, "T_flip")


def repeat(x: Tensor, repeats: int, axis: int = 0) -> Tensor:
    """Each element along an axis several times."""
    (place,) = normal_axes(x, axis)
    shape = [n * repeats if k == place else n for k, n in enumerate(int_shape(x))]

    def compute(*i: PrimExpr) -> PrimExpr:
        return x(*(floordiv(v, repeats) if k == place else v for k, v in enumerate(i)))

    return compute_over(shape, compute, "T_repeat")


def expand_like(a: Tensor, shape_like: Tensor, axis: Sequence[int]) -> Tensor:
    """The tensor repeated along new dimensions `axis`, with the shape of another one."""
    added = normal_axes(shape_like, axis)
    if a.ndim + len(added) != shape_like.ndim and not (a.ndim == 1 and len(added) == shape_like.ndim):
        raise ShapeError(f"expand_like: {a.shape} with new dimensions {added} as {shape_like.shape}")

    def compute(*i: PrimExpr) -> PrimExpr:
        kept = [v for k, v in enumerate(i) if k not in added]
        return a(*kept) if kept or not a.ndim else a(0)

    return compute_over(shape_like.shape, compute, "T_expand_like")
