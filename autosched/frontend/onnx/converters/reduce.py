"""Reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import CONVERTERS, converter
from autosched.frontend.size_arithmetic import plain
from autosched.relax import op
from autosched.relax.expr import Constant, Expr
from autosched.tir.dtypes import is_float, is_int


def _axes(node: Node) -> tuple[int, ...] | None:
    """Axes from the attribute or the input; None is all of them, () is none."""
    if node.has(1):
        axes = node.integers(1)
    else:
        axes = tuple(node.attr("axes", ()))
    if not axes:
        return () if node.attr("noop_with_empty_axes", 0) else None
    return axes


def _lowest(dtype: np.dtype) -> float:
    return False if dtype.kind == "b" else -np.inf if is_float(str(dtype)) else np.iinfo(dtype).min


def _highest(dtype: np.dtype) -> float:
    return True if dtype.kind == "b" else np.inf if is_float(str(dtype)) else np.iinfo(dtype).max


def _of_nothing(node: Node, axes: tuple[int, ...] | None, value: object) -> Constant:
    """The result of a reduction over dimensions without elements: its neutral element everywhere."""
    shape, dtype, keep = node.shape(0), np.dtype(node.info(0).dtype), node.attr("keepdims", 1)
    over = {node.axis(a) for a in range(len(shape)) if axes is None} or {node.axis(a) for a in axes or ()}
    sizes = [1 if i in over else n for i, n in enumerate(shape) if keep or i not in over]
    return Constant(np.full(sizes, value(dtype) if callable(value) else value, dtype))


def reduction(
    definition: Callable[..., Expr],
    of_one: Callable[..., Expr] | None = None,
    after: Callable[..., Expr] | None = None,
    nothing: object = 0,
) -> Callable[[Node], Expr]:
    """A converter: reduce x, then apply `after`; `nothing` is the result where there are no elements.

    of_one  what the reduction is of one element, which is not reduced: itself where it is not given
    """

    def convert(node: Node) -> Expr:
        axes, x = _axes(node), node.input(0)
        if axes != () and node.is_empty(0):
            return _of_nothing(node, axes, nothing)
        dtype = node.info(0).dtype
        if dtype == "bool" and axes != ():  # any and all
            x = node.emit(op.astype(x, "uint8"))
        if axes == ():
            value = node.emit(of_one(x)) if of_one else x
        else:
            value = node.emit(definition(x, axis=axes, keepdims=bool(node.attr("keepdims", 1))))
        value = after(value) if after else value
        return op.astype(value, "bool") if dtype == "bool" and axes != () else value

    return convert


_mean = reduction(op.mean, nothing=np.nan)


@converter("ReduceMean")
def reduce_mean(node: Node) -> Expr:
    """The mean; that of integers is the quotient of their sum, without what is behind the point."""
    dtype, axes, dims = node.info(0).dtype, _axes(node), node.info(0).dims
    if not is_int(dtype) or dtype in ("bool", "uint64") or axes == () or node.is_empty(0):
        return _mean(node)
    over = range(len(dims)) if axes is None else [node.axis(a) for a in axes]
    wide = node.emit(op.astype(node.input(0), "int64"))
    total = node.emit(op.sum(wide, axis=tuple(over), keepdims=True))
    count = node.counted(1, 0, 1, first=plain(math.prod(dims[a] for a in over)))
    size = node.emit(op.floor_divide(node.emit(op.abs(total)), count))
    mean = op.where(op.less(total, constant(0, "int64")), op.negative(size), size)
    if not node.attr("keepdims", 1):
        mean = op.squeeze(node.emit(mean), axis=tuple(over))
    return op.astype(node.emit(mean), dtype)


CONVERTERS.update(
    ReduceSum=reduction(op.sum),
    ReduceMax=reduction(partial(op.max, keep_nan=True), nothing=_lowest),
    ReduceMin=reduction(partial(op.min, keep_nan=True), nothing=_highest),
    ReduceProd=reduction(op.prod, nothing=1),
    ReduceL1=reduction(op.sum_abs, op.abs),
    ReduceL2=reduction(op.sum_squares, op.square, op.sqrt),
    ReduceSumSquare=reduction(op.sum_squares, op.square),
    ReduceLogSum=reduction(op.sum, after=op.log, nothing=-np.inf),
)


@converter("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Expr:
    """max + log(sum(exp(x - max))), which does not overflow; where the largest is infinite, log(sum(exp(x)))."""
    axes, x, keep = _axes(node), node.input(0), bool(node.attr("keepdims", 1))
    if axes == ():
        return x
    if node.is_empty(0):
        return _of_nothing(node, axes, -np.inf)
    largest = node.emit(op.max(x, axis=axes, keepdims=True))
    nothing = constant(0, node.info(0).dtype)
    largest = node.emit(op.where(node.emit(op.isfinite(largest)), largest, nothing))
    rest = op.exp(op.subtract(x, largest))
    total = node.emit(op.add(largest, op.log(node.emit(op.sum(node.emit(rest), axis=axes, keepdims=True)))))
    return total if keep else op.squeeze(total, axis=axes)


def _argument(node: Node, definition: Callable[..., Expr]) -> Expr:
    """The position of the first, or with `select_last_index` the last, of the extreme elements."""
    x, axis, keep = node.input(0), node.attr("axis", 0), bool(node.attr("keepdims", 1))
    if not node.attr("select_last_index", 0):
        return definition(x, axis=axis, keepdims=keep)  # type: ignore[no-any-return]
    from_end = node.emit(definition(node.emit(op.flip(x, axis=axis)), axis=axis, keepdims=keep))
    last = node.counted(1, 0, 1, first=plain(node.info(0).dims[axis] - 1))
    if not info_of(from_end).ndim:
        last = node.emit(op.squeeze(last))
    return op.subtract(last, from_end)


@converter("ArgMax")
def argmax(node: Node) -> Expr:
    return _argument(node, op.argmax)


@converter("ArgMin")
def argmin(node: Node) -> Expr:
    return _argument(node, op.argmin)
