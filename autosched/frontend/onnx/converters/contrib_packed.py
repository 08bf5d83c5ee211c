"""Attention of `com.microsoft` over sequences without their padding, [tokens, W], and the way back to [B, S, W]."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.converters.contrib_attention import multi_head_attention, three_of
from autosched.frontend.onnx.node import Node, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import plain, sliced
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim


@converter(DOMAIN + "RestorePadding")
def restore_padding(node: Node) -> Expr:
    """[B, S, W] of tokens [T, W] that lie at the first T of offsets [B, S]; zeros elsewhere."""
    only(node, range(2))
    return _restored(node, node.input(0), node.input(1))


def _restored(node: Node, tokens: Expr, offsets: Expr) -> Expr:
    (count, width), (batch, length), dtype = info_of(tokens).dims, info_of(offsets).dims, info_of(tokens).dtype
    zeros = node.emit(op.broadcast_to(Constant(np.zeros((1, 1), dtype)), ShapeExpr((plain(batch * length), width))))
    at = node.emit(op.reshape(_places(node, count, offsets), ShapeExpr((count, 1))))
    whole = node.emit(op.scatter_nd(zeros, at, tokens))
    return node.emit(op.reshape(whole, ShapeExpr((batch, length, width))))


def _places(node: Node, count: Dim, offsets: Expr) -> Expr:
    """[T]: where the tokens lie in [B * S]."""
    batch, length = info_of(offsets).dims
    flat = node.emit(op.reshape(op.astype(offsets, "int64"), ShapeExpr((plain(batch * length),))))
    return node.emit(sliced(flat, 0, (0, count)))


@converter(DOMAIN + "PackedAttention")
def packed_attention(node: Node) -> Expr:
    """Attention of tokens [T, W] times weights; each sees those of its own sequence."""
    only(node, range(6), ("num_heads", "scale", "qkv_hidden_sizes"))
    product = node.emit(op.add(node.emit(op.matmul(node.input(0), node.input(1))), node.input(2)))
    return _attention(node, three_of(node, product), None, 3)


@converter(DOMAIN + "PackedMultiHeadAttention")
def packed_multi_head_attention(node: Node) -> Expr:
    """The same of query, key and value [T, H * D], or of all three in [T, H, 3, D]."""
    only(node, range(7), ("num_heads", "scale", "mask_filter_value"))
    if node.has(1) and node.has(2):
        parts = [node.input(i) for i in range(3)]
    else:
        dims = node.info(0).dims
        if len(dims) != 4 or dims[2] != 3 or node.has(1) or node.has(2):
            raise node.fail("query, key and value packed in this way are not supported")
        cuts = ({"begin": (i,), "end": (i + 1,)} for i in range(3))
        taken = [node.emit(op.strided_slice(node.input(0), axes=(2,), strides=(1,), **c)) for c in cuts]
        parts = [node.emit(op.reshape(x, ShapeExpr((dims[0], plain(dims[1] * dims[3]))))) for x in taken]
    return _attention(node, parts, node.input(3) if node.has(3) else None, 4)


def _attention(node: Node, parts: Sequence[Expr], bias: Expr | None, first: int) -> Expr:
    """Of query, key and value [T, H * D], with offsets, ends of sequences and a bias of scores at these inputs."""
    offsets, ends = node.input(first), node.input(first + 1)
    whole = [_restored(node, x, offsets) for x in parts]
    (batch, length), count = info_of(offsets).dims, info_of(parts[0]).dims[0]
    first_end, last_end = (node.emit(sliced(ends, 0, (i, batch))) for i in (0, 1))
    lengths = node.emit(op.subtract(last_end, first_end))
    inside = op.less(node.counted(length, 1, 2), op.reshape(op.astype(lengths, "int64"), ShapeExpr((batch, 1))))
    mask = node.emit(op.astype(node.emit(inside), "int32"))
    scores = node.input(first + 2) if node.has(first + 2) else None
    attrs = {name: x for name, x in node.attrs.items() if name != "qkv_hidden_sizes"}
    inputs = [*whole, bias, mask, scores]
    made = multi_head_attention(dataclasses.replace(node, inputs=inputs, attrs=attrs, num_outputs=1))[0]
    assert made is not None
    flat = node.emit(op.reshape(made, ShapeExpr((plain(batch * length), info_of(made).dims[2]))))
    return op.take(flat, _places(node, count, offsets), axis=0)
