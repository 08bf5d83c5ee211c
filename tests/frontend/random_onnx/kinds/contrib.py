"""Operators of com.microsoft: quantised arithmetic, fused activations, norms and products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.frontend.random_onnx.kinds.arrange import with_size
from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.kinds.products import window
from tests.frontend.random_onnx.kinds.quantise import BYTES, quantised, scaled
from tests.frontend.random_onnx.maker import Maker, Size, Unfit, Value

DOMAIN = "com.microsoft"
SCALES = (0.1049, 0.0313, 0.0217)  # whose quotients put no byte halfway between two


def _bytes(m: Maker, x: Value) -> tuple[tuple[Value, Value, Value], str]:
    dtype = m.choose(*BYTES)
    return quantised(m, x, m.choose(*SCALES), m.choose(0, 3, 100), dtype), dtype


@kind(("float32",))
def bytes_element_by_element(m: Maker, x: Value) -> None:
    given, dtype = _bytes(m, x)
    made = scaled(m, m.choose(*SCALES), m.choose(0, 7), dtype)
    op = m.choose("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu")
    if op in ("QLinearAdd", "QLinearMul"):
        other, _ = (given, dtype) if m.chance(0.2) else (_quantised_as(m, m.broadcast(x), dtype), dtype)
        pair = (*given, *other) if m.chance(0.6) else (*other, *given)
        result = m.node(op, *pair, *made, shape=x.shape, dtype=dtype, domain=DOMAIN)
    else:
        more: dict[str, Any] = {"alpha": 0.2} if op == "QLinearLeakyRelu" else {}
        result = m.node(op, *given, *made, dtype=dtype, domain=DOMAIN, **more)
    m.node("DequantizeLinear", result, *made, dtype="float32")


def _quantised_as(m: Maker, x: Value, dtype: str) -> tuple[Value, Value, Value]:
    return quantised(m, x, m.choose(*SCALES), m.choose(0, 5), dtype)


@kind(("float32",), least_rank=1)
def softmax_of_bytes(m: Maker, x: Value) -> None:
    given, dtype = _bytes(m, x)
    made = scaled(m, 1 / 256, 0 if dtype == "uint8" else -128, dtype)
    axis = m.random.randrange(-x.rank, x.rank)
    m.node("QLinearSoftmax", *given, *made, dtype=dtype, axis=axis, opset=13, domain=DOMAIN)


@kind(("float32",), least_rank=1)
def concat_of_bytes(m: Maker, x: Value) -> None:
    given, dtype = _bytes(m, x)
    axis = m.axis(x, known=True)
    other = _quantised_as(m, m.other(with_size(x.shape, axis, m.size()), x.dtype), dtype)
    made = scaled(m, m.choose(*SCALES), m.choose(0, 7), dtype)
    shape = with_size(x.shape, axis, x.shape[axis] + other[0].shape[axis])
    result = m.node("QLinearConcat", *made, *given, *other, shape=shape, dtype=dtype, axis=axis, domain=DOMAIN)
    m.node("DequantizeLinear", result, *made, dtype="float32")


@kind(("float32",), least_rank=4, most_rank=4)
def pool_of_bytes(m: Maker, x: Value) -> None:
    given, dtype = _bytes(m, x)
    made = scaled(m, m.choose(*SCALES), m.choose(0, 7), dtype)
    if 0 in x.shape:
        raise Unfit
    if m.chance(0.4):
        shape = (*x.shape[:2], 1, 1)
        result = m.node("QLinearGlobalAveragePool", *given, *made, shape=shape, dtype=dtype, domain=DOMAIN)
    else:
        kernel, strides, pads = (
            [m.choose(1, 2, 3) for _ in "hw"],
            [m.choose(1, 2) for _ in "hw"],
            [m.choose(0, 1) for _ in "hw"],
        )
        pads = [min(p, k // 2) for p, k in zip(pads, kernel)]
        rest = [d + 2 * p - k for d, p, k in zip(x.shape[2:], pads, kernel)]
        if min(rest) < 0:
            raise Unfit
        shape = (*x.shape[:2], *(r // s + 1 for r, s in zip(rest, strides)))
        result = m.node("QLinearAveragePool", *given, *made, shape=shape, dtype=dtype, domain=DOMAIN,
                        kernel_shape=kernel, strides=strides, pads=pads * 2,
                        count_include_pad=m.random.randint(0, 1))  # fmt: skip
    m.node("DequantizeLinear", result, *made, dtype="float32")


@kind(("float32",))
def choice_of_bytes(m: Maker, x: Value) -> None:
    given, dtype = _bytes(m, x)
    other = _quantised_as(m, m.broadcast(x), dtype)
    made = scaled(m, m.choose(*SCALES), m.choose(0, 7), dtype)
    condition = m.broadcast(x, "bool")
    result = m.node("QLinearWhere", condition, *given, *other, *made, shape=x.shape, dtype=dtype, domain=DOMAIN)
    m.node("DequantizeLinear", result, *made, dtype="float32")


@kind(("float32",), least_rank=2, weight=2)
def matmul_of_bytes(m: Maker, x: Value) -> None:
    """Products whose factors and results are bytes, or floats made of such."""
    given, dtype = _bytes(m, x)
    columns, width = m.size(), x.shape[-1]
    if isinstance(width, Size):
        raise Unfit
    weight = m.constant(m.numbers.integers(-128, 128, (width, columns)), "int8")
    each = m.chance(0.5)
    scales = m.constant(m.numbers.uniform(0.01, 0.03, columns) if each else 0.02, "float32")
    zeros = m.constant(m.numbers.integers(-9, 9, scales.shape), "int8")
    shape = (*x.shape[:-1], columns)
    made = scaled(m, m.choose(0.2973, 0.1049), m.choose(0, 100), dtype)
    op = m.choose("QLinearMatMul", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
    bias = m.other((columns,), "float32", is_constant=True) if m.chance(0.5) else None
    if op == "QLinearMatMul":
        result = m.node(op, *given, weight, scales, zeros, *made, shape=shape, dtype=dtype)
    elif op == "QGemm":
        if x.rank != 2:
            raise Unfit
        added = m.constant(m.numbers.integers(-999, 999, columns), "int32") if m.chance(0.5) else None
        result = m.node(op, *given, weight, scales, zeros, added, *made, shape=shape, dtype=dtype, domain=DOMAIN)
    elif op == "MatMulIntegerToFloat":
        m.node(
            op, given[0], weight, given[1], scales, given[2], zeros, bias, shape=shape, dtype="float32", domain=DOMAIN
        )
        return
    else:
        if 0 in x.shape:
            raise Unfit
        m.node(op, x, weight, scales, zeros, bias, shape=shape, domain=DOMAIN)
        return
    m.node("DequantizeLinear", result, *made, dtype="float32")


@kind(("uint8", "int8"), least_rank=4, most_rank=4)
def conv_of_integers(m: Maker, x: Value) -> None:
    n, channels, *spatial = x.shape
    if isinstance(channels, Size) or not 1 <= channels <= 64 or n == 0 or 0 in spatial:
        raise Unfit
    kernel, strides, dilations, before, after = window(m, 2)
    sizes = [(d + b + a - (k - 1) * e - 1) // s + 1
             for d, s, k, e, b, a in zip(spatial, strides, kernel, dilations, before, after)]  # fmt: skip
    if min(sizes) < 1:
        raise Unfit
    out, dtype = m.size(), m.choose("int8", "uint8") if x.dtype == "uint8" else "int8"
    weight = m.other((out, channels, *kernel), dtype, is_constant=True)
    zeros = [m.constant(m.choose(0, 3), x.dtype)] if m.chance(0.5) else []
    m.node("ConvInteger", x, weight, *zeros, shape=(n, out, *sizes), dtype="int32", strides=strides,
           dilations=dilations, pads=before + after)  # fmt: skip


@kind(("float32",), least_rank=1)
def fused_activation(m: Maker, x: Value) -> None:
    op = m.choose("BiasGelu", "FastGelu", "QuickGelu", "Gelu")
    more = {"alpha": m.choose(1.702, 0.5)} if op == "QuickGelu" else {}
    bias = [m.other(x.shape[-1:], x.dtype)] if op == "BiasGelu" or op == "FastGelu" and m.chance(0.5) else []
    m.node(op, x, *bias, domain=DOMAIN, **more)


@kind(("float32",), least_rank=2)
def fused_matmul(m: Maker, x: Value) -> None:
    turned, other_turned, columns = m.random.randint(0, 1), m.random.randint(0, 1), m.size()
    rows, k = (x.shape[-1], x.shape[-2]) if turned else x.shape[-2:]
    batch = x.shape[:-2]
    other = m.other((*batch, columns, k) if other_turned else (*batch, k, columns), x.dtype)
    m.node("FusedMatMul", x, other, shape=(*batch, rows, columns), domain=DOMAIN, transA=turned, transB=other_turned,
           alpha=m.choose(1.0, 0.5))  # fmt: skip


@kind(("float32",), least_rank=2, most_rank=2)
def fused_gemm(m: Maker, x: Value) -> None:
    columns = m.size()
    other = m.other((x.shape[1], columns), x.dtype)
    op = m.choose("Relu", "Tanh", "Sigmoid", "LeakyRelu")
    more: dict[str, Any] = {"activation_alpha": 0.1} if op == "LeakyRelu" else {}
    m.node("FusedGemm", x, other, m.other((columns,), x.dtype), shape=(x.shape[0], columns), domain=DOMAIN,
           activation=op, alpha=m.choose(1.0, 0.5), **more)  # fmt: skip


@kind(("float32",), least_rank=4, most_rank=4)
def fused_conv(m: Maker, x: Value) -> None:
    n, channels, h, w = x.shape
    if isinstance(channels, Size) or not 1 <= channels <= 64 or 0 in x.shape:
        raise Unfit
    out, k = m.size(), m.choose(1, 3)
    weight, bias = (m.other(s, x.dtype, is_constant=True) for s in ((out, channels, k, k), (out,)))
    op = m.choose("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip")
    given = {"LeakyRelu": [0.1], "Clip": [-0.5, 2.0]}
    more: dict[str, Any] = {"activation_params": given[op]} if op in given else {}
    added = [m.other((n, out, h, w), x.dtype)] if m.chance(0.3) and op == "Relu" else []
    m.node(
        "FusedConv",
        x,
        weight,
        bias,
        *added,
        shape=(n, out, h, w),
        domain=DOMAIN,
        activation=op,
        pads=[k // 2] * 4,
        **more,
    )


@kind(("float32",), least_rank=2, most_rank=3, weight=2)
def skip_norm(m: Maker, x: Value) -> None:
    width = x.shape[-1:]
    op = m.choose("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    skip = m.other(x.shape, x.dtype)
    scale = m.other(width, x.dtype)
    bias = m.other(width, x.dtype) if m.chance(0.5) else None
    between = [m.other(width, x.dtype)] if op == "SkipLayerNormalization" else []
    results = [(x.shape, x.dtype), *([None, None, (x.shape, x.dtype)] if m.chance(0.5) else [])]
    m.results(op, [x, skip, scale, *between, bias], results, domain=DOMAIN, epsilon=1e-5)


@kind(("float32",), least_rank=2, weight=2)
def matmul_of_few_bits(m: Maker, x: Value) -> None:
    width, columns = x.shape[-1], m.size()
    if isinstance(width, Size) or not width or x.rank > 3:
        raise Unfit
    bits, block = m.choose(4, 4, 8), m.choose(16, 32)
    blocks = math.ceil(width / block)
    weight = m.constant(m.numbers.integers(0, 256, (columns, blocks, block * bits // 8)), "uint8")
    scales = m.constant(m.numbers.uniform(0.01, 0.1, (columns, blocks)), "float32")
    zeros = (
        m.constant(m.numbers.integers(0, 256, (columns, math.ceil(blocks * bits / 8))), "uint8")
        if m.chance(0.5)
        else None
    )
    bias = [None, m.other((columns,), x.dtype, is_constant=True)] if m.chance(0.3) else []
    m.node("MatMulNBits", x, weight, scales, zeros, *bias, shape=(*x.shape[:-1], columns), domain=DOMAIN, K=width,
           N=columns, bits=bits, block_size=block)  # fmt: skip


@kind(("float32",), least_rank=3, most_rank=3, weight=2)
def attention_of_heads(m: Maker, x: Value) -> None:
    batch, queries, width = x.shape
    heads = m.choose(1, 2, 4)
    if isinstance(width, Size) or width % heads or not width or 0 in x.shape:
        raise Unfit
    count = m.size()
    keys, values = (m.other((batch, count, width), x.dtype) for _ in range(2))
    bias = m.other((3 * width,), x.dtype) if m.chance(0.3) else None
    mask = m.other((m.choose(1, heads), queries, count), x.dtype) if m.chance(0.3) else None
    if mask is not None:
        mask = m.node("Unsqueeze", mask, m.ints(0), shape=(1, *mask.shape))
    more: dict[str, Any] = {"scale": 0.3} if m.chance(0.3) else {}
    m.node("MultiHeadAttention", x, keys, values, bias, None, mask, domain=DOMAIN, num_heads=heads, **more)


@kind(("int64", "int32"), least_rank=1, most_rank=2)
def rows_of_few_bits(m: Maker, x: Value) -> None:
    rows, width, block = m.size(), m.choose(32, 64), m.choose(16, 32)
    table = m.constant(m.numbers.integers(0, 256, (rows, width // 2)), "uint8")
    scales = m.constant(m.numbers.uniform(0.01, 0.1, (rows, width // block)), "float32")
    places = m.node("Mod", x, m.scalar(rows, x))
    m.node("GatherBlockQuantized", table, places, scales, shape=(*x.shape, width), dtype="float32", domain=DOMAIN,
           bits=4, block_size=block, quantize_axis=1, gather_axis=0)  # fmt: skip


@kind(("float32",), least_rank=4, most_rank=4, weight=4)
def grouped_queries(m: Maker, x: Value) -> None:
    """Self-attention of a decoder's first call, with and without rotation, of `x` as [batch, heads, steps, width]."""
    batch, heads, steps, width = x.shape
    if not x.is_known or 0 in x.shape or width % 8 or width > 64:
        raise Unfit
    turned = m.node("Transpose", x, perm=[0, 2, 1, 3], shape=(batch, steps, heads, width))
    queries = m.node("Reshape", turned, m.ints(batch, steps, heads * width), shape=(batch, steps, heads * width))
    shared = m.choose(*(g for g in (1, 2, 4) if heads % g == 0))
    kept = heads // shared
    keys, values = (m.other((batch, steps, kept * width), x.dtype) for _ in range(2))
    lengths, total = m.constant(np.full(batch, steps - 1), "int32"), m.constant(steps, "int32")
    more: dict[str, Any] = {"do_rotary": m.random.randint(0, 1), "rotary_interleaved": m.random.randint(0, 1)}
    angles: list[Value | None] = [None, None]
    if more["do_rotary"]:
        angles = [m.constant(f(m.numbers.random((steps, width // 2)) * 6), "float32") for f in (np.cos, np.sin)]
    if m.chance(0.3):
        more["local_window_size"] = m.choose(1, 2, 5)
    if m.chance(0.3):
        more["softcap"] = 4.0
    past = (batch, kept, steps, width)
    results = [((batch, steps, heads * width), x.dtype), (past, x.dtype), (past, x.dtype)]
    m.results("GroupQueryAttention", [queries, keys, values, None, None, lengths, total, *angles], results,
              domain=DOMAIN, num_heads=heads, kv_num_heads=kept, **more)  # fmt: skip
