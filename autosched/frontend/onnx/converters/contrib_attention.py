"""Fused attention of `com.microsoft`: one projection for all, or query, key and value apart, heads that share keys."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only, turn
from autosched.frontend.onnx.converters.quantize import dequantized
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import beside, common_size, cut, is_empty, larger, plain, sliced, with_sizes
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple
from autosched.relax.struct_info import Dim
from autosched.tir.expr import as_int

BSHD, BHSD = "BSHD", "BHSD"


def _heads(node: Node, x: Expr, heads: int) -> Expr:
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
    only(node, range(6), _ATTENTION)
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
    batch, length, width = info_of(product).dims
    if not isinstance(width, int) or width % 3:
        raise node.fail(f"weights of {width} columns")
    parts = node.emit(op.split(product, indices_or_sections=3, axis=2))
    fields = parts.fields if isinstance(parts, Tuple) else [node.emit(_item(parts, i)) for i in range(3)]
    q, k, v = (node.emit(op.permute_dims(_heads(node, x, heads), axes=[0, 2, 1, 3])) for x in fields)
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
    out = op.nn.attention(q, k, v, bias, _scale(node), causal, layouts=(BHSD, BHSD, BHSD, BSHD))
    result = _flat(node, node.emit(out))
    if node.num_outputs < 2:
        return (result,)
    both = Tuple(tuple(node.emit(op.expand_dims(x, axis=(0,))) for x in (k, v)))
    return result, node.emit(op.concat(both, axis=0))


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
        values.append(node.emit(op.permute_dims(_heads(node, x, heads), axes=[0, 2, 1, 3])))
    q, k, v = values
    if node.has(6):
        k, v = _joined(node, node.input(6), k), _joined(node, node.input(7), v)
    (batch, _, rows, _), columns = info_of(q).dims, info_of(k).dims[2]
    masks = [_hidden(node, node.input(4), rows, columns, batch, dtype)] if node.has(4) else []
    causal = "BottomRight" if node.attr("unidirectional", 0) else None
    layouts = (BHSD, BHSD, BHSD, BSHD)
    bias = _bias(node, masks, 5, rows, columns)
    out = node.emit(op.nn.attention(q, k, v, bias, _scale(node), causal, layouts=layouts))
    if node.num_outputs > 3:
        raise node.fail("scores as an output are not supported")
    return (_flat(node, out), k, v)


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


@converter(DOMAIN + "GroupQueryAttention")
def group_query_attention(node: Node) -> tuple[Expr | None, ...]:
    """Heads of queries that share heads of keys and values, which are turned by their positions and kept.

    Lengths of sequences (seqlens_k) may be known when the model runs; the total length has to be a size by then. Where
    the past is as long as what is kept, new keys go to their positions in it; else they are joined to it.
    """
    attrs = ("num_heads", "kv_num_heads", "scale", "do_rotary", "rotary_interleaved", "local_window_size", "causal")
    more = ("softcap", "smooth_softmax", "sliding_window_cache", "qk_norm_epsilon", *_UNUSED)
    only(node, range(12), (*attrs, *more, *(n for n in _UNQUANTISED if node.attr(n) == "NONE")))
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    if node.attr("causal", 1) != 1:
        raise node.fail("causal=0 is not supported")
    if node.num_outputs > 3:
        raise node.fail("scores as an output are not supported")
    if groups < 1 or heads % groups:
        raise node.fail(f"{heads} heads that share {groups}")
    q, k, v = _query_key_value(node, heads, groups)
    batch, length, _, width = info_of(q).dims
    (total,) = node.sizes_of(6)
    start = _first_positions(node, batch, length, total)
    if node.attr("do_rotary", 0):
        q, k = _turned(node, q, k, start)
    window, softcap = node.attr("local_window_size", -1), node.attr("softcap", 0.0)
    if node.attr("sliding_window_cache", 0):
        kept, seen, start, total = _slid(node, k, v, start, window)
    else:
        kept = seen = [_kept(node, 3, k, start, total), _kept(node, 4, v, start, total)]
    shared = heads // groups
    apart = node.emit(op.reshape(q, ShapeExpr((batch, length, groups, shared, width))))
    rows = node.emit(op.permute_dims(apart, axes=[0, 2, 1, 3, 4]))
    rows = node.emit(op.reshape(rows, ShapeExpr((batch, groups, plain(length * shared), width))))
    context = op.nn.cached_attention(
        rows, seen[0], seen[1], start, total, _scores_bias(node, total), _sink(node, heads), _scale(node),
        window if window > 0 else None, softcap if softcap else None, shared,
    )  # fmt: skip
    width = info_of(kept[1]).dims[3]
    out = node.emit(op.reshape(node.emit(context), ShapeExpr((batch, groups, length, shared, width))))
    out = node.emit(op.permute_dims(out, axes=[0, 2, 1, 3, 4]))
    return node.emit(op.reshape(out, ShapeExpr((batch, length, plain(heads * width))))), *kept


_UNUSED = ("q_norm_epsilon", "k_norm_epsilon", "kv_cache_bit_width")  # without the inputs that they are about
_UNQUANTISED = ("k_quant_type", "v_quant_type")


def _query_key_value(node: Node, heads: int, groups: int) -> list[Expr]:
    """Queries [B, S, H, D], keys and values [B, S, G, D]."""
    if node.has(1) and node.has(2):
        return [_heads(node, node.input(i), n) for i, n in ((0, heads), (1, groups), (2, groups))]
    whole = _heads(node, node.input(0), heads + 2 * groups)
    ends = np.cumsum([0, heads, groups, groups]).tolist()
    cuts = [{"begin": (a,), "end": (b,)} for a, b in zip(ends[:-1], ends[1:], strict=True)]
    return [node.emit(op.strided_slice(whole, axes=(2,), strides=(1,), **cut)) for cut in cuts]


def _first_positions(node: Node, batch: Dim, length: Dim, total: Dim) -> Expr:
    """[B]: the position of the first new key of each sequence, whose last one is seqlens_k; 0 for a first prompt.

    Right of a sequence that is shorter than the others in a first prompt stand keys that nobody sees.
    """
    last = node.emit(op.reshape(op.astype(node.input(5), "int64"), ShapeExpr((batch,))))
    before = node.emit(op.size_values(ShapeExpr((plain(length - 1),)), is_scalar=True))
    start = node.emit(op.maximum(node.emit(op.subtract(last, before)), constant(0, "int64")))
    places = node.emit(op.size_range(ShapeExpr((0, plain(total - length + 1)))))
    return node.emit(op.take(places, start, axis=0))  # which is checked to be one of them


def _kept(node: Node, index: int, new: Expr, start: Expr, total: Dim) -> Expr:
    """Keys or values [B, G, L, D] of earlier calls and this one."""
    new = node.emit(op.permute_dims(new, axes=[0, 2, 1, 3]))
    batch, groups, length, width = info_of(new).dims
    if not node.has(index):
        return with_sizes(new, (batch, groups, total, width), node.emit)
    past = with_sizes(node.input(index), (batch, groups, info_of(node.input(index)).dims[2], width), node.emit)
    room = larger(total, info_of(past).dims[2])
    return node.emit(op.nn.cache_update(past, new, start, ShapeExpr((room,))))


def _slid(node: Node, k: Expr, v: Expr, start: Expr, window: int) -> tuple[list[Expr], list[Expr], Expr, Dim]:
    """A cache of the last positions: what is kept, what queries see, where the new keys are in that, its rows.

    Queries see the cache before the call with all new keys behind it; what goes from it, goes afterwards.
    """
    if window < 1 or not node.has(3) or not node.has(4) or node.has(10):
        raise node.fail("sliding_window_cache without a window or a past, or with a bias, is not supported")
    room, length = info_of(node.input(3)).dims[2], info_of(k).dims[1]
    capacity = ShapeExpr((room,))
    first = node.emit(op.nn.window_cache_length(start, capacity, window_size=window))
    last = node.emit(op.reshape(op.astype(node.input(5), "int64"), info_of(start).shape))
    total = node.emit(op.add(last, constant(1, "int64")))
    left = node.emit(op.nn.window_cache_length(total, capacity, window_size=window))
    gone = node.emit(op.add(first, op.subtract(op.subtract(total, start), left)))
    places, kept, seen = plain(room + length), [], []
    for index, new in ((3, k), (4, v)):
        new = node.emit(op.permute_dims(new, axes=[0, 2, 1, 3]))
        batch, groups, _, width = info_of(new).dims
        past = with_sizes(node.input(index), (batch, groups, room, width), node.emit)
        seen.append(node.emit(op.nn.cache_update(past, new, first, ShapeExpr((places,)), keep_rest=False)))
        kept.append(node.emit(op.nn.cache_slide(seen[-1], gone, capacity)))
    return kept, seen, first, places


def _turned(node: Node, q: Expr, k: Expr, start: Expr) -> list[Expr]:
    """Queries and keys turned by the angles of their positions."""
    batch, length = info_of(q).dims[:2]
    if node.has(9):
        at = node.emit(op.reshape(node.input(9), ShapeExpr((batch, length))))
    else:
        at = node.emit(op.add(op.reshape(start, ShapeExpr((batch, 1))), node.counted(length, 1, 2)))
    angles = [node.emit(op.expand_dims(op.take(node.input(i), at, axis=0), axis=2)) for i in (7, 8)]
    return [turn(node, x, angles[0], angles[1], bool(node.attr("rotary_interleaved", 0))) for x in (q, k)]


def _scores_bias(node: Node, total: Dim) -> Expr | None:
    """What is added to scores, for the keys that are looked at."""
    if not node.has(10):
        return None
    bias = node.input(10)
    found = cut(info_of(bias).dims[3], 0, total)
    return node.emit(sliced(bias, 3, found)) if found is not None else bias


def _sink(node: Node, heads: int) -> Expr | None:
    """A score for each head that takes part in the softmax."""
    if node.has(11):
        return node.input(11)
    return Constant(np.zeros(heads, node.info(0).dtype)) if node.attr("smooth_softmax", 0) == 1 else None
