"""Operators of `com.microsoft` that exporters and ONNX Runtime's optimiser write: fused activations and norms,
quantised arithmetic (products with packed weights: `nbits.py`). What a node asks beyond it is refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from autosched.frontend.onnx.converters.conv import conv
from autosched.frontend.onnx.converters.linear import gemm
from autosched.frontend.onnx.converters.norm import softmax
from autosched.frontend.onnx.converters.pool import average_pool
from autosched.frontend.onnx.converters.quantize import (
    by_range,
    check_count,
    check_scale,
    dequantized,
    matmul_integer,
    quantized,
)
from autosched.frontend.onnx.node import Held, Node, constant, info_of
from autosched.frontend.onnx.registry import CONVERTERS, converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem

DOMAIN = "com.microsoft."


def only(node: Node, inputs: Sequence[int], attrs: Sequence[str] = ()) -> None:
    """Refuse other inputs than these, and other attributes (but those that say 0, "" or nothing).

    Raises ImportModelError.
    """
    more = [i for i, x in enumerate(node.inputs) if x is not None and i not in inputs]
    if more:
        raise node.fail(f"input {more[0]} is not supported")
    known = {*attrs, "accuracy_level"}
    if strange := [n for n, v in node.attrs.items() if n not in known and v not in (0, "", -1, None)]:
        raise node.fail(f"attribute {strange[0]}={node.attrs[strange[0]]!r} is not supported")


@converter(DOMAIN + "Gelu")
def gelu(node: Node) -> Expr:
    only(node, [0])
    return op.nn.gelu(node.input(0))


@converter(DOMAIN + "FastGelu")
def fast_gelu(node: Node) -> Expr:
    only(node, [0, 1])
    x = node.emit(op.add(node.input(0), node.input(1))) if node.has(1) else node.input(0)
    return op.nn.gelu_tanh(x)


@converter(DOMAIN + "BiasGelu")
def bias_gelu(node: Node) -> Expr:
    only(node, [0, 1])
    return op.nn.gelu(node.emit(op.add(node.input(0), node.input(1))))


@converter(DOMAIN + "QuickGelu")
def quick_gelu(node: Node) -> Expr:
    only(node, [0], ["alpha"])
    x = node.input(0)
    return op.multiply(x, op.sigmoid(op.multiply(x, constant(node.attr("alpha", 1.702), node.info(0).dtype))))


@converter(DOMAIN + "FusedMatMul", DOMAIN + "TransposeMatMul")
def fused_matmul(node: Node) -> Expr:
    """alpha * A' B'; with transBatchA or transBatchB the first dimension is the one before the last."""
    only(node, [0, 1], ["alpha", *("transA", "transB", "transBatchA", "transBatchB")])
    sides = []
    for index, side in ((0, "A"), (1, "B")):
        x, rank = node.input(index), node.info(index).ndim
        order = list(range(rank))
        if node.attr(f"transBatch{side}", 0) and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if node.attr(f"trans{side}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        sides.append(x if order == [*range(rank)] else node.emit(op.permute_dims(x, axes=order)))
    product = node.emit(op.matmul(*sides))
    alpha = node.attr("alpha", 1.0)
    return product if alpha == 1.0 else op.multiply(product, constant(alpha, info_of(product).dtype))


# What ONNX Runtime fuses with products and convolutions, with the attributes in the order of `activation_params`.
ACTIVATIONS = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign"), ()),
    **dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma"),
}  # fmt: skip


@converter(DOMAIN + "FusedConv")
def fused_conv(node: Node) -> Expr:
    """A convolution, a sum where there is a fourth input, and an activation."""
    value = node.emit(conv(node))
    if node.has(3):
        value = node.emit(op.add(value, node.input(3)))
    names, params = ACTIVATIONS.get(node.attr("activation", ""), ()), node.attr("activation_params", ())
    return activated(node, value, dict(zip(names, params, strict=False)))


@converter(DOMAIN + "FusedGemm")
def fused_gemm(node: Node) -> Expr:
    """A matrix product and an activation."""
    prefix = "activation_"
    own = {name.removeprefix(prefix): v for name, v in node.attrs.items() if name.startswith(prefix)}
    return activated(node, node.emit(gemm(node)), own)


def activated(node: Node, value: Expr, attrs: Mapping[str, float]) -> Expr:
    """The activation that the node names, of a value."""
    kind, dtype = node.attr("activation", ""), info_of(value).dtype
    if not kind:
        return value
    if kind not in ACTIVATIONS:
        raise node.fail(f"activation '{kind}' is not supported")
    if kind == "Clip":
        return op.clip(value, attrs.get("min", -np.inf), attrs.get("max", np.inf))
    if kind == "ThresholdedRelu":
        over = op.greater(value, constant(attrs.get("alpha", 1.0), dtype))
        return op.where(over, value, constant(0, dtype))
    result: Expr = CONVERTERS[kind](dataclasses.replace(node, op_type=kind, inputs=[value], attrs=attrs))
    return result


def _normed(node: Node, x: Expr, gamma: Expr, beta: Expr | None, epsilon: float) -> Expr:
    axis = info_of(x).ndim - 1
    bias = beta if beta is not None else Constant(np.zeros(info_of(gamma).static_shape, info_of(gamma).dtype))
    return node.emit(op.nn.layer_norm(x, gamma, bias, axes=(axis,), epsilon=epsilon))


def _sum_with_skip(node: Node, bias: int) -> Expr:
    total = node.emit(op.add(node.input(0), node.input(1)))
    return node.emit(op.add(total, node.input(bias))) if node.has(bias) else total


@converter(DOMAIN + "SkipLayerNormalization")
def skip_layer_norm(node: Node) -> tuple[Expr | None, ...]:
    """The normalised sum of input, skip and bias; the sum is the fourth output."""
    only(node, [0, 1, 2, 3, 4], ["epsilon"])
    total = _sum_with_skip(node, 4)
    beta = node.input(3) if node.has(3) else None
    return _with_sum(node, _normed(node, total, node.input(2), beta, node.attr("epsilon", 1e-12)), total)


@converter(DOMAIN + "SkipSimplifiedLayerNormalization")
def skip_rms_norm(node: Node) -> tuple[Expr | None, ...]:
    only(node, [0, 1, 2, 3], ["epsilon"])
    total = _sum_with_skip(node, 3)
    axis = info_of(total).ndim - 1
    whole = op.nn.rms_norm(total, node.input(2), axes=(axis,), epsilon=node.attr("epsilon", 1e-12))
    return _with_sum(node, node.emit(whole), total)


def _with_sum(node: Node, result: Expr, total: Expr) -> tuple[Expr | None, ...]:
    if node.num_outputs in (2, 3):
        raise node.fail("mean and deviation as outputs are not supported")
    return (result, None, None, total) if node.num_outputs > 3 else (result,)


@converter(DOMAIN + "EmbedLayerNormalization")
def embed_layer_norm(node: Node) -> tuple[Expr | None, ...]:
    """Word, position and segment embeddings, their sum normalised; how many positions the mask leaves."""
    only(node, [0, 1, 2, 3, 4, 5, 6, 7, 8], ["epsilon", "mask_index_type"])
    batch, length = node.info(0).dims
    total = node.emit(op.take(node.input(2), node.input(0), axis=0))
    where = node.input(8) if node.has(8) else node.counted(length, 1, 2)
    total = node.emit(op.add(total, op.take(node.input(3), where, axis=0)))
    if node.has(1):
        total = node.emit(op.add(total, op.take(node.input(4), node.input(1), axis=0)))
    result = _normed(node, total, node.input(5), node.input(6), node.attr("epsilon", 1e-12))
    if not node.has(7):
        count = op.broadcast_to(constant(0, "int32"), ShapeExpr((batch,)))
    else:
        count = op.sum(node.emit(op.astype(node.input(7), "int32")), axis=1)
    return result, count, total


def _real(node: Node, first: int) -> Expr:
    """The quantised input at `first`, whose scale and zero point follow."""
    zero = node.input(first + 2) if node.has(first + 2) else None
    return dequantized(node, node.input(first), node.input(first + 1), zero, None)


def _whole(node: Node, value: Expr, scale: int, dtype: str) -> Expr:
    """A value quantised by the scale at that input and the zero point behind it."""
    zero = node.input(scale + 1) if node.has(scale + 1) else None
    return quantized(node, value, node.input(scale), zero, dtype, None)


@converter(DOMAIN + "QLinearAdd", DOMAIN + "QLinearMul")
def qlinear_binary(node: Node) -> Expr:
    only(node, range(8))
    combine = op.add if node.op_type.endswith("Add") else op.multiply
    return _whole(node, node.emit(combine(_real(node, 0), _real(node, 3))), 6, node.info(0).dtype)


@converter(DOMAIN + "QLinearSoftmax")
def qlinear_softmax(node: Node) -> Expr:
    only(node, range(5), ["axis", "opset"])
    x = dataclasses.replace(_as(node, [_real(node, 0)]), opset=node.attr("opset", 13))
    return _whole(node, node.emit(softmax(x)), 3, node.info(0).dtype)


@converter(DOMAIN + "QLinearWhere")
def qlinear_where(node: Node) -> Expr:
    only(node, range(9))
    both = node.emit(op.where(node.input(0), _real(node, 1), _real(node, 4)))
    return _whole(node, both, 7, node.info(1).dtype)


@converter(DOMAIN + "QLinearSigmoid", DOMAIN + "QLinearLeakyRelu")
def qlinear_unary(node: Node) -> Expr:
    only(node, range(5), ["alpha"])
    x = _real(node, 0)
    is_sigmoid = node.op_type.endswith("Sigmoid")
    y = op.sigmoid(x) if is_sigmoid else op.nn.leakyrelu(x, alpha=node.attr("alpha", 0.01))
    return _whole(node, node.emit(y), 3, node.info(0).dtype)


@converter(DOMAIN + "QLinearGlobalAveragePool")
def qlinear_mean(node: Node) -> Expr:
    only(node, range(5))
    axes = tuple(range(2, node.info(0).ndim))
    return _whole(node, node.emit(op.mean(_real(node, 0), axis=axes, keepdims=True)), 3, node.info(0).dtype)


@converter(DOMAIN + "QLinearConcat")
def qlinear_concat(node: Node) -> Expr:
    parts = tuple(_real(node, i) for i in range(2, len(node.inputs), 3))
    whole = node.emit(op.concat(Tuple(parts), axis=node.attr("axis")))
    return _whole(node, whole, 0, node.info(2).dtype)


@converter(DOMAIN + "MatMulIntegerToFloat")
def matmul_integer_to_float(node: Node) -> Expr:
    """An exact integer product, times both scales."""
    only(node, range(7))
    for i in (0, 1):
        check_scale(node, node.input(2 + i), None, node.info(i).dtype)
        check_count(node, node.input(i), node.input(2 + i), None if i == 0 else -1)
    order = [node.inputs[i] if i < len(node.inputs) else None for i in (0, 1, 4, 5)]
    product = node.emit(matmul_integer(_as(node, order)))
    scale = node.emit(op.multiply(node.input(2), node.input(3)))
    result = node.emit(op.multiply(op.astype(product, info_of(scale).dtype), scale))
    return op.add(result, node.input(6)) if node.has(6) else result


@converter(DOMAIN + "DynamicQuantizeMatMul")
def dynamic_quantize_matmul(node: Node) -> Expr:
    """A quantised to eight bits by its own range, times quantised B, as real numbers."""
    only(node, range(5))
    check_scale(node, node.input(2), None, node.info(1).dtype)
    check_count(node, node.input(1), node.input(2), -1)
    whole, scale, zero = by_range(node, node.input(0))
    product = node.emit(
        matmul_integer(_as(node, [whole, node.input(1), zero, node.inputs[3] if node.has(3) else None]))
    )
    both = node.emit(op.multiply(scale, node.input(2)))
    result = node.emit(op.multiply(op.astype(product, "float32"), both))
    return op.add(result, node.input(4)) if node.has(4) else result


def _as(node: Node, inputs: Sequence[Expr | Held | None]) -> Node:
    """The node with other inputs."""
    return dataclasses.replace(node, inputs=list(inputs))


@converter(DOMAIN + "RotaryEmbedding")
def rotary_embedding(node: Node) -> Expr:
    """Pairs of each head's elements turned by the angle of their position; [B, S, H * D] or [B, H, S, D]."""
    attrs = ["interleaved", "num_heads", "rotary_embedding_dim"]
    only(node, [0, 1, 2, 3], [*attrs, "scale"] if node.attr("scale", 1.0) == 1.0 else attrs)
    x, heads_axis = _by_heads(node)
    at, length = node.input(1), info_of(x).dims[3 - heads_axis]
    if node.info(1).ndim == 1 or node.info(1).dims == (1, 1):  # the position of the first one
        steps = node.counted(length, 1, 2)
        at = node.emit(op.add(op.reshape(at, ShapeExpr((1, 1))), steps))
    angles = [node.emit(op.expand_dims(op.take(node.input(i), at, axis=0), axis=heads_axis)) for i in (2, 3)]
    turned = turn(node, x, angles[0], angles[1], bool(node.attr("interleaved", 0)))
    return op.reshape(turned, ShapeExpr(node.info(0).dims))


@converter(DOMAIN + "MRotaryEmbedding")
def multimodal_rotary_embedding(node: Node) -> Expr:
    """The same with three positions of each token [3, B, S] (time, height, width), which have pairs of their own."""
    attrs = ["interleaved", "num_heads", "rotary_embedding_dim", "mrope_section", "mrope_layout"]
    only(node, [0, 1, 2, 3], [*attrs, "scale"] if node.attr("scale", 1.0) == 1.0 else attrs)
    x, heads_axis = _by_heads(node)
    (half,) = node.sizes_from(2, 1)
    sections, pair = list(node.attr("mrope_section")), np.arange(half)
    if sum(sections) != half or node.info(1).ndim != 3:
        raise node.fail(f"sections {sections} of {half} angles, positions {list(node.info(1).dims)}")
    if node.attr("mrope_layout", 0):
        of = [(pair % 3 == i) & (pair < 3 * sections[i]) for i in (1, 2)]
    else:
        of = [(pair >= sum(sections[:i])) & (pair < sum(sections[: i + 1])) for i in (1, 2)]
    angles = []
    for table in (2, 3):
        all_three = node.emit(op.take(node.input(table), node.input(1), axis=0))
        streams = node.emit(op.split(all_three, indices_or_sections=3, axis=0))
        fields = streams.fields if isinstance(streams, Tuple) else [TupleGetItem(streams, i) for i in range(3)]
        chosen, *others = (node.emit(op.squeeze(node.emit(f), axis=(0,))) for f in fields)
        for mask, other in zip(of, others, strict=True):
            chosen = node.emit(op.where(Constant(mask), other, chosen))
        angles.append(node.emit(op.expand_dims(chosen, axis=heads_axis)))
    turned = turn(node, x, angles[0], angles[1], bool(node.attr("interleaved", 0)))
    return op.reshape(turned, ShapeExpr(node.info(0).dims))


def _by_heads(node: Node) -> tuple[Expr, int]:
    """The first input by heads, [B, S, H, D] or as it is ([B, H, S, D]), and which dimension counts these."""
    x, shape = node.input(0), node.info(0).dims
    if len(shape) != 3:
        return x, 1
    (half,), (width,) = node.sizes_from(2, 1), node.sizes_from(0, 2)
    heads = node.attr("num_heads", 0)
    size = width // heads if heads else 2 * half
    return node.emit(op.reshape(x, ShapeExpr((shape[0], shape[1], width // size, size)))), 2


def turn(node: Node, x: Expr, cos: Expr, sin: Expr, interleaved: bool) -> Expr:
    """[…, D] with pairs of its first elements turned, as many as there are angles; cos and sin broadcast to […, R]."""
    *outer, width = info_of(x).dims
    half = info_of(cos).dims[-1]
    if not isinstance(width, int) or not isinstance(half, int) or not 0 < 2 * half <= width:
        raise node.fail(f"angles of {half} pairs for {width} elements")
    if 2 * half < width:  # the rest stays as it is
        cuts = [{"begin": (a,), "end": (b,)} for a, b in ((0, 2 * half), (2 * half, width))]
        front, back = (node.emit(op.strided_slice(x, axes=(-1,), strides=(1,), **cut)) for cut in cuts)
        turned = turn(node, front, cos, sin, interleaved)
        return node.emit(op.concat(Tuple((turned, back)), axis=len(outer)))
    size = width
    axis = len(outer) + interleaved
    pairs = node.emit(op.reshape(x, ShapeExpr((*outer, size // 2, 2) if interleaved else (*outer, 2, size // 2))))
    signs = np.array([[-1, 1]] if interleaved else [[-1], [1]], info_of(x).dtype)
    turns = node.emit(op.multiply(op.expand_dims(sin, axis=axis), Constant(signs)))
    along = node.emit(op.multiply(pairs, node.emit(op.expand_dims(cos, axis=axis))))
    across = node.emit(op.multiply(node.emit(op.flip(pairs, axis=axis)), turns))
    return node.emit(op.reshape(node.emit(op.add(along, across)), ShapeExpr((*outer, size))))


@converter(DOMAIN + "QGemm")
def qgemm(node: Node) -> Expr:
    """alpha * A' B' + C of quantised matrices, C in units of their scales; quantised again where there is a scale."""
    only(node, range(9), ["transA", "transB", "alpha"])
    sides = []
    for at, name in ((0, "transA"), (3, "transB")):
        scale, is_b, turned = node.input(at + 1), at == 3, bool(node.attr(name, 0))
        zero = node.input(at + 2) if node.has(at + 2) else None
        axis = None if not is_b or info_of(scale).ndim == 0 or info_of(scale).dims == (1,) else int(not turned)
        real = dequantized(node, node.input(at), scale, zero, axis)
        sides.append(node.emit(op.permute_dims(real)) if turned else real)
    total = node.emit(op.matmul(*sides))
    alpha = node.attr("alpha", 1.0)
    if alpha != 1.0:
        total = node.emit(op.multiply(total, constant(alpha, "float32")))
    if node.has(6):
        unit = node.emit(op.multiply(node.emit(op.multiply(node.input(1), node.input(4))), constant(alpha, "float32")))
        total = node.emit(op.add(total, op.multiply(op.astype(node.input(6), "float32"), unit)))
    return _whole(node, total, 7, node.info(0).dtype) if node.has(7) else total


@converter(DOMAIN + "QLinearAveragePool")
def qlinear_average_pool(node: Node) -> Expr:
    """Means of windows of a quantised image, whose padding is no part of them or zeros."""
    attrs = ["kernel_shape", "strides", "pads", "auto_pad", "ceil_mode", "count_include_pad"]
    only(node, range(5), attrs)
    mean = node.emit(average_pool(_as(node, [_real(node, 0)])))
    return _whole(node, mean, 3, node.info(0).dtype)
