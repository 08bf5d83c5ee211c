"""Operators of `com.microsoft` that are ones of ONNX in another form: other layouts, defaults, parts joined to one."""

from __future__ import annotations

import dataclasses
import math
from functools import reduce

import numpy as np

from autosched.frontend.onnx.converters.arrange import pad, trilu
from autosched.frontend.onnx.converters.contrib import (
    DOMAIN,
    activated,
    embed_layer_norm,
    fused_conv,
    fused_matmul,
    only,
)
from autosched.frontend.onnx.converters.conv import conv, conv_transpose
from autosched.frontend.onnx.converters.elementwise import dropout
from autosched.frontend.onnx.converters.index import gather_nd
from autosched.frontend.onnx.converters.norm import softmax
from autosched.frontend.onnx.converters.pool import max_pool
from autosched.frontend.onnx.converters.quantize import dequantized, qlinear_conv, quantized
from autosched.frontend.onnx.converters.resize import grid_sample
from autosched.frontend.onnx.converters.shape import make_range as numbers
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import CONVERTERS, Converter, converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem

SAME = {"GatherND": gather_nd, "GridSample": grid_sample, "Pad": pad, "Trilu": trilu}
CONVERTERS.update({DOMAIN + name: convert for name, convert in SAME.items()})


@converter(DOMAIN + "ExpandDims")
def expand_dims(node: Node) -> Expr:
    return op.expand_dims(node.input(0), axis=node.integers(1)[:1])


@converter(DOMAIN + "Range")
def make_range(node: Node) -> Expr:
    step = node.input(2) if node.has(2) else constant(1, node.info(0).dtype)
    return numbers(dataclasses.replace(node, inputs=[node.input(0), node.input(1), step]))


@converter(DOMAIN + "UnfoldTensor")
def unfold(node: Node) -> Expr:
    """Slices of a dimension, one `step` behind the other, along a new last dimension."""
    only(node, [0], ["dim", "size", "step"])
    axis, size, step = node.axis(node.attr("dim", -1)), node.attr("size"), node.attr("step", 1)
    (whole,) = node.sizes_from(0, axis)[:1]
    if size < 1 or step < 1 or size > whole:
        raise node.fail(f"slices of {size} elements, {step} apart, of {whole}")
    at = np.arange(0, whole - size + 1, step)[:, None] + np.arange(size)
    apart, rank = node.emit(op.take(node.input(0), Constant(at), axis=axis)), node.info(0).ndim + 1
    return op.permute_dims(apart, axes=[*(d for d in range(rank) if d != axis + 1), axis + 1])


# --- products, sums, activations -----------------------------------------------------------------------------------


@converter(DOMAIN + "BiasAdd")
def bias_add(node: Node) -> Expr:
    only(node, range(3))
    return op.add(node.emit(op.add(node.input(0), node.input(1))), node.input(2))


@converter(DOMAIN + "BiasSplitGelu")
def bias_split_gelu(node: Node) -> Expr:
    """The first half of X + bias, times GELU of the second."""
    only(node, range(2))
    total = node.emit(op.add(node.input(0), node.input(1)))
    halves = node.emit(op.split(total, indices_or_sections=2, axis=node.info(0).ndim - 1))
    left, right = halves.fields if isinstance(halves, Tuple) else (TupleGetItem(halves, i) for i in (0, 1))
    return op.multiply(left, node.emit(op.nn.gelu(node.emit(right))))


@converter(DOMAIN + "GemmFastGelu")
def gemm_fast_gelu(node: Node) -> Expr:
    only(node, range(3))
    product = node.emit(op.matmul(node.input(0), node.input(1)))
    return op.nn.gelu_tanh(node.emit(op.add(product, node.input(2))) if node.has(2) else product)


@converter(DOMAIN + "FusedMatMulActivation")
def fused_matmul_activation(node: Node) -> Expr:
    prefix = "activation"
    own = {name: v for name, v in node.attrs.items() if not name.startswith(prefix)}
    product = node.emit(fused_matmul(dataclasses.replace(node, attrs=own)))
    more = {name.removeprefix(prefix + "_"): v for name, v in node.attrs.items() if name.startswith(prefix + "_")}
    return activated(node, product, more)


@converter(DOMAIN + "SwiGLU")
def clamped_swiglu(node: Node) -> Expr:
    """G * sigmoid(alpha * G) * (L + beta) of a gate and an up half, both limited; in float32."""
    attrs = ("activation_alpha", "activation_beta", "limit", "round_activation")
    only(node, range(2), attrs)
    alpha, beta, limit = (node.attr(n, d) for n, d in zip(attrs, (1.0, 0.0, 0.0)))
    dtype = node.info(0).dtype
    if node.has(1):
        sides: list[Expr] = [node.input(0), node.input(1)]
    else:
        halves = node.emit(op.split(node.input(0), indices_or_sections=2, axis=node.info(0).ndim - 1))
        sides = list(halves.fields) if isinstance(halves, Tuple) else [TupleGetItem(halves, i) for i in (0, 1)]
    gate, up = (x if dtype == "float32" else node.emit(op.astype(x, "float32")) for x in sides)
    if limit > 0:
        gate, up = node.emit(op.clip(gate, -np.inf, limit)), node.emit(op.clip(up, -limit, limit))
    scaled = gate if alpha == 1 else op.multiply(gate, constant(alpha, "float32"))
    left = node.emit(op.multiply(gate, node.emit(op.sigmoid(scaled))))
    if node.attr("round_activation", 0) and dtype != "float32":
        left = node.emit(op.astype(node.emit(op.astype(left, dtype)), "float32"))
    result = node.emit(op.multiply(left, op.add(up, constant(beta, "float32")) if beta else up))
    return result if dtype == "float32" else op.astype(result, dtype)


@converter(DOMAIN + "BiasSoftmax")
def bias_softmax(node: Node) -> Expr:
    """Softmax of data + bias, whose dimensions from `axis` on are one."""
    only(node, range(2), ["axis", "is_inner_broadcast"])
    total = node.emit(op.add(node.input(0), node.input(1)))
    if info_of(total).ndim != node.info(0).ndim:
        raise node.fail(f"a bias of {node.info(1).ndim} dimensions for data of {node.info(0).ndim}")
    return softmax(dataclasses.replace(node, inputs=[total], opset=1))


@converter(DOMAIN + "BiasDropout")
def bias_dropout(node: Node) -> tuple[Expr, ...]:
    """data + bias + residual at inference, of which the mask keeps all."""
    only(node, range(5), ["seed"])
    total = node.emit(op.add(node.input(0), node.input(1)))
    dropped = dropout(dataclasses.replace(node, inputs=[total, *node.inputs[3:]], opset=13))
    return op.add(dropped[0], node.input(2)) if node.has(2) else dropped[0], *dropped[1:]


@converter(DOMAIN + "TorchEmbedding")
def torch_embedding(node: Node) -> Expr:
    """Rows of a table; the other inputs are about training."""
    return op.take(node.input(0), node.input(1), axis=0)


@converter(DOMAIN + "IsAllFinite")
def is_all_finite(node: Node) -> Expr:
    """Whether no element of any input is infinite or NaN, or of one of these alone."""
    only(node, range(len(node.inputs)), ["isinf_only", "isnan_only"])
    of = [name for name in ("isinf_only", "isnan_only") if node.attr(name, 0)]
    if len(of) > 1:
        raise node.fail("isinf_only and isnan_only")
    strange = (
        {"isinf_only": op.isinf, "isnan_only": op.isnan}[of[0]] if of else lambda x: op.logical_not(op.isfinite(x))
    )
    counts = [node.emit(op.sum(node.emit(op.astype(strange(node.input(i)), "int32")))) for i in range(len(node.inputs))]
    return op.equal(reduce(lambda a, b: node.emit(op.add(a, b)), counts), constant(0, "int32"))


@converter(DOMAIN + "CDist")
def cdist(node: Node) -> Expr:
    """Distances of rows from rows, or their squares."""
    only(node, range(2), ["metric"])
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise node.fail(f"metric '{metric}'")
    square = op.squared_distance(node.input(0), node.emit(op.permute_dims(node.input(1))))
    return square if metric == "sqeuclidean" else op.sqrt(node.emit(square))


@converter(DOMAIN + "MatMulInteger16")
def matmul_integer16(node: Node) -> Expr:
    only(node, range(2))
    return op.matmul(*(node.emit(op.astype(node.input(i), "int32")) for i in (0, 1)))


# --- channels last -------------------------------------------------------------------------------------------------


def _channels_first(convert: Converter, node: Node, others: bool = False) -> Expr:
    """What a converter of [N, C, ...] makes of [N, ..., C], in that layout; `others`: weights are [O, ..., I]."""
    rank = node.info(0).ndim
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    inputs = [
        node.emit(op.permute_dims(node.input(i), axes=first))
        if i == 0 or (others and i in (1, 3)) and node.has(i)
        else x
        for i, x in enumerate(node.inputs)
    ]
    return op.permute_dims(node.emit(convert(dataclasses.replace(node, inputs=inputs))), axes=last)


@converter(DOMAIN + "NhwcMaxPool")
def nhwc_max_pool(node: Node) -> Expr:
    return _channels_first(max_pool, node)


@converter(DOMAIN + "NhwcConv")
def nhwc_conv(node: Node) -> Expr:
    return _channels_first(conv, node, others=True)


@converter(DOMAIN + "NhwcFusedConv")
def nhwc_fused_conv(node: Node) -> Expr:
    return _channels_first(fused_conv, node, others=True)


@converter(DOMAIN + "QLinearConv")
def qlinear_conv_any(node: Node) -> Expr:
    return _channels_first(qlinear_conv, node) if node.attr("channels_last", 0) else qlinear_conv(node)


@converter(DOMAIN + "ConvTransposeWithDynamicPads")
def conv_transpose_with_pads(node: Node) -> Expr:
    """The padding is an input, which has to be known."""
    pads = {"pads": list(node.integers(2))} if node.has(2) else {}
    inputs = [node.input(0), node.input(1), *([node.input(3)] if node.has(3) else [])]
    return conv_transpose(dataclasses.replace(node, inputs=inputs, attrs={**node.attrs, **pads}))


@converter(DOMAIN + "GroupNorm", DOMAIN + "SkipGroupNorm")
def group_norm(node: Node) -> tuple[Expr, ...]:
    """Groups of channels normalised, then SiLU where `activation` is 1; of a sum with a skip, which is an output."""
    only(node, range(5), ["channels_last", "activation", "groups", "epsilon"])
    x, skips, rank = node.input(0), node.op_type.startswith("Skip"), node.info(0).ndim
    if skips:
        skip = node.input(3)
        if info_of(skip).ndim == 2:  # [N, C]
            n, c = info_of(skip).dims
            skip = node.emit(op.reshape(skip, ShapeExpr((n, *[1] * (rank - 2), c))))
        x = node.emit(op.add(x, skip))
        x = node.emit(op.add(x, node.input(4))) if node.has(4) else x
    axis = rank - 1 if node.attr("channels_last", 1) else 1
    if skips and axis != rank - 1:
        raise node.fail("a skip with channels first is not supported")
    dtype = info_of(x).dtype
    real = x if dtype == "float32" else node.emit(op.astype(x, "float32"))
    scale, bias = (
        node.emit(op.astype(v, "float32")) if info_of(v).dtype != "float32" else v for v in map(node.input, (1, 2))
    )
    result = node.emit(_grouped_norm(node, real, scale, bias, axis))
    result = node.emit(op.nn.silu(result)) if node.attr("activation", 0) else result
    result = result if dtype == "float32" else op.astype(result, dtype)
    return (result, x) if skips else (result,)


def _grouped_norm(node: Node, x: Expr, gamma: Expr, beta: Expr, axis: int) -> Expr:
    """Each image's groups of channels brought to mean 0 and variance 1; times gamma of the channel, plus beta."""
    dims, (channels,), groups = info_of(x).dims, node.sizes_from(1, 0), node.attr("groups")
    if channels % groups or dims[axis] != channels:
        raise node.fail(f"{channels} scales and {groups} groups for data of {list(dims)}")
    apart = node.emit(op.reshape(x, ShapeExpr((*dims[:axis], groups, channels // groups, *dims[axis + 1 :]))))
    over = tuple(d for d in range(1, len(dims) + 1) if d != axis)
    centred = node.emit(op.subtract(apart, op.mean(apart, axis=over, keepdims=True)))
    variance = op.add(op.variance(apart, axis=over, keepdims=True), constant(node.attr("epsilon", 1e-5), "float32"))
    normal = node.emit(op.reshape(op.multiply(centred, op.rsqrt(variance)), ShapeExpr(dims)))
    wide = ShapeExpr(tuple(channels if d == axis else 1 for d in range(len(dims))))
    scale, bias = (node.emit(op.reshape(v, wide)) for v in (gamma, beta))
    return op.add(op.multiply(normal, scale), bias)


# --- quantised -----------------------------------------------------------------------------------------------------


@converter(DOMAIN + "QLinearReduceMean")
def qlinear_reduce_mean(node: Node) -> Expr:
    only(node, range(5), ["axes", "keepdims"])
    inputs = [node.input(i) if node.has(i) else None for i in range(5)]
    real = dequantized(node, node.input(0), node.input(1), inputs[2], None)
    mean = node.emit(op.mean(real, axis=tuple(node.attr("axes")), keepdims=bool(node.attr("keepdims"))))
    return quantized(node, mean, node.input(3), inputs[4], node.info(0).dtype, None)


@converter(DOMAIN + "ReduceSumInteger")
def reduce_sum_integer(node: Node) -> Expr:
    only(node, [0], ["axes", "keepdims"])
    whole = node.emit(op.astype(node.input(0), "int32"))
    return op.sum(whole, axis=tuple(node.attr("axes")), keepdims=bool(node.attr("keepdims")))


@converter(DOMAIN + "MulInteger")
def mul_integer(node: Node) -> Expr:
    only(node, range(4))
    sides = []
    for i in (0, 2):
        whole = node.emit(op.astype(node.input(i), "int32"))
        zero = node.emit(op.astype(node.input(i + 1), "int32")) if node.has(i + 1) else None
        sides.append(whole if zero is None else node.emit(op.subtract(whole, zero)))
    return op.multiply(*sides)


@converter(DOMAIN + "QEmbedLayerNormalization")
def quantised_embed_layer_norm(node: Node) -> tuple[Expr | None, ...]:
    """EmbedLayerNormalization of quantised tables, scale and bias."""
    only(node, range(18), ["epsilon"])
    real: dict[int, Expr] = {}
    for at, index in enumerate((2, 3, 4, 5, 6)):
        if node.has(index):
            zero = node.input(13 + at) if node.has(13 + at) else None
            real[index] = dequantized(node, node.input(index), node.input(8 + at), zero, None)
    inputs = [real.get(i, x) for i, x in enumerate(node.inputs[:8])]
    return embed_layer_norm(dataclasses.replace(node, inputs=inputs))[:2]


# --- positions -----------------------------------------------------------------------------------------------------


@converter(DOMAIN + "RelativePositionBias")
def relative_position_bias(node: Node) -> Expr:
    """[1, H, queries, keys]: an entry of T5's table for each distance, one for all in a range where it is far.

    The table [buckets, H] is stored head by head.
    """
    only(node, range(3), ["is_bidirectional", "max_distance"])
    (buckets, heads), rows, columns = node.sizes_from(0, 0), node.integers(1)[0], node.integers(2)[0]
    distance = np.arange(columns)[None] - np.arange(rows)[:, None]
    both = bool(node.attr("is_bidirectional", 0))
    count = buckets // 2 if both else buckets
    first = np.where(distance > 0, count, 0) if both else np.zeros_like(distance)
    far = np.abs(distance) if both else np.maximum(-distance, 0)
    exact = count // 2
    steps = np.float32(math.log(node.attr("max_distance") / exact))  # in float32, as in T5
    wide = exact + (np.log(np.maximum(far, 1).astype("f4") / np.float32(exact)) / steps * (count - exact)).astype("i8")
    at = first + np.where(far < exact, far, np.minimum(wide, count - 1))
    table = node.emit(op.reshape(node.input(0), ShapeExpr((heads, buckets))))
    return op.expand_dims(node.emit(op.take(table, Constant(at.astype(np.int64)), axis=1)), axis=(0,))


@converter(DOMAIN + "GemmaRotaryEmbedding")
def gemma_rotary_embedding(node: Node) -> tuple[Expr, ...]:
    """Queries and keys times the cosines of angles [B, S, D], plus their other halves times the sines."""
    only(node, range(5))
    angles, dtype = node.input(0), node.info(1).dtype
    sin, cos = (
        node.emit(op.expand_dims(node.emit(op.astype(node.emit(f(angles)), dtype)), axis=(1,)))
        for f in (op.sin, op.cos)
    )
    return tuple(op.add(op.multiply(node.input(i), cos), op.multiply(node.input(i + 1), sin)) for i in (1, 3))


@converter(DOMAIN + "GatedRelativePositionBias")
def gated_relative_position_bias(node: Node) -> Expr:
    """A bias of positions times a gate that each query makes, as in WavLM."""
    only(node, range(6), ["num_heads"])
    batch, length, width = node.info(0).dims
    heads, (total,) = node.attr("num_heads"), node.sizes_from(0, 2)
    x = node.emit(op.add(node.input(0), node.input(1)))
    x = node.emit(op.reshape(x, ShapeExpr((batch, length, heads, total // heads))))
    x = node.emit(op.permute_dims(x, axes=[0, 2, 1, 3]))
    x = node.emit(op.add(node.emit(op.matmul(x, node.input(3))), node.input(4)))
    (both,) = node.sizes_from(3, 1)
    apart = node.emit(op.reshape(x, ShapeExpr((batch, heads, length, 2, both // 2))))
    gates = node.emit(op.sigmoid(node.emit(op.sum(apart, axis=(-1,)))))
    u, r = (node.emit(op.strided_slice(gates, axes=(3,), begin=(i,), end=(i + 1,), strides=(1,))) for i in (0, 1))
    dtype = node.info(0).dtype
    inner = node.emit(op.subtract(op.multiply(r, node.input(5)), constant(1, dtype)))
    gate = node.emit(op.add(op.multiply(u, inner), constant(2, dtype)))
    return op.multiply(gate, node.input(2))


# --- what ONNX had before its first release ------------------------------------------------------------------------


@converter("Affine")
def affine(node: Node) -> Expr:
    dtype = node.info(0).dtype
    scaled = node.emit(op.multiply(node.input(0), constant(node.attr("alpha", 1.0), dtype)))
    return op.add(scaled, constant(node.attr("beta", 0.0), dtype))


@converter("ImageScaler")
def image_scaler(node: Node) -> Expr:
    """Images [N, C, H, W] times one number, plus one for each channel."""
    dtype = node.info(0).dtype
    scaled = node.emit(op.multiply(node.input(0), constant(node.attr("scale", 1.0), dtype)))
    return op.add(scaled, Constant(np.asarray(node.attr("bias", [0.0]), dtype).reshape(1, -1, 1, 1)))


@converter("ScaledTanh")
def scaled_tanh(node: Node) -> Expr:
    dtype = node.info(0).dtype
    inner = op.tanh(node.emit(op.multiply(node.input(0), constant(node.attr("beta", 1.0), dtype))))
    return op.multiply(node.emit(inner), constant(node.attr("alpha", 1.0), dtype))


@converter("ParametricSoftplus")
def parametric_softplus(node: Node) -> Expr:
    dtype = node.info(0).dtype
    inner = op.nn.softplus(node.emit(op.multiply(node.input(0), constant(node.attr("beta", 1.0), dtype))))
    return op.multiply(node.emit(inner), constant(node.attr("alpha", 1.0), dtype))
