"""Matrix products."""

from __future__ import annotations

from itertools import combinations

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.packed import BITS, PackedWeight
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import factors
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr

MOST_ROWS = 4  # of a determinant whose products are written out


def _by_packed(node: Node, x: Expr, is_turned: bool) -> Expr | None:
    """The product of rows and a second input of packed integers, or its transpose; None where it is none."""
    weight = node.inputs[1]
    if not isinstance(weight, PackedWeight) or weight.is_turned != is_turned:
        return None
    if (info := info_of(x)).ndim < 2 or info.dtype != weight.dtype:
        return None
    return op.nn.matmul_nbits(x, weight.words, weight.scales, weight.zeros, bits=BITS, block=weight.block)


@converter("MatMul")
def matmul(node: Node) -> Expr:
    if (product := _by_packed(node, node.input(0), is_turned=False)) is not None:
        return product
    return op.matmul(*factors(node.input(0), node.input(1), node.emit))


@converter("Gemm")
def gemm(node: Node) -> Expr:
    """alpha * A' B' + beta * C."""
    a, dtype, turns = node.input(0), node.info(0).dtype, bool(node.attr("transB", 0))
    if node.attr("transA", 0):
        a = node.emit(op.permute_dims(a))
    if (packed := _by_packed(node, a, turns)) is not None:
        product = node.emit(packed)
    else:
        b = node.emit(op.permute_dims(node.input(1))) if turns else node.input(1)
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


@converter("Det")
def det(node: Node) -> Expr:
    """Determinants of matrices of few rows, by Laplace's expansion; a library factorises larger ones."""
    (*lead, rows, columns), dtype = node.info(0).dims, node.info(0).dtype
    if rows != columns or not isinstance(rows, int) or not 0 < rows <= MOST_ROWS:
        raise node.no_kernel(f"of {rows} rows and {columns} columns")
    inner = dtype if dtype in ("float32", "float64") else "float32"
    first = len(lead)

    def element(i: int, j: int) -> Expr:
        cut = op.strided_slice(
            node.input(0), axes=(first, first + 1), begin=(i, j), end=(i + 1, j + 1), strides=(1, 1)
        )  # fmt: skip
        return node.emit(op.astype(node.emit(cut), inner))

    minors: dict[tuple[int, ...], Expr] = {(j,): element(rows - 1, j) for j in range(rows)}  # of rows from the last up
    for i in range(rows - 2, -1, -1):
        row = [element(i, j) for j in range(rows)]
        larger: dict[tuple[int, ...], Expr] = {}
        for chosen in combinations(range(rows), rows - i):
            total = node.emit(op.multiply(row[chosen[0]], minors[chosen[1:]]))
            for k in range(1, len(chosen)):
                term = node.emit(op.multiply(row[chosen[k]], minors[chosen[:k] + chosen[k + 1 :]]))
                total = node.emit(op.subtract(total, term) if k % 2 else op.add(total, term))
            larger[chosen] = total
        minors = larger
    found = node.emit(op.reshape(minors[tuple(range(rows))], ShapeExpr(tuple(lead))))
    return op.astype(found, dtype)
