"""Matrix products."""

from __future__ import annotations

from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import factors
from autosched.relax import op
from autosched.relax.expr import Expr


@converter("MatMul")
def matmul(node: Node) -> Expr:
    return op.matmul(*factors(node.input(0), node.input(1), node.emit))


@converter("Gemm")
def gemm(node: Node) -> Expr:
    """alpha * A' B' + beta * C."""
    a, b, dtype = node.input(0), node.input(1), node.info(0).dtype
    if node.attr("transA", 0):
        a = node.emit(op.permute_dims(a))
    if node.attr("transB", 0):
        b = node.emit(op.permute_dims(b))
    product = node.emit(op.matmul(a, b))
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if alpha != 1.0:
        product = node.emit(op.multiply(product, constant(alpha, dtype)))
    if not node.has(2) or beta == 0.0:
        return product
    c = node.input(2)
    if beta != 1.0:
        c = node.emit(op.multiply(c, constant(beta, dtype)))
    return op.add(product, c)
