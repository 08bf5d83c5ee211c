"""`GatedDeltaNet` of `com.microsoft`: linear attention by ONNX's own operator, its gates and norms before it."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import plain
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.struct_info import Dim

SINCE = 27  # opset of LinearAttention
NORM_EPSILON = 1e-6
_ATTRIBUTES = ("chunk_size", "beta_activation", "gate_activation", "scale", "qk_l2_norm", "gate_lower_bound",
               "update_rule")  # fmt: skip


@converter(DOMAIN + "GatedDeltaNet")
def gated_delta_net(node: Node) -> tuple[Expr, ...]:
    """Tokens [B, S, heads, width], or [B * S, heads, width] of sequences of one length; states [B, H, V, K]."""
    only(node, (0, 1, 2, 4, 5, 6, 7, 8), _ATTRIBUTES)
    q, k, v = _query_key_value(node)
    batch, length, _, width = info_of(q).dims
    *_, heads, size = info_of(v).dims
    rule = node.attr("update_rule", "gated_delta")
    inputs = {"query": q, "key": k, "value": v}
    if node.has(6):
        inputs["past"] = node.emit(op.permute_dims(node.input(6), axes=[0, 1, 3, 2]))
    if "gated" in rule:
        inputs["decay"] = _decay(node, (batch, length, heads))
    if "delta" in rule:
        beta = node.emit(op.reshape(_real(node, node.input(5)), ShapeExpr((batch, length, heads))))
        inputs["beta"] = node.emit(op.sigmoid(beta)) if node.attr("beta_activation", "none") == "sigmoid" else beta
    flat = [
        x
        if info_of(x).ndim < 4 or name == "past"
        else node.emit(op.reshape(x, ShapeExpr((batch, length, plain(_width(x))))))
        for name, x in inputs.items()
    ]
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": rule, "scale": node.attr("scale", 0.0)}
    result, state = node.import_subgraph(_graph(list(inputs), attrs), flat, f"{node.name}/attention/", SINCE)
    dtype = node.info(0).dtype
    shape = (batch, length, heads, size) if _lead(node) == 2 else (plain(batch * length), heads, size)
    out = node.emit(op.reshape(result, ShapeExpr(shape)))
    out = out if dtype == "float32" else node.emit(op.astype(out, dtype))
    return out, op.permute_dims(state, axes=[0, 1, 3, 2])


def _lead(node: Node) -> int:
    """How many dimensions count tokens: 2 where sequences are apart."""
    return node.info(0).ndim - (2 if node.has(1) else 1)


def _width(x: Expr) -> Dim:
    *_, heads, size = info_of(x).dims
    return heads * size


def _real(node: Node, x: Expr) -> Expr:
    return x if info_of(x).dtype == "float32" else node.emit(op.astype(x, "float32"))


def _query_key_value(node: Node) -> list[Expr]:
    """[B, S, heads, width] each, as many heads as the values have, in float32."""
    if node.has(1) != node.has(2) or not (node.has(1) or node.has(6)):
        raise node.fail("key and value have to be there, or both in the query, and a state then")
    if node.has(1):
        parts = [_real(node, node.input(i)) for i in range(3)]
    else:
        heads, size, width = node.sizes_from(6, 1)
        (total,) = node.sizes_from(0, node.info(0).ndim - 1)
        keys = (total - heads * size) // (2 * width)
        if keys < 1 or 2 * keys * width + heads * size != total:
            raise node.fail(f"{total} elements of a token for states {list(node.info(6).dims)}")
        outer, parts, ends = node.info(0).dims[:-1], [], np.cumsum([0, keys * width, keys * width, heads * size])
        for i, shape in enumerate(((keys, width), (keys, width), (heads, size))):
            cut = {"begin": (int(ends[i]),), "end": (int(ends[i + 1]),)}
            part = node.emit(op.strided_slice(_real(node, node.input(0)), axes=(-1,), strides=(1,), **cut))
            parts.append(node.emit(op.reshape(part, ShapeExpr((*outer, *shape)))))
    if info_of(parts[0]).ndim == 3:
        if not node.has(6):
            raise node.fail("how many sequences there are has to be known by their states")
        batch, tokens = node.info(6).dims[0], info_of(parts[0]).dims[0]
        lead = (batch, plain(tokens // batch))
        parts = [node.emit(op.reshape(x, ShapeExpr((*lead, *info_of(x).dims[1:])))) for x in parts]
    counts = [info_of(part).dims[2] for part in parts]
    own, wanted = counts[::2]
    if not isinstance(wanted, int) or not isinstance(own, int) or wanted % own or counts[1] != own:
        raise node.fail(f"{own} heads of queries for {wanted} of values")
    if node.attr("qk_l2_norm", 0):
        parts[:2] = [_normalised(node, x) for x in parts[:2]]
    shared = wanted // own
    return [*(node.emit(op.repeat(x, shared, axis=2)) if shared > 1 else x for x in parts[:2]), parts[2]]


def _normalised(node: Node, x: Expr) -> Expr:
    square = node.emit(op.sum(node.emit(op.square(x)), axis=(-1,), keepdims=True))
    return node.emit(op.multiply(x, op.rsqrt(op.add(square, constant(NORM_EPSILON, "float32")))))


def _decay(node: Node, shape: tuple[Dim, Dim, Dim]) -> Expr:
    """The logarithm of what a state keeps, [B, S, H] or [B, S, H * K]."""
    dims = node.info(4).dims
    is_wide = len(dims) == _lead(node) + 2
    decay = node.emit(op.reshape(_real(node, node.input(4)), ShapeExpr((*shape, dims[-1] if is_wide else 1))))
    kind = node.attr("gate_activation", "none")
    if kind not in ("none", "softplus", "qwen", "sigmoid", "kda"):
        raise node.fail(f"gate_activation '{kind}'")
    if kind != "none":
        heads = shape[2]
        rate = node.emit(op.reshape(node.emit(op.exp(node.input(7))), ShapeExpr((heads, 1))))
        if node.has(8):
            (count,) = (int(np.prod(node.shape(8))),)
            width = count // heads if isinstance(heads, int) else 1
            decay = node.emit(op.add(decay, node.emit(op.reshape(node.input(8), ShapeExpr((heads, width))))))
        if kind in ("softplus", "qwen"):
            decay = node.emit(op.negative(node.emit(op.multiply(rate, node.emit(op.nn.softplus(decay))))))
        else:
            bounded = node.emit(op.sigmoid(node.emit(op.multiply(rate, decay))))
            decay = node.emit(op.multiply(bounded, constant(node.attr("gate_lower_bound", -5.0), "float32")))
    return node.emit(op.reshape(decay, ShapeExpr((shape[0], shape[1], plain(_width(decay))))))


def _graph(given: list[str], attrs: dict[str, object]) -> object:
    """A graph of one node, LinearAttention, whose inputs are called so."""
    from onnx import TensorProto, helper

    names = [name if name in given else "" for name in ("query", "key", "value", "past", "decay", "beta")]
    call = helper.make_node("LinearAttention", names, ["result", "state"], **attrs)
    values = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in side]
        for side in (given, ("result", "state"))
    ]
    return helper.make_graph([call], "attention", *values)
