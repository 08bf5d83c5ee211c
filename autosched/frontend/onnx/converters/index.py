"""Elements chosen by positions."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import are_same
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
    data, places = node.info(0).dims, node.info(1).dims[:-1]
    if not 0 <= batch_dims <= len(places) or not are_same(data[:batch_dims], places[:batch_dims]):
        raise node.fail(f"batch_dims {batch_dims}: data {list(data)}, indices {list(node.info(1).dims)}")
    dtype, rank = node.info(1).dtype, len(places) + 1
    if node.info(1).is_static:
        known = np.moveaxis(np.indices(node.shape(1)[:-1])[:batch_dims], 0, -1).astype(dtype)
        if isinstance(indices, Constant):
            return Constant(np.concatenate([known, indices.data], axis=-1))
        return node.emit(op.concat([Constant(known), indices], -1))
    own = [node.counted(places[d], d, rank) for d in range(batch_dims)]
    whole = [node.emit(op.broadcast_to(x, ShapeExpr((*places, 1)))) for x in own]
    if dtype != "int64":
        whole = [node.emit(op.astype(x, dtype)) for x in whole]
    return node.emit(op.concat([*whole, indices], -1))


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
