"""Sorting, the k best, running sums: each element's place is counted, which is quadratic in the length and parallel."""

from __future__ import annotations

from collections.abc import Callable

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.topi.shapes import compute_over, dims, normal_axes


def _at(index: tuple[PrimExpr, ...], axis: int, value: ExprLike) -> tuple[ExprLike, ...]:
    return (*index[:axis], value, *index[axis + 1 :])


def precedes(first: PrimExpr, second: PrimExpr, descending: bool, equal: ExprLike) -> PrimExpr:
    """Whether an element stands before another in order, and `equal` where neither is greater; NaN is the greatest."""
    before = E.compare(E.GT if descending else E.LT, first, second)
    same = E.compare(E.EQ, first, second)
    if is_float(first.dtype):
        last, other = (first, second) if descending else (second, first)
        before = te.any(before, te.all(E.compare(E.NE, last, last), E.compare(E.EQ, other, other)))
        same = te.any(same, te.all(E.compare(E.NE, second, second), E.compare(E.NE, first, first)))
    return te.any(before, te.all(same, equal))


def argsort(x: Tensor, axis: int, descending: bool, dtype: str, count: int | None = None) -> Tensor:
    """Positions of the elements along `axis` in order, equals as they stand; only the first `count`.

    The rank of an element is the number of those before it; position r is that of the element with rank r. NaN is
    greater than all numbers.
    """
    extent = dims(x.shape)[axis]
    j = te.reduce_axis((0, extent), "j")

    def rank(*i: PrimExpr) -> PrimExpr:
        mine, other = x(*i), x(*_at(i, axis, j))
        is_before = precedes(other, mine, descending, E.compare(E.LT, j.var, i[axis]))
        return te.sum(E.select(is_before, E.const(1, dtype), E.const(0, dtype)), axis=j)

    ranks = compute_over(x.shape, rank, "T_rank")
    k = te.reduce_axis((0, extent), "k")

    def position(*i: PrimExpr) -> PrimExpr:
        found = E.compare(E.EQ, ranks(*_at(i, axis, k)), E.cast(dtype, i[axis]))
        return te.sum(E.select(found, E.cast(dtype, k.var), E.const(0, dtype)), axis=k)

    shape = [*x.shape]
    shape[axis] = extent if count is None else E.const(count, extent.dtype)
    return compute_over(shape, position, "T_argsort")


def take_along(x: Tensor, positions: Tensor, axis: int) -> Tensor:
    """x at the positions along an axis."""
    return compute_over(positions.shape, lambda *i: x(*_at(i, axis, E.cast("int64", positions(*i)))), "T_sorted")


def cumsum(x: Tensor, axis: int, exclusive: bool, reverse: bool = False) -> Tensor:
    """Sums of the elements up to each along `axis`, or from it on where `reverse`, itself included or not."""
    return _running(te.sum, 0, x, axis, exclusive, reverse, "T_cumsum")


def cumprod(x: Tensor, axis: int, exclusive: bool, reverse: bool = False) -> Tensor:
    """Products of the elements up to each along `axis`, or from it on where `reverse`, itself included or not."""
    return _running(te.prod, 1, x, axis, exclusive, reverse, "T_cumprod")


def _running(
    reduce: Callable[..., PrimExpr], identity: int, x: Tensor, axis: int, exclusive: bool, reverse: bool, name: str
) -> Tensor:
    """A reduction over the elements before each one, or behind it, as `templates.scan_form` finds it."""
    k = te.reduce_axis((0, dims(x.shape)[axis]), "k")
    kind = (E.GT if exclusive else E.GE) if reverse else E.LT if exclusive else E.LE

    def element(*i: PrimExpr) -> PrimExpr:
        value = E.select(E.compare(kind, k.var, i[axis]), x(*_at(i, axis, k)), E.const(identity, x.dtype))
        return reduce(value, axis=k)

    return compute_over(x.shape, element, name)


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The elements along an axis in order; NaN is greater than all numbers."""
    (place,) = normal_axes(data, axis)
    return take_along(data, argsort(data, place, not is_ascend, "int32"), place)
