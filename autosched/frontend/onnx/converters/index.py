"""Elements chosen by positions."""

from __future__ import annotations

from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


@converter("Gather")
def gather(node: Node) -> Expr:
    return op.take(node.input(0), node.input(1), axis=node.attr("axis", 0))


@converter("GatherElements")
def gather_elements(node: Node) -> Expr:
    return op.gather_elements(node.input(0), node.input(1), axis=node.attr("axis", 0))


@converter("GatherND")
def gather_nd(node: Node) -> Expr:
    if node.attr("batch_dims", 0):
        raise node.fail("batch_dims is not supported")
    return op.gather_nd(node.input(0), node.input(1))
