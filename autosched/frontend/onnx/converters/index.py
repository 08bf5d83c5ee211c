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
    data, indices = node.input(0), node.input(1)
    if batch_dims := node.attr("batch_dims", 0):
        indices = _with_batches(node, indices, batch_dims)
    return op.gather_nd(data, indices)


def _with_batches(node: Node, indices: Expr, batch_dims: int) -> Expr:
    """Index vectors that begin with the position of their own batch."""
    if not node.info(0).is_static or not node.info(1).is_static:
        raise node.no_kernel("batches of open sizes")
    places = node.shape(1)[:-1]
    if not 0 <= batch_dims <= len(places) or node.shape(0)[:batch_dims] != places[:batch_dims]:
        raise node.fail(f"batch_dims {batch_dims}: data {list(node.shape(0))}, indices {list(node.shape(1))}")
    own = np.moveaxis(np.indices(places)[:batch_dims], 0, -1).astype(node.info(1).dtype)
    if isinstance(indices, Constant):
        return Constant(np.concatenate([own, indices.data], axis=-1))
    return node.emit(op.concat([Constant(own), indices], -1))


@converter("Compress")
def compress(node: Node) -> Expr:
    """The elements, or slices along an axis, where a condition holds that is known at import; else a library's."""
    if not isinstance(node.input(1), Constant):
        raise node.no_kernel("how much is kept follows from data")
    kept = np.flatnonzero(node.array(1))
    axis = node.attr("axis")
    if axis is None:
        flat = node.emit(op.reshape(node.input(0), ShapeExpr((-1,))))
        return op.take(flat, Constant(kept.astype(np.int64)), axis=0)
    return op.take(node.input(0), Constant(kept.astype(np.int64)), axis=axis)
