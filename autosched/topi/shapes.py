"""Integer shapes of tensor expressions, and index arithmetic over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from autosched import te
from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir.expr import ExprLike, IntImm, PrimExpr, Var, as_int
from autosched.tir.simplify import Analyzer

Dim = int | PrimExpr
ImageShape: TypeAlias = tuple[Any, ...]  # integers, but for the batch, height and width, which may be expressions


def int_shape(x: Tensor) -> tuple[int, ...]:
    """The shape as integers. Raises InvalidValueError where a dimension is symbolic."""
    return tuple(as_int(s) for s in x.shape)


def extent_of(x: Tensor, axis: int) -> int:
    """The size of one dimension; others may be symbolic. Raises InvalidValueError where it is symbolic."""
    return as_int(x.shape[axis])


def open_shape(x: Tensor) -> tuple[int | PrimExpr, ...]:
    """The shape, as integers where they are known."""
    return tuple(map(plain_int, x.shape))


def image_shape(x: Tensor) -> ImageShape:
    """The shape as integers where they are known: a batch of any size, of images [N, C, …] of any size.

    Raises InvalidValueError where the number of channels is symbolic.
    """
    shape = open_shape(x)
    return (*shape[:1], *map(as_int, shape[1:2]), *shape[2:])


def known(d: Dim) -> Dim:
    """An extent as simple as it is seen to be, a number where it is one."""
    return d if isinstance(d, int) else plain_int(Analyzer().simplify(d))


def plain_int(e: PrimExpr) -> Dim:
    """A constant as the integer that it is, other expressions as they are."""
    return e.value if isinstance(e, IntImm) else e


def is_below(d: Dim, limit: int) -> bool:
    """Whether an extent is known to be less; an operator's `limits` say so of what only a call knows."""
    return isinstance(d, int) and d < limit


def dims(shape: Sequence[Dim]) -> tuple[PrimExpr, ...]:
    """A shape with its constants as int64, the index dtype of operator computes."""
    return tuple(
        s if isinstance(s, PrimExpr) and not isinstance(s, IntImm) else IntImm(as_int(s), "int64") for s in shape
    )


def axis_names(ndim: int) -> list[str]:
    """ax0, ax1, … as the loops of injective operators are called."""
    return [f"ax{i}" for i in range(ndim)]


def compute_over(shape: Sequence[Dim], f: Callable[..., PrimExpr], name: str) -> Tensor:
    """A tensor of this shape whose element at i, j, … is `f(i, j, …)`."""
    return te.compute(dims(shape), f, name=name, varargs_names=axis_names(len(shape)))


def flatten_index(indices: Sequence[ExprLike], shape: Sequence[int]) -> PrimExpr:
    """The row-major position of an element."""
    flat: PrimExpr = IntImm(0, "int64")
    for i, s in zip(indices, shape, strict=True):
        flat = flat * s + i
    return flat


def unflatten_index(flat: PrimExpr, shape: Sequence[int], ranges: dict[Var, tuple[int, int]]) -> list[PrimExpr]:
    """The indices of a row-major position, simplified with what is known of the variables in it."""
    analyzer = Analyzer(ranges)
    indices: list[PrimExpr] = []
    stride = 1
    for position in range(len(shape) - 1, -1, -1):
        size = shape[position]
        if size == 1:
            indices.append(IntImm(0, "int64"))
            continue
        index = flat // stride
        if position:
            index = index % size
        indices.append(analyzer.simplify(index))
        stride *= size
    return indices[::-1]


def normal_axes(x: Tensor, axis: Sequence[int] | int | None) -> tuple[int, ...]:
    """Axes in order, of what TVM's users give: None for all, one number, negative ones from the end, in any order."""
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    for a in given:
        if not -x.ndim <= a < x.ndim:
            raise ShapeError(f"axis {a} of a tensor of {x.ndim} dimensions", where=f"tensor {x.name}")
    return tuple(sorted(a % x.ndim for a in given))


def one_axis(x: Tensor, axis: Sequence[int] | int) -> int:
    """The one axis that is given, counted from the front. Raises ShapeError for one that is not there, or several."""
    found = normal_axes(x, axis)
    if len(found) != 1:
        raise ShapeError(f"axes {tuple(found)} where one is wanted", where=f"tensor {x.name}")
    return found[0]
