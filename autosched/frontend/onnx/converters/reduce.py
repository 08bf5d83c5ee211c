"""Reductions."""

from __future__ import annotations

from typing import Any

from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import CONVERTERS, converter
from autosched.relax import op
from autosched.relax.expr import Expr


def _axes(node: Node) -> tuple[int, ...] | None:
    """Axes from the attribute or the input; None is all of them, () is none."""
    if node.has(1):
        axes = node.integers(1)
    else:
        axes = tuple(node.attr("axes", ()))
    if not axes:
        return () if node.attr("noop_with_empty_axes", 0) else None
    return axes


def reduction(definition: Any, before: Any = None, after: Any = None) -> Any:
    """A converter: reduce before(x), then apply `after`."""

    def convert(node: Node) -> Expr:
        axes, x = _axes(node), node.input(0)
        value = node.emit(before(x)) if before else x
        if axes != ():
            value = node.emit(definition(value, axis=axes, keepdims=bool(node.attr("keepdims", 1))))
        return after(value) if after else value  # type: ignore[no-any-return]

    return convert


CONVERTERS.update(
    ReduceMean=reduction(op.mean),
    ReduceSum=reduction(op.sum),
    ReduceMax=reduction(op.max),
    ReduceMin=reduction(op.min),
    ReduceProd=reduction(op.prod),
    ReduceL1=reduction(op.sum, before=op.abs),
    ReduceL2=reduction(op.sum, before=lambda x: op.multiply(x, x), after=op.sqrt),
    ReduceSumSquare=reduction(op.sum, before=lambda x: op.multiply(x, x)),
    ReduceLogSum=reduction(op.sum, after=op.log),
)


@converter("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Expr:
    """max + log(sum(exp(x - max))), which does not overflow."""
    axes, x, keep = _axes(node), node.input(0), bool(node.attr("keepdims", 1))
    if axes == ():
        return x
    largest = node.emit(op.max(x, axis=axes, keepdims=True))
    rest = op.exp(op.subtract(x, largest))
    total = node.emit(op.add(largest, op.log(node.emit(op.sum(node.emit(rest), axis=axes, keepdims=True)))))
    return total if keep else op.squeeze(total, axis=axes)


def _argument(node: Node, definition: Any) -> Expr:
    """The position of the first, or with `select_last_index` the last, of the extreme elements."""
    x, axis, keep = node.input(0), node.attr("axis", 0), bool(node.attr("keepdims", 1))
    if not node.attr("select_last_index", 0):
        return definition(x, axis=axis, keepdims=keep)  # type: ignore[no-any-return]
    from_end = node.emit(definition(node.emit(op.flip(x, axis=axis)), axis=axis, keepdims=keep))
    return op.subtract(constant(node.shape(0)[axis] - 1, "int64"), from_end)


@converter("ArgMax")
def argmax(node: Node) -> Expr:
    return _argument(node, op.argmax)


@converter("ArgMin")
def argmin(node: Node) -> Expr:
    return _argument(node, op.argmin)
