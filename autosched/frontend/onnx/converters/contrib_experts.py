"""Mixtures of experts of `com.microsoft`: each token goes through the few experts that its router prefers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.converters.nbits import WORD_BYTES, unpacked
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import plain, product_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem
from autosched.relax.op.nbits import BITS

ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {
    "relu": op.nn.relu, "gelu": op.nn.gelu, "silu": op.nn.silu, "identity": lambda x: x,
}  # fmt: skip


Layer = Callable[[Expr, Expr], Expr]  # (rows, the expert of each) -> rows
_ATTRIBUTES = (
    "k", "activation_type", "normalize_routing_weights", "swiglu_fusion", "swiglu_limit", "activation_alpha",
    "activation_beta",
)  # fmt: skip


@converter(DOMAIN + "MoE")
def mixture_of_experts(node: Node) -> Expr:
    """input [..., H], router_probs [tokens, E]; weights [E, out, in] of two or three layers, with a bias or none."""
    only(node, range(8), _ATTRIBUTES)
    return _mixture(node, [_layer(node, at) if node.has(at) else None for at in (2, 4, 6)], None)


@converter(DOMAIN + "QMoE")
def quantised_mixture_of_experts(node: Node) -> Expr:
    """The same of weights [E, out, in * bits / 8] with scales, which stay packed; router_weights [tokens, E]."""
    bits = ("expert_weight_bits", *(f"fc{i}_expert_weight_bits" for i in (1, 2, 3)))
    named = [n for n, v in (("quant_type", "int"), ("weights_prepacked", 0)) if node.attr(n, v) == v]
    only(node, range(15), (*_ATTRIBUTES, *bits, *named, "block_size"))
    layers = [_packed_layer(node, i) if node.has(2 + 3 * i) else None for i in range(3)]
    return _mixture(node, layers, node.input(14) if node.has(14) else None)


def _mixture(node: Node, layers: Sequence[Layer | None], weights: Expr | None) -> Expr:
    """Each token through its experts' layers; what these give is summed up by `weights`, or by what chose them."""
    x, shape = node.input(0), node.info(0).dims
    width, count = shape[-1], node.attr("k", 1)
    tokens = product_of(shape[:-1])
    chosen, shares = _routes(node, count, weights)
    rows = node.emit(op.reshape(x, ShapeExpr((tokens, 1, width))))
    rows = node.emit(op.broadcast_to(rows, ShapeExpr((tokens, count, width))))
    rows = node.emit(op.reshape(rows, ShapeExpr((plain(tokens * count), width))))
    first, second, third = layers
    if first is None or second is None:
        raise node.fail("a layer is missing")
    inner = _activated(node, first(rows, chosen), None if third is None else third(rows, chosen))
    apart = node.emit(op.reshape(second(inner, chosen), ShapeExpr((tokens, count, width))))
    weighed = node.emit(op.multiply(apart, op.reshape(shares, ShapeExpr((tokens, count, 1)))))
    return op.reshape(node.emit(op.sum(weighed, axis=(1,))), ShapeExpr(shape))


def _routes(node: Node, count: int, weights: Expr | None) -> tuple[Expr, Expr]:
    """(the experts of each token one after the other [tokens * k], their shares [tokens, k])."""
    scores = node.emit(op.nn.softmax(node.input(1), axis=-1))
    best = node.emit(op.topk(scores, k=count, axis=-1, ret_type="both", largest=True, dtype="int64"))
    shares, chosen = best.fields if isinstance(best, Tuple) else [node.emit(TupleGetItem(best, i)) for i in range(2)]
    if weights is not None:
        shares = node.emit(op.gather_elements(weights, chosen, axis=1))
    if node.attr("normalize_routing_weights", 0):
        shares = node.emit(op.divide(shares, op.sum(shares, axis=(1,), keepdims=True)))
    return node.emit(op.reshape(chosen, ShapeExpr((product_of(info_of(chosen).dims),)))), shares


def _layer(node: Node, at: int) -> Layer:
    """Each row times the matrix of its expert, which the input at `at` holds, its bias behind it."""
    weight = node.input(at)
    turned = weight.data.swapaxes(1, 2) if isinstance(weight, Constant) else None
    matrices = node.emit(op.permute_dims(weight, axes=[0, 2, 1])) if turned is None else _whole(turned)
    return lambda rows, chosen: _shifted(node, node.emit(op.grouped_matmul(rows, matrices, chosen)), at + 1, chosen)


def _shifted(node: Node, rows: Expr, bias: int, chosen: Expr) -> Expr:
    if not node.has(bias):
        return rows
    return node.emit(op.add(rows, node.emit(op.take(node.input(bias), chosen, axis=0))))


def _packed_layer(node: Node, index: int) -> Layer:
    """The same of packed weights: words of four bytes along the inputs stand one below the other."""
    at, dtype = 2 + 3 * index, node.info(0).dtype
    bits = node.attr(f"fc{index + 1}_expert_weight_bits") or node.attr("expert_weight_bits", 4)
    packed, scales = node.array(at), node.array(at + 1)
    if bits not in BITS or packed.dtype != np.uint8 or packed.ndim != 3:
        raise node.fail(f"weights {packed.dtype} {list(packed.shape)} of {bits} bits")
    count, out, width = packed.shape
    depth = width * 8 // bits
    block = node.attr("block_size", 0)
    block = block if block > 0 else depth
    blocks = depth // block
    if depth != blocks * block or scales.size != count * out * blocks:
        raise node.fail(f"scales {list(scales.shape)} of {depth} weights, block_size={block}")
    scales = scales.reshape(count, out, blocks)
    zeros = None
    if node.has(11 + index):
        given = node.array(11 + index)
        rows = unpacked(given, bits)
        zeros = rows[..., :blocks] if given.ndim == 3 else rows[:, :out, None]
        if zeros.shape != scales.shape:
            raise node.fail(f"zero points {list(given.shape)} for scales {list(scales.shape)}")
    if width % WORD_BYTES:
        packed = np.pad(packed, ((0, 0), (0, 0), (0, -width % WORD_BYTES)))
    words = packed.view("<u4")
    if words.shape[2] * 32 // bits != depth:
        node.require_small(4 * count * out * depth)
        real = unpacked(packed, bits)[..., :depth].astype(np.float32)
        low = np.float32(1 << bits - 1) if zeros is None else np.repeat(zeros, block, 2)
        matrices = _whole(((real - low) * np.repeat(scales, block, 2)).swapaxes(1, 2).astype(dtype))
        return lambda rows, chosen: _shifted(node, node.emit(op.grouped_matmul(rows, matrices, chosen)), at + 2, chosen)
    turned, factors = _whole(words.swapaxes(1, 2)), _whole(scales.swapaxes(1, 2))
    points = None if zeros is None else _whole(zeros.swapaxes(1, 2))

    def layer(rows: Expr, chosen: Expr) -> Expr:
        product = op.nn.grouped_matmul_nbits(rows, turned, factors, points, chosen, bits=bits)
        return _shifted(node, node.emit(product), at + 2, chosen)

    return layer


def _whole(x: np.ndarray) -> Constant:
    return Constant(np.ascontiguousarray(x))


def _activated(node: Node, first: Expr, third: Expr | None) -> Expr:
    """The first layer and its activation; gated by a third layer, or by the other half of the first."""
    kind = node.attr("activation_type", "relu")
    if kind != "swiglu":
        if kind not in ACTIVATIONS:
            raise node.fail(f"activation '{kind}' is not supported")
        value = node.emit(ACTIVATIONS[kind](first))
        return value if third is None else node.emit(op.multiply(value, third))
    fusion = node.attr("swiglu_fusion", 0)
    if fusion == 0 and third is not None:
        gate, linear = first, third
    elif fusion in (1, 2) and third is None:
        gate, linear = _halves(node, first, interleaved=fusion == 1)
    else:
        raise node.fail(f"swiglu_fusion={fusion} {'without' if third is None else 'with'} a third layer")
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
