"""Reductions."""

from __future__ import annotations

from typing import Any

from autosched.frontend.onnx.node import Node
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


def _argument(node: Node, definition: Any) -> Expr:
    if node.attr("select_last_index", 0):
        raise node.fail("select_last_index=1 is not supported")
    return definition(node.input(0), axis=node.attr("axis", 0), keepdims=bool(node.attr("keepdims", 1)))  # type: ignore[no-any-return]


@converter("ArgMax")
def argmax(node: Node) -> Expr:
    return _argument(node, op.argmax)


@converter("ArgMin")
def argmin(node: Node) -> Expr:
    return _argument(node, op.argmin)
