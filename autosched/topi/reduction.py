"""Reductions over chosen dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from autosched import te
from autosched.ir.node import Attrs
from autosched.te import Tensor
from autosched.te.build import Reducer
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import ExprLike, IntImm, PrimExpr
from autosched.tir.extrema import KEEP_NAN
from autosched.topi.shapes import axis_names, dims, normal_axes, one_axis, open_shape

Axes = Sequence[int]
D = TypeVar("D")


def reduced_shape(shape: Sequence[D], axes: Axes, keepdims: bool) -> tuple[D | int, ...]:
    """The result's shape: reduced dimensions become 1 or go."""
    return tuple(1 if i in axes else s for i, s in enumerate(shape) if keepdims or i not in axes)


def full_index(
    out: Sequence[ExprLike], reduced: Sequence[ExprLike], ndim: int, axes: Axes, keepdims: bool
) -> list[ExprLike]:
    """Indices of the argument from the result's and the reduction's."""
    kept, over = list(out), list(reduced)
    index = []
    for i in range(ndim):
        if i in axes:
            index.append(over.pop(0))
            if keepdims:
                kept.pop(0)
        else:
            index.append(kept.pop(0))
    return index


def reduce(
    x: Tensor, axes: Axes, keepdims: bool, reducer: Reducer, name: str,
    f: Callable[[PrimExpr, list[ExprLike]], PrimExpr] | None = None, attrs: Attrs | None = None,
) -> Tensor:  # fmt: skip
    """Reduce f(element, its indices) over `axes`; `attrs` become annotations of the block."""
    shape = dims(x.shape)
    over = [te.reduce_axis((0, shape[a]), f"k{a}") for a in axes]
    result = reduced_shape(shape, axes, keepdims)

    def compute(*out: PrimExpr) -> PrimExpr:
        index = full_index(out, over, x.ndim, axes, keepdims)
        return reducer(x(*index) if f is None else f(x(*index), index), axis=over)

    return te.compute(dims(result), compute, name=name, attrs=attrs, varargs_names=axis_names(len(result)))


def sum(x: Tensor, axis: Axes | int | None = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    return reduce(x, normal_axes(x, axis), keepdims, te.sum, f"{_plain(x)}_red")


def sum_abs(x: Tensor, axis: Axes | int | None = None, keepdims: bool = False) -> Tensor:
    """Sums of absolute values, which are no tensor of their own."""
    return reduce(x, normal_axes(x, axis), keepdims, te.sum, f"{_plain(x)}_red", lambda v, _: te.abs(v))


def sum_squares(x: Tensor, axis: Axes | int | None = None, keepdims: bool = False) -> Tensor:
    """Sums of squares, which are no tensor of their own."""
    return reduce(x, normal_axes(x, axis), keepdims, te.sum, f"{_plain(x)}_red", lambda v, _: v * v)


def prod(x: Tensor, axis: Axes | int | None = None, keepdims: bool = False) -> Tensor:
    return reduce(x, normal_axes(x, axis), keepdims, te.prod, f"{_plain(x)}_red")


def max(  # noqa: A001
    x: Tensor, axis: Axes | int | None = None, keepdims: bool = False, keep_nan: bool = False
) -> Tensor:
    """The largest elements; a NaN is passed over, or with `keep_nan` the result, as in NumPy."""
    return reduce(x, normal_axes(x, axis), keepdims, te.max, f"{_plain(x)}_red", attrs=nan_attrs(x, keep_nan))


def min(  # noqa: A001
    x: Tensor, axis: Axes | int | None = None, keepdims: bool = False, keep_nan: bool = False
) -> Tensor:
    """The smallest elements; of a NaN see `max`."""
    return reduce(x, normal_axes(x, axis), keepdims, te.min, f"{_plain(x)}_red", attrs=nan_attrs(x, keep_nan))


def nan_attrs(x: Tensor, keep_nan: bool) -> Attrs | None:
    """The annotation of a block whose maxima or minima keep a NaN, where the elements can be one."""
    return {KEEP_NAN: 1} if keep_nan and is_float(x.dtype) else None


def _plain(x: Tensor) -> str:
    return x.name.replace(".", "_")


def _count(x: Tensor, axes: Axes) -> int | PrimExpr:
    """How many elements are reduced, an expression where sizes are symbols."""
    shape = open_shape(x)
    return math.prod(shape[a] for a in axes)


def _divide(x: Tensor, count: int | PrimExpr, name: str = "T_divide") -> Tensor:
    names = axis_names(x.ndim)
    divisor = E.const(count, x.dtype) if isinstance(count, int) else E.cast(x.dtype, count)
    return te.compute(x.shape, lambda *i: x(*i) / divisor, name=name, varargs_names=names)


def mean(x: Tensor, axis: Axes | int | None = None, keepdims: bool = False) -> Tensor:
    axes = normal_axes(x, axis)
    return _divide(sum(x, axes, keepdims), _count(x, axes))


def variance(x: Tensor, axis: Axes | int | None = None, keepdims: bool = False) -> Tensor:
    """The mean squared distance from the mean (of the whole population), computed in two passes."""
    axis = normal_axes(x, axis)
    middle = mean(x, axis, True)

    def squared(value: PrimExpr, index: list[ExprLike]) -> PrimExpr:
        distance = value - middle(*(IntImm(0, "int64") if i in axis else v for i, v in enumerate(index)))
        return distance * distance

    return _divide(reduce(x, axis, keepdims, te.sum, f"{_plain(x)}_var_red", squared), _count(x, axis), "T_variance")


def _argument(
    x: Tensor, axis: int, keepdims: bool, better: type[E.CmpOp], worst: Callable[[str], PrimExpr], dtype: str, name: str
) -> Tensor:
    """The first position of the best value, or of NaN: a reduction of pairs (position, value)."""

    def combine(a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        first = te.any(E.compare(better, a[1], b[1]), te.all(E.compare(E.EQ, a[1], b[1]), E.compare(E.LT, a[0], b[0])))
        if is_float(x.dtype):
            first = te.any(first, E.compare(E.NE, a[1], a[1]))  # nothing is better than NaN
        # the identity stands at the last position or behind it, so that a real element of the same value wins
        return E.select(first, a[0], b[0]), E.select(first, a[1], b[1])

    axis = one_axis(x, axis)
    extent = open_shape(x)[axis]

    def identity(position: str, value: str) -> tuple[PrimExpr, PrimExpr]:
        last = extent - 1 if isinstance(extent, int) else np.iinfo(position).max
        return E.const(int(last), position), worst(value)

    reducer = te.comm_reducer(combine, identity, name=name)
    shape = dims(x.shape)
    k = te.reduce_axis((0, shape[axis]), f"k{axis}")
    result = dims(reduced_shape(shape, (axis,), keepdims))

    def compute(*out: PrimExpr) -> tuple[PrimExpr, ...]:
        index = full_index(out, [k], x.ndim, (axis,), keepdims)
        return reducer((E.cast(dtype, k.var), x(*index)), axis=k)

    names = axis_names(len(result))
    pairs = te.compute(result, compute, name=f"{_plain(x)}_red_temp", varargs_names=names)
    return te.compute(result, lambda *i: pairs[0](*i), name=f"{_plain(x)}_red", varargs_names=names)


def _worst(limit: Callable[[str], PrimExpr], of_floats: float) -> Callable[[str], PrimExpr]:
    """What no element is worse than: of floats an infinite value, which elements may be."""
    return lambda dtype: E.const(of_floats, dtype) if is_float(dtype) else limit(dtype)


def argmax(x: Tensor, axis: int, keepdims: bool = False, dtype: str = "int64") -> Tensor:
    """The position of the largest value along an axis, the first of equals; of NaN where there is one."""
    return _argument(x, axis, keepdims, E.GT, _worst(te.min_value, -math.inf), dtype, "argmax")


def argmin(x: Tensor, axis: int, keepdims: bool = False, dtype: str = "int64") -> Tensor:
    """The position of the smallest value along an axis, the first of equals; of NaN where there is one."""
    return _argument(x, axis, keepdims, E.LT, _worst(te.max_value, math.inf), dtype, "argmin")
