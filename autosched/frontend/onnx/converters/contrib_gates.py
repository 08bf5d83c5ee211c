"""Gates of `com.microsoft` around linear attention and experts, and the norms beside them."""

from __future__ import annotations

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.struct_info import Dim


def _parts(node: Node, x: Expr, size: Dim) -> Expr:
    """[..., N * size] as [..., N, size]"""
    *outer, width = info_of(x).dims
    if not isinstance(width, int) or not isinstance(size, int) or size < 1 or width % size:
        raise node.fail(f"parts of {size} of {width} elements")
    return node.emit(op.reshape(x, ShapeExpr((*outer, width // size, size))))


def _float(node: Node, x: Expr) -> Expr:
    return x if info_of(x).dtype == "float32" else node.emit(op.astype(x, "float32"))


@converter(DOMAIN + "GatedRMSNorm")
def gated_rms_norm(node: Node) -> Expr:
    """Parts of X as long as the scale, normalised, times the activated gate; in float32."""
    only(node, range(3), ["activation", "epsilon"])
    kind, dtype, shape = node.attr("activation", "silu"), node.info(0).dtype, node.info(0).shape
    activations = {"silu": op.nn.silu, "swish": op.nn.silu, "sigmoid": op.sigmoid}
    if kind not in activations:
        raise node.fail(f"activation '{kind}' is not supported")
    x = _parts(node, _float(node, node.input(0)), node.info(1).dims[0])
    scale, axis = _float(node, node.input(1)), info_of(x).ndim - 1
    normed = node.emit(op.nn.rms_norm(x, scale, axes=(axis,), epsilon=node.attr("epsilon", 1e-5)))
    gate = node.emit(activations[kind](_float(node, node.input(2))))
    result = node.emit(op.multiply(node.emit(op.reshape(normed, shape)), gate))
    return result if dtype == "float32" else op.astype(result, dtype)


@converter(DOMAIN + "BranchwiseRMSNorm")
def branchwise_rms_norm(node: Node) -> Expr:
    """Each of several branches normalised by itself, [..., branches, H] or [..., branches * H]; in float32."""
    only(node, range(2), ["num_branches", "epsilon"])
    branches, dtype, shape = node.attr("num_branches", 0), node.info(0).dtype, node.info(0).shape
    x = _float(node, node.input(0))
    if branches:
        (width,) = node.sizes_from(0, node.info(0).ndim - 1)
        x = _parts(node, x, width // branches)
    mean = node.emit(op.mean(node.emit(op.square(x)), axis=(-1,), keepdims=True))
    result = node.emit(op.multiply(x, op.rsqrt(op.add(mean, constant(node.attr("epsilon", 1e-6), "float32")))))
    if node.has(1):
        scale, own = _float(node, node.input(1)), info_of(x).dims[-2:]
        if info_of(scale).ndim == 1 and info_of(scale).dims != own[-1:]:
            scale = node.emit(op.reshape(scale, ShapeExpr(own)))
        result = node.emit(op.multiply(result, scale))
    result = node.emit(op.reshape(result, shape))
    return result if dtype == "float32" else op.astype(result, dtype)


@converter(DOMAIN + "GatedAdd")
def gated_add(node: Node) -> Expr:
    """X + Y * gate"""
    only(node, range(3))
    return op.add(node.input(0), node.emit(op.multiply(node.input(1), node.input(2))))


@converter(DOMAIN + "ScaledSiLU")
def scaled_silu(node: Node) -> Expr:
    """silu(alpha * X), with an input in place of alpha where there is one."""
    only(node, range(2), ["alpha"])
    dtype = node.info(0).dtype
    factor = _float(node, node.input(1)) if node.has(1) else constant(node.attr("alpha", 1.0), "float32")
    scaled = node.emit(op.multiply(_float(node, node.input(0)), op.reshape(factor, ShapeExpr(()))))
    return op.nn.silu(scaled if dtype == "float32" else node.emit(op.astype(scaled, dtype)))


@converter(DOMAIN + "LinearAttentionGate")
def linear_attention_gate(node: Node) -> tuple[Expr, ...]:
    """decay_scale * softplus(a + dt_bias), and sigmoid(b) where that is given; in float32."""
    only(node, range(4))
    dtype = node.info(0).dtype
    grown = node.emit(op.nn.softplus(node.emit(op.add(_float(node, node.input(0)), node.input(1)))))
    decay = node.emit(op.multiply(grown, node.input(2)))
    rates = [node.emit(op.sigmoid(_float(node, node.input(3))))] if node.num_outputs > 1 else []
    return tuple(x if dtype == "float32" else op.astype(x, dtype) for x in (decay, *rates))
