"""The k best, running sums, images of another size, RMS normalisation."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import is_at_least, sliced
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, TupleGetItem
from autosched.relax.struct_info import Dim


@converter("TopK")
def topk(node: Node) -> tuple[Expr, ...]:
    k = node.sizes_of(1)[0] if node.opset >= 10 else node.attr("k")
    if not isinstance(k, int):
        return _first(node, k)
    if k < 0:
        raise node.fail(f"the {k} best")
    if not k:
        none = tuple(0 if i == node.axis(node.attr("axis", -1)) else d for i, d in enumerate(node.shape(0)))
        return Constant(np.zeros(none, node.info(0).dtype)), Constant(np.zeros(none, np.int64))
    best = op.topk(
        node.input(0), k=int(k), axis=node.attr("axis", -1), largest=bool(node.attr("largest", 1)), dtype="int64"
    )
    both = node.emit(best)
    return TupleGetItem(both, 0), TupleGetItem(both, 1)


def _first(node: Node, k: Dim) -> tuple[Expr, ...]:
    """The best of all that are sorted, where how many is known in a call."""
    axis, largest = node.axis(node.attr("axis", -1)), bool(node.attr("largest", 1))
    whole = node.info(0).dims[axis]
    if isinstance(whole, int):
        both = node.emit(op.topk(node.input(0), k=whole, axis=axis, largest=largest, dtype="int64"))
        return tuple(sliced(node.emit(TupleGetItem(both, i)), axis, (0, k)) for i in (0, 1))
    if not is_at_least(whole, k):
        raise node.fail(f"the {k} best of a dimension '{whole}' whose size is not known")
    order = node.emit(op.argsort(node.input(0), axis=axis, descending=largest, dtype="int64"))
    first = node.emit(sliced(order, axis, (0, k)))
    return op.gather_elements(node.input(0), first, axis=axis), first


@converter("CumSum")
def cumsum(node: Node) -> Expr:
    return op.cumsum(node.input(0), **_running(node))


@converter("CumProd")
def cumprod(node: Node) -> Expr:
    return op.cumprod(node.input(0), **_running(node))


def _running(node: Node) -> dict[str, int]:
    flags = {name: bool(node.attr(name, 0)) for name in ("exclusive", "reverse")}
    return {"axis": int(node.number(1)), **flags}


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(node: Node) -> Expr:
    """x * rsqrt(mean(x²) + epsilon) * scale over the dimensions from `axis` on."""
    x, dtype = node.input(0), node.info(0).dtype
    axis = node.axis(node.attr("axis", -1))
    own = node.sizes_from(0, axis)
    axes = tuple(range(axis, axis + len(own)))
    if node.shape(1) == own:
        return op.nn.rms_norm(x, node.input(1), axes=axes, epsilon=node.attr("epsilon", 1e-5))
    square = node.emit(op.mean(node.emit(op.multiply(x, x)), axis=axes, keepdims=True))
    inverse = node.emit(op.rsqrt(op.add(square, constant(node.attr("epsilon", 1e-5), dtype))))
    return op.multiply(op.multiply(x, inverse), node.input(1))
