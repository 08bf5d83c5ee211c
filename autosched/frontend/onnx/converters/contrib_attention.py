"""Fused attention of `com.microsoft`: one projection for all, or query, key and value apart, heads that share keys."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only, turn
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple

BSHD, BHSD = "BSHD", "BHSD"


def _heads(node: Node, x: Expr, heads: int) -> Expr:
    """[B, S, H * D] as [B, S, H, D]"""
    b, s, width = info_of(x).static_shape
    if heads < 1 or width % heads:
        raise node.fail(f"{heads} heads of {width} elements")
    return node.emit(op.reshape(x, ShapeExpr((b, s, heads, width // heads))))


def _hidden(node: Node, mask: Expr, rows: int, columns: int, batch: int, dtype: str) -> Expr:
    """What a mask of ones and zeros adds to the scores [B, H, rows, columns]; of [B], the lengths that are seen."""
    shape = info_of(mask).static_shape
    if shape == (batch,):
        places = Constant(np.arange(columns, dtype=np.int64).reshape(1, -1))
        seen = op.less(places, op.reshape(op.astype(mask, "int64"), ShapeExpr((batch, 1))))
        wide: tuple[int, ...] = (batch, 1, 1, columns)
    else:
        wide = (batch, 1, rows if len(shape) == 3 else 1, columns)
        if shape not in ((batch, columns), (batch, rows, columns)):
            raise node.fail(f"a mask of {list(shape)} for {rows} rows and {columns} columns")
        seen = op.not_equal(mask, constant(0, info_of(mask).dtype))
    low = node.attr("mask_filter_value", -10000.0)
    added = node.emit(op.where(seen, constant(0, dtype), constant(low, dtype)))
    return node.emit(op.reshape(added, ShapeExpr(wide)))


def _joined(node: Node, past: Expr, new: Expr) -> Expr:
    """Keys or values of earlier steps and new ones, [B, H, S, D]."""
    return new if 0 in info_of(past).static_shape else node.emit(op.concat(Tuple((past, new)), axis=2))


def _bias(node: Node, parts: list[Expr], index: int) -> Expr | None:
    if node.has(index):
        parts = [*parts, node.input(index)]
    total = None
    for part in parts:
        total = part if total is None else node.emit(op.add(total, part))
    return total


def _flat(node: Node, x: Expr) -> Expr:
    """[B, S, H, D] as [B, S, H * D]"""
    b, s, h, d = info_of(x).static_shape
    return node.emit(op.reshape(x, ShapeExpr((b, s, h * d))))


@converter(DOMAIN + "Attention")
def attention(node: Node) -> tuple[Expr, ...]:
    """input [B, S, W] times weights [W, 3 * H * D] gives query, key and value."""
    only(node, [0, 1, 2, 3, 5], ["num_heads", "unidirectional", "mask_filter_value", "scale"])
    if node.num_outputs > 1:
        raise node.fail("keys and values as outputs are not supported")
    heads, dtype = node.attr("num_heads"), node.info(0).dtype
    product = node.emit(op.matmul(node.input(0), node.input(1)))
    if node.has(2):
        product = node.emit(op.add(product, node.input(2)))
    batch, length, width = info_of(product).static_shape
    if width % 3:
        raise node.fail(f"weights of {width} columns")
    parts = node.emit(op.split(product, indices_or_sections=3, axis=2))
    fields = parts.fields if isinstance(parts, Tuple) else [node.emit(_item(parts, i)) for i in range(3)]
    q, k, v = (_heads(node, x, heads) for x in fields)
    masks = [_hidden(node, node.input(3), length, length, batch, dtype)] if node.has(3) else []
    bias = _bias(node, masks, 5)
    causal = "BottomRight" if node.attr("unidirectional", 0) else None
    out = op.nn.attention(q, k, v, bias, _scale(node), causal)
    return (_flat(node, node.emit(out)),)


def _item(parts: Expr, index: int) -> Expr:
    from autosched.relax.expr import TupleGetItem

    return TupleGetItem(parts, index)


def _scale(node: Node) -> float | None:
    scale = node.attr("scale", 0.0)
    return scale if scale else None


@converter(DOMAIN + "MultiHeadAttention")
def multi_head_attention(node: Node) -> tuple[Expr | None, ...]:
    """query [B, S, H * D], key and value [B, T, H * D] (or [B, H, T, D] from another attention's cache)."""
    only(node, [0, 1, 2, 3, 4, 5, 6, 7], ["num_heads", "unidirectional", "mask_filter_value", "scale"])
    heads, dtype = node.attr("num_heads"), node.info(0).dtype
    if not node.has(1) or not node.has(2) or node.info(0).ndim != 3:
        raise node.fail("query, key and value packed in one are not supported")
    values: list[Expr] = []
    for i in range(3):
        x = node.input(i)
        if info_of(x).ndim == 4:
            values.append(x)
            continue
        if node.has(3):
            widths = [info_of(node.input(n)).static_shape[-1] for n in range(3)]
            start = sum(widths[:i])
            cut = {"begin": (start,), "end": (start + widths[i],)}
            x = node.emit(op.add(x, node.emit(op.strided_slice(node.input(3), axes=(0,), strides=(1,), **cut))))
        values.append(node.emit(op.permute_dims(_heads(node, x, heads), axes=[0, 2, 1, 3])))
    q, k, v = values
    if node.has(6):
        k, v = _joined(node, node.input(6), k), _joined(node, node.input(7), v)
    (batch, _, rows, _), columns = info_of(q).static_shape, info_of(k).static_shape[2]
    masks = [_hidden(node, node.input(4), rows, columns, batch, dtype)] if node.has(4) else []
    causal = "BottomRight" if node.attr("unidirectional", 0) else None
    layouts = (BHSD, BHSD, BHSD, BSHD)
    out = node.emit(op.nn.attention(q, k, v, _bias(node, masks, 5), _scale(node), causal, layouts=layouts))
    if node.num_outputs > 3:
        raise node.fail("scores as an output are not supported")
    return (_flat(node, out), k, v)


@converter(DOMAIN + "GroupQueryAttention")
def group_query_attention(node: Node) -> tuple[Expr | None, ...]:
    """Heads of queries that share heads of keys and values, which are turned by their positions and kept."""
    attrs = ("num_heads", "kv_num_heads", "scale", "do_rotary", "rotary_interleaved", "local_window_size", "causal")
    only(node, [0, 1, 2, 3, 4, 5, 6, 7, 8], attrs)
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    if node.attr("causal", 1) != 1:
        raise node.fail("causal=0 is not supported")
    if groups < 1 or heads % groups:
        raise node.fail(f"{heads} heads that share {groups}")
    if node.has(1) and node.has(2):
        parts = [_heads(node, node.input(i), n) for i, n in ((0, heads), (1, groups), (2, groups))]
    else:
        whole = _heads(node, node.input(0), heads + 2 * groups)
        ends = np.cumsum([0, heads, groups, groups]).tolist()
        cuts = [{"begin": (a,), "end": (b,)} for a, b in zip(ends[:-1], ends[1:], strict=True)]
        parts = [node.emit(op.strided_slice(whole, axes=(2,), strides=(1,), **cut)) for cut in cuts]
    q, k, v = (node.emit(op.permute_dims(x, axes=[0, 2, 1, 3])) for x in parts)
    length = info_of(q).static_shape[2]
    past = info_of(node.input(3)).static_shape[2] if node.has(3) else 0
    if any(n != past + length - 1 for n in node.integers(5)):
        raise node.fail("sequences of different lengths, or a cache with room for more, are not supported")
    if node.attr("do_rotary", 0):
        angles = [_angles(node, i, past, length) for i in (7, 8)]
        interleaved = bool(node.attr("rotary_interleaved", 0))
        q, k = (turn(node, x, angles[0], angles[1], interleaved) for x in (q, k))
    if node.has(3):
        k, v = _joined(node, node.input(3), k), _joined(node, node.input(4), v)
    wide = [node.emit(op.repeat(x, heads // groups, axis=1)) if heads > groups else x for x in (k, v)]
    window = node.attr("local_window_size", -1)
    limit = window if window > 0 else None
    layouts = (BHSD, BHSD, BHSD, BSHD)
    out = op.nn.attention(q, wide[0], wide[1], None, _scale(node), "BottomRight", limit, layouts)
    if node.num_outputs > 3:
        raise node.fail("scores as an output are not supported")
    return (_flat(node, node.emit(out)), k, v)


def _angles(node: Node, index: int, past: int, length: int) -> Expr:
    """[1, 1, S, D / 2]: rows of the table of cosines or sines."""
    cut = op.strided_slice(node.input(index), axes=(0,), begin=(past,), end=(past + length,), strides=(1,))
    return node.emit(op.expand_dims(node.emit(cut), axis=(0, 1)))
