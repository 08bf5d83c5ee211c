"""Mixtures of experts of `com.microsoft`: each token goes through the few experts that its router prefers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import plain, product_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem

ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {
    "relu": op.nn.relu, "gelu": op.nn.gelu, "silu": op.nn.silu, "identity": lambda x: x,
}  # fmt: skip


@converter(DOMAIN + "MoE")
def mixture_of_experts(node: Node) -> Expr:
    """input [..., H], router_probs [tokens, E]; weights [E, out, in] of two or three layers, with a bias or none."""
    attrs = ("k", "activation_type", "normalize_routing_weights", "swiglu_fusion", "swiglu_limit")
    only(node, range(8), (*attrs, "activation_alpha", "activation_beta"))
    x, shape = node.input(0), node.info(0).dims
    width, count = shape[-1], node.attr("k", 1)
    tokens = product_of(shape[:-1])
    chosen, shares = _routes(node, count)
    rows = node.emit(op.reshape(x, ShapeExpr((tokens, 1, width))))
    rows = node.emit(op.broadcast_to(rows, ShapeExpr((tokens, count, width))))
    rows = node.emit(op.reshape(rows, ShapeExpr((plain(tokens * count), width))))
    inner = _activated(node, rows, chosen)
    out = _expert_layer(node, inner, chosen, 4)
    apart = node.emit(op.reshape(out, ShapeExpr((tokens, count, width))))
    weighed = node.emit(op.multiply(apart, op.reshape(shares, ShapeExpr((tokens, count, 1)))))
    return op.reshape(node.emit(op.sum(weighed, axis=(1,))), ShapeExpr(shape))


def _routes(node: Node, count: int) -> tuple[Expr, Expr]:
    """(the experts of each token one after the other [tokens * k], their shares [tokens, k])."""
    scores = node.emit(op.nn.softmax(node.input(1), axis=-1))
    best = node.emit(op.topk(scores, k=count, axis=-1, ret_type="both", largest=True, dtype="int64"))
    shares, chosen = best.fields if isinstance(best, Tuple) else [node.emit(TupleGetItem(best, i)) for i in range(2)]
    if node.attr("normalize_routing_weights", 0):
        shares = node.emit(op.divide(shares, op.sum(shares, axis=(1,), keepdims=True)))
    return node.emit(op.reshape(chosen, ShapeExpr((product_of(info_of(chosen).dims),)))), shares


def _expert_layer(node: Node, rows: Expr, chosen: Expr, at: int) -> Expr:
    """Each row times the matrix of its expert, which the input at `at` holds, its bias behind it."""
    weight = node.input(at)
    turned = weight.data.swapaxes(1, 2) if isinstance(weight, Constant) else None
    matrices = node.emit(op.permute_dims(weight, axes=[0, 2, 1])) if turned is None else _whole(turned)
    product = node.emit(op.grouped_matmul(rows, matrices, chosen))
    if not node.has(at + 1):
        return product
    return node.emit(op.add(product, node.emit(op.take(node.input(at + 1), chosen, axis=0))))


def _whole(x: np.ndarray) -> Constant:
    return Constant(np.ascontiguousarray(x))


def _activated(node: Node, rows: Expr, chosen: Expr) -> Expr:
    """The first layer and its activation; gated by a third layer, or by the other half of the first."""
    kind, first = node.attr("activation_type", "relu"), _expert_layer(node, rows, chosen, 2)
    if kind != "swiglu":
        if kind not in ACTIVATIONS:
            raise node.fail(f"activation '{kind}' is not supported")
        value = node.emit(ACTIVATIONS[kind](first))
        return node.emit(op.multiply(value, _expert_layer(node, rows, chosen, 6))) if node.has(6) else value
    fusion = node.attr("swiglu_fusion", 0)
    if fusion == 0 and node.has(6):
        gate, linear = first, _expert_layer(node, rows, chosen, 6)
    elif fusion in (1, 2) and not node.has(6):
        gate, linear = _halves(node, first, interleaved=fusion == 1)
    else:
        raise node.fail(f"swiglu_fusion={fusion} {'with' if node.has(6) else 'without'} a third layer")
    dtype, limit = info_of(first).dtype, node.attr("swiglu_limit")
    if limit is not None:
        gate = node.emit(op.minimum(gate, constant(limit, dtype)))
        linear = node.emit(op.clip(linear, -limit, limit))
    scaled = node.emit(op.multiply(gate, constant(node.attr("activation_alpha", 1.0), dtype)))
    opened = node.emit(op.multiply(gate, op.sigmoid(scaled)))
    return node.emit(op.multiply(opened, op.add(linear, constant(node.attr("activation_beta", 0.0), dtype))))


def _halves(node: Node, x: Expr, interleaved: bool) -> list[Expr]:
    """The gate's elements and the others, [rows, I] each, of [rows, 2 * I]."""
    rows, width = info_of(x).dims
    if not isinstance(width, int) or width % 2:
        raise node.fail(f"a gate and what it opens of {width} elements")
    pairs = (width // 2, 2) if interleaved else (2, width // 2)
    apart = node.emit(op.reshape(x, ShapeExpr((rows, *pairs))))
    axis = 2 if interleaved else 1
    cuts = (op.strided_slice(apart, axes=(axis,), begin=(i,), end=(i + 1,), strides=(1,)) for i in range(2))
    return [node.emit(op.reshape(node.emit(cut), ShapeExpr((rows, width // 2)))) for cut in cuts]
