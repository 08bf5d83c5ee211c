"""Recurrent layers and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Shape, Size, Unfit, Value

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@kind(("float32",), least_rank=3, most_rank=3, weight=2)
def recurrent(m: Maker, x: Value) -> None:
    steps, batch, width = x.shape
    if steps > 33 or width > 64 or isinstance(width, Size):
        raise Unfit
    op, hidden, directions = m.choose(*GATES), m.choose(3, 8, 16, 33, 64), m.choose(1, 1, 2)
    rows = GATES[op] * hidden
    shapes = [(directions, rows, width), (directions, rows, hidden), (directions, 2 * rows)]
    weights = [m.constant(m.numbers.standard_normal(s) / np.sqrt(hidden), "float32") for s in shapes]
    more: dict[str, Any] = {"linear_before_reset": m.random.randint(0, 1)} if op == "GRU" else {}
    results = [((steps, directions, batch, hidden), x.dtype), ((directions, batch, hidden), x.dtype)]
    direction = "bidirectional" if directions == 2 else m.choose("forward", "reverse")
    m.results(op, [x, *weights[: m.choose(2, 3)]], results, hidden_size=hidden, direction=direction, **more)


@kind(("float32",), least_rank=3, most_rank=3, weight=2)
def written_out_attention(m: Maker, x: Value) -> None:
    batch, queries, width = x.shape
    if width > 100 or isinstance(width, Size):
        raise Unfit
    keys = m.other((batch, m.size(), width), x.dtype)
    count = keys.shape[1]
    turned = m.node("Transpose", keys, perm=[0, 2, 1], shape=(batch, width, count))
    scores = m.node("MatMul", x, turned, shape=(batch, queries, count))
    scaled = m.node("Mul", scores, m.scalar(1 / np.sqrt(width), x))
    weights = m.node("Softmax", scaled, axis=-1)
    values = m.other((batch, count, m.size()), x.dtype)
    m.node("MatMul", weights, values, shape=(batch, queries, values.shape[2]))


@kind(("float32",), least_rank=3, most_rank=4, weight=2)
def attention(m: Maker, x: Value) -> None:
    """ONNX's operator: heads in one axis or in one of their own, more heads of queries than of keys, masks."""
    shared, causal = m.choose(1, 1, 2), m.random.randint(0, 1)
    shape: Shape
    more: dict[str, Any] = {}
    if x.rank == 4:
        batch, heads, queries, width = x.shape
        if isinstance(heads, Size) or heads % shared or not heads:
            raise Unfit
        count, wide = queries if causal else m.size(), m.choose(width, m.size())
        keys, values = (m.other((batch, heads // shared, count, w), x.dtype) for w in (width, wide))
        shape = (batch, heads, queries, wide)
    else:
        batch, queries, columns = x.shape
        heads = m.choose(1, 2, 4) * shared
        if isinstance(columns, Size) or columns % heads or not columns:
            raise Unfit
        count, width = queries if causal else m.size(), columns // heads
        keys, values = (m.other((batch, count, width * heads // shared), x.dtype) for _ in range(2))
        shape, more = x.shape, {"q_num_heads": heads, "kv_num_heads": heads // shared}
    mask = m.other((queries, count), m.choose("float32", "bool")) if m.chance(0.3) and not causal else None
    if m.chance(0.3):
        more["softcap"] = 5.0
    m.node("Attention", x, keys, values, *([mask] if mask else []), shape=shape, is_causal=causal, **more)


@kind(("float32",), least_rank=4, most_rank=4, weight=4)
def rotary(m: Maker, x: Value) -> None:
    batch, _, steps, width = x.shape
    if width % 2 or not width or not x.is_known:
        raise Unfit
    angles = [m.constant(f(m.numbers.random((steps, width // 2)) * 6), "float32") for f in (np.cos, np.sin)]
    places = m.constant(np.tile(np.arange(steps), (batch, 1)), "int64")
    m.node("RotaryEmbedding", x, *angles, places, interleaved=m.random.randint(0, 1))
