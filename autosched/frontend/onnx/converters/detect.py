"""Boxes of detectors that are kept beside better ones."""

from __future__ import annotations

import math

import numpy as np

from autosched.frontend.onnx.functions import OWN_DOMAIN
from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem
from autosched.topi.vision import kept_rows


@converter(f"{OWN_DOMAIN}.KeptBoxes")
def kept_boxes(node: Node) -> tuple[Expr, Expr]:
    """The rows of a NonMaxSuppression, the best of each image and class first, and how many they are."""

    def number(index: int, default: float, dtype: str) -> Expr:
        if not node.has(index):
            return Constant(np.full(1, default, dtype))
        return node.emit(op.reshape(node.input(index), ShapeExpr((1,))))

    if {node.info(i).dtype for i in (0, 1)} != {"float32"}:
        raise node.fail(f"boxes of {node.info(0).dtype}, scores of {node.info(1).dtype}", hint="float32 both")
    count, overlap, least = number(2, 0, "int64"), number(3, 0, "float32"), number(4, math.nan, "float32")
    most = int(count.data[0]) if isinstance(count, Constant) else 0
    if node.is_empty(1) or (isinstance(count, Constant) and most <= 0):
        return Constant(np.zeros((0, 3), np.int64)), Constant(np.zeros(1, np.int64))
    boxes = _corners(node, bool(node.attr("center_point_box", 0)))
    both = node.emit(node.call_te(kept_rows, boxes, node.input(1), count, overlap, least, most))
    return TupleGetItem(both, 0), TupleGetItem(both, 1)


def _corners(node: Node, has_centre: bool) -> Expr:
    """[N, B, 4]: y and x of both corners, the lower ones first."""
    pairs = node.emit(op.reshape(node.input(0), ShapeExpr((*node.info(0).dims[:2], 2, 2))))
    first, second = (node.emit(op.take(pairs, Constant(np.asarray(i)), axis=2)) for i in (0, 1))
    if has_centre:  # x, y, width, height
        half = node.emit(op.divide(second, constant(2, "float32")))
        low, high = (node.emit(op.flip(f(first, half), axis=2)) for f in (op.subtract, op.add))
    else:
        low, high = (node.emit(f(first, second)) for f in (op.minimum, op.maximum))
    return node.emit(op.concat(Tuple((low, high)), axis=2))
