"""Bytes for floats."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Size, Unfit, Value

BYTES = ("int8", "uint8")


def scaled(m: Maker, scale: float, zero: int, dtype: str) -> tuple[Value, Value]:
    return m.constant(np.float32(scale)), m.constant(zero, dtype)


def quantised(m: Maker, x: Value, scale: float, zero: int, dtype: str) -> tuple[Value, Value, Value]:
    """A value as bytes, with the scale and the zero point."""
    how = scaled(m, scale, zero, dtype)
    return m.node("QuantizeLinear", x, *how, dtype=dtype), *how


@kind(("float32",), weight=2)
def to_bytes_and_back(m: Maker, x: Value) -> None:
    as_bytes, scale, zero = quantised(m, x, m.choose(0.1, 0.05), m.choose(0, 3), m.choose(*BYTES))
    m.node("DequantizeLinear", as_bytes, scale, zero, dtype="float32")


@kind(("float32",), least_rank=2)
def bytes_of_each_channel(m: Maker, x: Value) -> None:
    """A scale for each index of one axis."""
    axis = m.axis(x, known=True)
    scales = m.constant(m.numbers.uniform(0.05, 0.2, x.shape[axis]), "float32")
    zeros = m.constant(m.numbers.integers(-5, 5, x.shape[axis]), "int8")
    as_bytes = m.node("QuantizeLinear", x, scales, zeros, dtype="int8", axis=axis)
    m.node("DequantizeLinear", as_bytes, scales, zeros, dtype="float32", axis=axis)


@kind(("float32",), least_rank=2)
def product_of_bytes(m: Maker, x: Value) -> None:
    """As quantised models have it: both factors as bytes and back, the product, that as bytes and back."""
    if isinstance(x.shape[-1], Size):
        raise Unfit
    left, scale, zero = quantised(m, x, 0.05, m.choose(0, 120), "uint8")
    left = m.node("DequantizeLinear", left, scale, zero, dtype="float32")
    columns = m.size()
    weight = m.constant(m.numbers.integers(-100, 100, (x.shape[-1], columns)), "int8")
    each = m.chance(0.5)
    scales = m.constant(m.numbers.uniform(0.01, 0.03, columns) if each else 0.02, "float32")
    zeros = m.constant(np.zeros(scales.shape), "int8")
    right = m.node("DequantizeLinear", weight, scales, zeros, dtype="float32", axis=1)
    product = m.node("MatMul", left, right, shape=(*x.shape[:-1], columns))
    if m.chance(0.5):
        product = m.node("Add", product, m.other((columns,), "float32", is_constant=True))
    as_bytes, scale, zero = quantised(m, product, 0.3, 128, "uint8")
    m.node("DequantizeLinear", as_bytes, scale, zero, dtype="float32")


@kind(("float32",), least_rank=2)
def product_of_ranges(m: Maker, x: Value) -> None:
    """Scales that follow from the data."""
    if 0 in x.shape:
        raise Unfit
    results = [(x.shape, "uint8"), ((), "float32"), ((), "uint8")]
    as_bytes, scale, zero = m.results("DynamicQuantizeLinear", [x], results)
    columns = m.size()
    weight = m.other((x.shape[-1], columns), "int8", is_constant=True)
    product = m.node("MatMulInteger", as_bytes, weight, zero, shape=(*x.shape[:-1], columns), dtype="int32")
    m.node("Mul", m.node("Cast", product, dtype="float32", to=TensorProto.FLOAT), scale)


@kind(("float32",), least_rank=4, most_rank=4, weight=2)
def conv_of_bytes(m: Maker, x: Value) -> None:
    channels = x.shape[1]
    if isinstance(channels, Size) or not 1 <= channels <= 100:
        raise Unfit
    as_bytes, *given = quantised(m, x, 0.05, m.choose(0, 120), "uint8")
    groups = channels if m.chance(0.2) else 1
    out, k = channels if groups > 1 else m.size(), m.choose(1, 3)
    scales = m.constant(np.full(out, 0.02), "float32") if m.chance(0.5) else m.constant(np.float32(0.02))
    weight = m.constant(m.numbers.integers(-100, 100, (out, channels // groups, k, k)), "int8")
    zeros, made = m.constant(np.zeros(scales.shape), "int8"), scaled(m, 0.3, 128, "uint8")
    bias = [m.constant(m.numbers.integers(-999, 999, out), "int32")] if m.chance(0.5) else []
    result = m.node("QLinearConv", as_bytes, *given, weight, scales, zeros, *made, *bias, dtype="uint8",
                    shape=(x.shape[0], out, *x.shape[2:]), group=groups, pads=[k // 2] * 4)  # fmt: skip
    m.node("DequantizeLinear", result, *made, dtype="float32")
