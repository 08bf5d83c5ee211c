"""Elements chosen by positions."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr


@converter("Gather")
def gather(node: Node) -> Expr:
    return op.take(node.input(0), node.input(1), axis=node.attr("axis", 0))


@converter("GatherElements")
def gather_elements(node: Node) -> Expr:
    return op.gather_elements(node.input(0), node.input(1), axis=node.attr("axis", 0))


@converter("GatherND")
def gather_nd(node: Node) -> Expr:
    if node.attr("batch_dims", 0):
        raise node.no_kernel("batch_dims is not supported")
    return op.gather_nd(node.input(0), node.input(1))


@converter("Compress")
def compress(node: Node) -> Expr:
    """The elements, or slices along an axis, where a condition holds that is known at import."""
    kept = np.flatnonzero(node.array(1))
    axis = node.attr("axis")
    if axis is None:
        flat = node.emit(op.reshape(node.input(0), ShapeExpr((-1,))))
        return op.take(flat, Constant(kept.astype(np.int64)), axis=0)
    return op.take(node.input(0), Constant(kept.astype(np.int64)), axis=axis)
