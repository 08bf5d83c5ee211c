"""Fused attention of `com.microsoft`: one projection for all, or query, key and value apart."""

from __future__ import annotations

import dataclasses

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only
from autosched.frontend.onnx.converters.quantize import dequantized
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import (
    beside,
    common_size,
    is_at_least,
    is_empty,
    is_same,
    plain,
    sliced,
    with_sizes,
)
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr, Tuple
from autosched.relax.struct_info import Dim
from autosched.tir.expr import as_int

BSHD, BHSD = "BSHD", "BHSD"


def by_heads(node: Node, x: Expr, heads: int) -> Expr:
    """[B, S, H * D] as [B, S, H, D]"""
    b, s, width = info_of(x).dims
    if heads < 1 or not isinstance(width, int) or width % heads:
        raise node.fail(f"{heads} heads of {width} elements")
    return node.emit(op.reshape(x, ShapeExpr((b, s, heads, width // heads))))


def _hidden(node: Node, mask: Expr, rows: Dim, columns: Dim, batch: Dim, dtype: str) -> Expr:
    """What a mask of ones and zeros adds to the scores [B, H, rows, columns]; of [B], the lengths that are seen."""
    shape = info_of(mask).dims
    expected: tuple[Dim, ...] = {1: (batch,), 2: (batch, columns)}.get(len(shape), (batch, rows, columns))
    same = [common_size(b, a) for a, b in zip(shape, expected, strict=False)]
    if len(shape) > 3 or None in same or any(a == 1 and b != 1 for a, b in zip(shape, expected, strict=True)):
        raise node.fail(f"a mask of {list(shape)} for {rows} rows and {columns} columns")
    mask = with_sizes(mask, expected, node.emit)
    if len(shape) == 1:
        places = node.counted(columns, 1, 2)
        seen = op.less(places, op.reshape(op.astype(mask, "int64"), ShapeExpr((batch, 1))))
        wide: tuple[Dim, ...] = (batch, 1, 1, columns)
    else:
        wide = (batch, 1, rows if len(shape) == 3 else 1, columns)
        seen = op.not_equal(mask, constant(0, info_of(mask).dtype))
    low = node.attr("mask_filter_value", -10000.0)
    added = node.emit(op.where(seen, constant(0, dtype), constant(low, dtype)))
    return node.emit(op.reshape(added, ShapeExpr(wide)))


def _joined(node: Node, past: Expr, new: Expr) -> Expr:
    """Keys or values of earlier steps and new ones, [B, H, S, D]."""
    if is_empty(past):
        return new
    return node.emit(op.concat(Tuple(tuple(reversed(beside([new, past], 2, node.emit)))), axis=2))


def _bias(node: Node, parts: list[Expr], index: int, rows: Dim, columns: Dim) -> Expr | None:
    """What is added to the scores [B, H, rows, columns]: masks, and the input at a place."""
    if node.has(index):
        given = node.input(index)
        whole = (*info_of(given).dims[:-2], rows, columns)
        parts = [*parts, with_sizes(given, whole, node.emit)]
    total = None
    for part in parts:
        total = part if total is None else node.emit(op.add(total, part))
    return total


def _flat(node: Node, x: Expr) -> Expr:
    """[B, S, H, D] as [B, S, H * D]"""
    b, s, h, d = info_of(x).dims
    return node.emit(op.reshape(x, ShapeExpr((b, s, plain(h * d)))))


_ATTENTION = ("num_heads", "unidirectional", "mask_filter_value", "scale")


@converter(DOMAIN + "Attention")
def attention(node: Node) -> tuple[Expr, ...]:
    """input [B, S, W] times weights [W, 3 * H * D] gives query, key and value; past and present are [2, B, H, T, D]."""
    only(node, range(6), (*_ATTENTION, "qkv_hidden_sizes"))
    return _projected(node, node.emit(op.matmul(node.input(0), node.input(1))), 3, 4, 5)


@converter(DOMAIN + "QAttention")
def qattention(node: Node) -> tuple[Expr, ...]:
    """The same of a quantised input and quantised weights."""
    only(node, range(9), _ATTENTION)
    sides = []
    for at in (0, 1):
        scale, zero = node.input(3 + at), node.input(6 + at) if node.has(6 + at) else None
        axis = 1 if at and info_of(scale).ndim == 1 and info_of(scale).dims != (1,) else None
        sides.append(dequantized(node, node.input(at), scale, zero, axis))
    return _projected(node, node.emit(op.matmul(*sides)), 5, 8, None)


def _projected(node: Node, product: Expr, mask: int, past: int, more: int | None) -> tuple[Expr, ...]:
    """Attention of what the weights gave, with the inputs at these places."""
    heads, dtype = node.attr("num_heads"), info_of(product).dtype
    if node.has(2):
        product = node.emit(op.add(product, node.input(2)))
    batch, length, _ = info_of(product).dims
    q, k, v = (node.emit(op.permute_dims(by_heads(node, x, heads), axes=[0, 2, 1, 3])) for x in three_of(node, product))
    if node.has(past):
        kept = node.emit(op.split(node.input(past), indices_or_sections=2, axis=0))
        halves = kept.fields if isinstance(kept, Tuple) else [node.emit(_item(kept, i)) for i in range(2)]
        old = [node.emit(op.squeeze(x, axis=(0,))) for x in halves]
        k, v = _joined(node, old[0], k), _joined(node, old[1], v)
    columns = info_of(k).dims[2]
    masks = [_hidden(node, node.input(mask), length, columns, batch, dtype)] if node.has(mask) else []
    bias = masks[0] if masks else None
    if more is not None:
        bias = _bias(node, masks, more, length, columns)
    causal = "BottomRight" if node.attr("unidirectional", 0) else None
    out = op.nn.attention(q, k, v, bias, scale_of(node), causal, layouts=(BHSD, BHSD, BHSD, BSHD))
    result = _flat(node, node.emit(out))
    if node.num_outputs < 2:
        return (result,)
    both = Tuple(tuple(node.emit(op.expand_dims(x, axis=(0,))) for x in (k, v)))
    return result, node.emit(op.concat(both, axis=0))


def three_of(node: Node, product: Expr) -> list[Expr]:
    """Query, key and value that lie side by side, of the same width or as `qkv_hidden_sizes` says."""
    *_, width = info_of(product).dims
    sizes = list(node.attr("qkv_hidden_sizes", ())) or [as_int(width) // 3] * 3
    if len(sizes) != 3 or min(sizes) < 1 or sizes[0] != sizes[1] or sum(sizes) != width:
        raise node.fail(f"query, key and value of {sizes} of {width} columns")
    ends = [sizes[0], 2 * sizes[0]]
    parts = node.emit(op.split(product, indices_or_sections=ends, axis=info_of(product).ndim - 1))
    return list(parts.fields) if isinstance(parts, Tuple) else [node.emit(_item(parts, i)) for i in range(3)]


def _item(parts: Expr, index: int) -> Expr:
    from autosched.relax.expr import TupleGetItem

    return TupleGetItem(parts, index)


def scale_of(node: Node) -> float | None:
    scale = node.attr("scale", 0.0)
    return scale if scale else None


@converter(DOMAIN + "MultiHeadAttention")
def multi_head_attention(node: Node) -> tuple[Expr | None, ...]:
    """query [B, S, H * D], key and value [B, T, H * D] (or [B, H, T, D] from another attention's cache).

    The past comes before the new keys and values, or has room for them behind a length that is known by the call.
    """
    only(node, range(10), ["num_heads", "unidirectional", "mask_filter_value", "scale"])
    heads, dtype = node.attr("num_heads"), node.info(0).dtype
    values: list[Expr] = []
    parts = _three(node)
    for i, x in enumerate(parts):
        if info_of(x).ndim == 4:
            values.append(x)
            continue
        if node.has(3):
            widths = [as_int(info_of(part).dims[-1]) for part in parts]
            start = sum(widths[:i])
            cut = {"begin": (start,), "end": (start + widths[i],)}
            x = node.emit(op.add(x, node.emit(op.strided_slice(node.input(3), axes=(0,), strides=(1,), **cut))))
        values.append(node.emit(op.permute_dims(by_heads(node, x, heads), axes=[0, 2, 1, 3])))
    q, k, v = values
    (batch, _, rows, _), is_causal = info_of(q).dims, bool(node.attr("unidirectional", 0))
    if node.has(8):
        return _in_buffer(node, q, k, v, is_causal)
    if node.has(9):
        raise node.fail("input 9 without a past_sequence_length is not supported")
    if node.has(6):
        k, v = _joined(node, node.input(6), k), _joined(node, node.input(7), v)
    columns = info_of(k).dims[2]
    masks = [_hidden(node, node.input(4), rows, columns, batch, dtype)] if node.has(4) else []
    bias = _bias(node, masks, 5, rows, columns)
    causal = "BottomRight" if is_causal else None
    out = node.emit(op.nn.attention(q, k, v, bias, scale_of(node), causal, layouts=(BHSD, BHSD, BHSD, BSHD)))
    if node.num_outputs <= 3:
        return _flat(node, out), k, v
    if is_causal:
        raise node.fail("scores as an output of unidirectional attention are not supported")
    return _flat(node, out), k, v, _scores(node, q, k, bias)


def _scores(node: Node, q: Expr, k: Expr, bias: Expr | None) -> Expr:
    """[B, H, S, T]: what the softmax is made of."""
    width = as_int(info_of(q).dims[3])
    product = node.emit(op.matmul(q, node.emit(op.permute_dims(k, axes=[0, 1, 3, 2]))))
    scaled = node.emit(op.multiply(product, constant(scale_of(node) or width**-0.5, info_of(q).dtype)))
    return scaled if bias is None else node.emit(op.add(scaled, bias))


def _in_buffer(node: Node, q: Expr, k: Expr, v: Expr, is_causal: bool) -> tuple[Expr | None, ...]:
    """Attention of new keys and values that are written behind the first `past_sequence_length` of a buffer.

    Where there is a mask or a bias, it says how many keys there are; else all of the buffer may be.
    """
    batch, heads, rows, _ = info_of(q).dims
    if not node.has(6) or not node.has(7):
        raise node.fail("past_sequence_length without a past")
    room, dtype = info_of(node.input(6)).dims[2], info_of(q).dtype
    length = node.emit(op.reshape(op.astype(node.input(8), "int64"), ShapeExpr((1,))))
    places = node.emit(op.size_range(ShapeExpr((0, plain(room - rows + 1)))))
    start = node.emit(op.take(places, length, axis=0))  # which is checked to be one of them
    start = node.emit(op.broadcast_to(start, ShapeExpr((batch,))))
    present = []
    for index, new in ((6, k), (7, v)):
        past = with_sizes(node.input(index), (batch, heads, room, info_of(new).dims[3]), node.emit)
        present.append(node.emit(op.nn.cache_update(past, new, start, ShapeExpr((room,)))))
    wide = [info_of(node.input(i)).dims[-1] for i in (4, 5) if node.has(i) and info_of(node.input(i)).ndim > 1]
    columns = wide[0] if wide else room
    seen = [node.emit(sliced(_of_beams(node, x, start), 2, (0, columns))) for x in present]
    masks = [_hidden(node, node.input(4), rows, columns, batch, dtype)] if node.has(4) else []
    if not is_causal:  # all new ones are seen
        total = node.emit(op.add(start, node.emit(op.size_values(ShapeExpr((rows,)), is_scalar=True))))
        inside = op.less(node.counted(columns, 1, 2), op.reshape(total, ShapeExpr((batch, 1))))
        behind = node.emit(op.where(inside, constant(0, dtype), constant(-np.inf, dtype)))
        masks.append(node.emit(op.reshape(behind, ShapeExpr((batch, 1, 1, columns)))))
    bias = _bias(node, masks, 5, rows, columns)
    scale, layouts = scale_of(node), (BHSD, BHSD, BHSD, BSHD)
    if not is_causal:
        out = _flat(node, node.emit(op.nn.attention(q, seen[0], seen[1], bias, scale, None, layouts=layouts)))
        more = [_scores(node, q, seen[0], bias)] if node.num_outputs > 3 else []
        return out, *present, *more
    if node.num_outputs > 3:
        raise node.fail("scores as an output of unidirectional attention are not supported")
    if bias is not None:
        bias = node.emit(op.broadcast_to(bias, ShapeExpr((*info_of(bias).dims[:2], rows, columns))))
    context = node.emit(op.nn.cached_attention(q, seen[0], seen[1], start, columns, bias, None, scale))
    return _flat(node, node.emit(op.permute_dims(context, axes=[0, 2, 1, 3]))), *present


def _of_beams(node: Node, x: Expr, start: Expr) -> Expr:
    """Keys or values [B, H, L, D] of the beams that each position came from, of those before `start`."""
    if not node.has(9):
        return x
    (batch, heads, room, width), (sets, beams, most) = info_of(x).dims, info_of(node.input(9)).dims
    if not is_same(plain(sets * beams), batch) or not is_at_least(most, room):
        raise node.fail(f"beams of {[sets, beams, most]} for {batch} sequences of {room}")
    own, places = node.counted(batch, 0, 2), node.counted(room, 1, 2)
    base = node.emit(op.multiply(node.counted(sets, 0, 3), constant(beams, "int64")))
    beam = node.emit(op.add(op.astype(sliced(node.input(9), 2, (0, room)), "int64"), base))
    beam = node.emit(op.reshape(beam, ShapeExpr((batch, room))))
    is_old = op.less(places, op.reshape(start, ShapeExpr((batch, 1))))
    row = node.emit(op.where(is_old, beam, own))
    at = node.emit(op.add(op.multiply(row, node.emit(op.size_values(ShapeExpr((room,)), is_scalar=True))), places))
    flat = node.emit(op.permute_dims(x, axes=[0, 2, 1, 3]))
    flat = node.emit(op.reshape(flat, ShapeExpr((plain(batch * room), heads, width))))
    return node.emit(op.permute_dims(node.emit(op.take(flat, at, axis=0)), axes=[0, 2, 1, 3]))


@converter(DOMAIN + "DecoderMaskedMultiHeadAttention")
def decoder_attention(node: Node) -> tuple[Expr | None, ...]:
    """MultiHeadAttention of one new token, whose inputs come in another order."""
    attrs = ("num_heads", "mask_filter_value", "scale", "past_present_share_buffer", "output_qk")
    only(node, range(11), attrs)
    inputs: list[Expr | None] = [node.input(i) if node.has(i) else None for i in range(11)]
    if inputs[1] is None and inputs[2] is None:
        inputs[:3] = three_of(node, node.input(0))
    if not node.attr("past_present_share_buffer", 0):
        inputs[7] = None
    elif inputs[5] is not None and inputs[7] is None:
        raise node.fail("past_present_share_buffer without a past_sequence_length")
    q, k, v, mask, bias, past_k, past_v, length, _, beams, projected = inputs
    order = [q, k, v, projected, mask, bias, past_k, past_v, length, beams]
    kept = {name: x for name, x in node.attrs.items() if name in attrs[:3]}
    return multi_head_attention(dataclasses.replace(node, inputs=order, attrs=kept))


def _three(node: Node) -> list[Expr]:
    """Query, key and value as they are, or out of one input [B, S, H, 3, D], or key and value of [B, T, H, 2, D]."""
    if node.has(1) and node.has(2) and node.info(0).ndim == 3:
        return [node.input(i) for i in range(3)]
    packed = next((i for i in (0, 1) if node.has(i) and node.info(i).ndim == 5), None)
    if packed is None or node.has(2 if packed else 1):
        raise node.fail("query, key and value packed in this way are not supported")
    batch, length, heads, count, width = node.info(packed).dims
    parts = [node.input(0)] if packed else []
    for i in range(3 - packed):
        part = op.strided_slice(node.input(packed), axes=(3,), begin=(i,), end=(i + 1,), strides=(1,))
        parts.append(node.emit(op.reshape(node.emit(part), ShapeExpr((batch, length, plain(heads * width))))))
    if count != 3 - packed:
        raise node.fail(f"{count} tensors packed in one")
    return parts
