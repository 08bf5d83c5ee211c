"""Attention of `com.microsoft` whose heads share keys and values, which are kept between calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosched.frontend.onnx.converters.contrib import DOMAIN, only, turn
from autosched.frontend.onnx.converters.contrib_attention import BHSD, BSHD, by_heads, scale_of
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import (
    TO_THE_END,
    cut,
    larger,
    plain,
    product_of,
    sliced,
    with_sizes,
)
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple
from autosched.relax.struct_info import Dim
from autosched.tir.expr import as_int


@converter(DOMAIN + "GroupQueryAttention")
def group_query_attention(node: Node) -> tuple[Expr | None, ...]:
    """Heads of queries that share heads of keys and values, which are turned by their positions and kept.

    Lengths of sequences (seqlens_k) may be known when the model runs; the total length has to be a size by then. Where
    the past is as long as what is kept, new keys go to their positions in it; else they are joined to it. What is kept
    may be integers of 8 or 4 bits, which attention sees as what they stand for.
    """
    attrs = ("num_heads", "kv_num_heads", "scale", "do_rotary", "rotary_interleaved", "local_window_size", "causal")
    more = ("softcap", "smooth_softmax", "sliding_window_cache", *_EPSILONS, *_STORED)
    only(node, range(16), (*attrs, *more))
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    if node.num_outputs > 3:
        raise node.fail("scores as an output are not supported")
    q, k, v = _query_key_value(node, heads, groups)
    if node.has(14) or node.has(15):
        q, k = _normed(node, q, 14, "q_norm_epsilon"), _normed(node, k, 15, "k_norm_epsilon")
    batch, length, _, width = info_of(q).dims
    (total,) = node.sizes_of(6)
    last = node.emit(op.reshape(op.astype(node.input(5), "int64"), ShapeExpr((batch,))))
    start = _first_positions(node, last, length, total)
    if node.attr("do_rotary", 0):
        q, k = _turned(node, q, k, start, 7, 9)
    window, softcap = node.attr("local_window_size", -1), node.attr("softcap", 0.0)
    widths = [info_of(x).dims[3] for x in (k, v)]
    stored = [_Stored.of(node, name, 12 + i, groups, widths[i]) for i, name in enumerate(_STORED[:2])]
    if node.attr("sliding_window_cache", 0):
        kept, seen, start, total = _slid(node, (k, v), stored, last, start, window)
    else:
        kept = seen = [_kept(node, 3 + i, x, stored[i], start, total) for i, x in enumerate((k, v))]
    seen = [s.unpacked(x) for s, x in zip(stored, seen, strict=True)]
    bias, sink = _scores_bias(node, total), _sink(node, heads)
    if not node.attr("causal", 1):
        if window > 0 or softcap or sink is not None:
            raise node.fail("causal=0 with a window, softcap or a sink is not supported")
        return _all_seen(node, q, seen, last, total, bias, groups), *kept
    return _shared_attention(node, q, seen, start, total, bias, sink, groups, window, softcap), *kept


_EPSILONS = ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon")
_STORED = ("k_quant_type", "v_quant_type", "kv_cache_bit_width")


def _normed(node: Node, x: Expr, index: int, own: str) -> Expr:
    """Each head [..., D] brought to a mean square of 1, times a weight [D]."""
    epsilon = node.attr(own, node.attr("qk_norm_epsilon", 1e-6))
    return node.emit(op.nn.rms_norm(x, node.input(index), axes=(info_of(x).ndim - 1,), epsilon=epsilon))


def _shared_attention(
    node: Node, q: Expr, seen: Sequence[Expr], start: Expr, total: Dim, bias: Expr | None, sink: Expr | None,
    groups: int, window: int = -1, softcap: float = 0.0,
) -> Expr:  # fmt: skip
    """[B, S, H * E] of queries [B, S, H, D] and the keys and values [B, G, L, ...] that they see."""
    batch, length, heads, width = info_of(q).dims
    shared = as_int(heads) // groups
    apart = node.emit(op.reshape(q, ShapeExpr((batch, length, groups, shared, width))))
    rows = node.emit(op.permute_dims(apart, axes=[0, 2, 1, 3, 4]))
    rows = node.emit(op.reshape(rows, ShapeExpr((batch, groups, plain(length * shared), width))))
    context = op.nn.cached_attention(
        rows, seen[0], seen[1], start, total, bias, sink, scale_of(node), window if window > 0 else None,
        softcap if softcap else None, shared,
    )  # fmt: skip
    width = info_of(seen[1]).dims[3]
    out = node.emit(op.reshape(node.emit(context), ShapeExpr((batch, groups, length, shared, width))))
    out = node.emit(op.permute_dims(out, axes=[0, 2, 1, 3, 4]))
    return node.emit(op.reshape(out, ShapeExpr((batch, length, plain(heads * width)))))


def _all_seen(
    node: Node, q: Expr, seen: Sequence[Expr], last: Expr, total: Dim, bias: Expr | None, groups: int
) -> Expr:  # fmt: skip
    """The same where queries see all keys up to the last of their sequence, those behind themselves too."""
    (batch, length, heads, _), dtype = info_of(q).dims, info_of(q).dtype
    inside = op.less_equal(node.counted(total, 1, 2), op.reshape(last, ShapeExpr((batch, 1))))
    mask = node.emit(op.where(inside, constant(0, dtype), constant(-np.inf, dtype)))
    mask = node.emit(op.reshape(mask, ShapeExpr((batch, 1, 1, total))))
    bias = mask if bias is None else node.emit(op.add(mask, bias))
    found = [cut(info_of(x).dims[2], 0, total) for x in seen]
    k, v = (x if c is None else node.emit(sliced(x, 2, c)) for x, c in zip(seen, found, strict=True))
    shared = as_int(heads) // groups
    layouts = (BSHD, BHSD, BHSD, BSHD)
    out = node.emit(op.nn.attention(q, k, v, bias, scale_of(node), None, layouts=layouts, shared=shared))
    return node.emit(op.reshape(out, ShapeExpr((batch, length, plain(heads * info_of(out).dims[3])))))


def _query_key_value(node: Node, heads: int, groups: int) -> list[Expr]:
    """Queries [B, S, H, D], keys and values [B, S, G, D]. Raises ImportModelError."""
    if groups < 1 or heads % groups:
        raise node.fail(f"{heads} heads that share {groups}")
    if node.has(1) and node.has(2):
        return [by_heads(node, node.input(i), n) for i, n in ((0, heads), (1, groups), (2, groups))]
    whole = by_heads(node, node.input(0), heads + 2 * groups)
    ends = np.cumsum([0, heads, groups, groups]).tolist()
    cuts = [{"begin": (a,), "end": (b,)} for a, b in zip(ends[:-1], ends[1:], strict=True)]
    return [node.emit(op.strided_slice(whole, axes=(2,), strides=(1,), **cut)) for cut in cuts]


def _first_positions(node: Node, last: Expr, length: Dim, total: Dim) -> Expr:
    """[B]: the position of the first new key of each sequence, of which `last` is that of the last; 0 for a prompt.

    Right of a sequence that is shorter than the others in a first prompt stand keys that nobody sees.
    """
    before = node.emit(op.size_values(ShapeExpr((plain(length - 1),)), is_scalar=True))
    start = node.emit(op.maximum(node.emit(op.subtract(last, before)), constant(0, "int64")))
    places = node.emit(op.size_range(ShapeExpr((0, plain(total - length + 1)))))
    return node.emit(op.take(places, start, axis=0))  # which is checked to be one of them


@dataclass(frozen=True)
class _Stored:
    """How keys or values [B, G, S, D] are kept: as they are, or in integers of 8 or 4 bits, two in a byte of these.

    scale  [1, 1, 1, 1] or [1, G, 1, D], in float32; None for what is kept as it is
    """

    node: Node
    dtype: str
    scale: Expr | None = None
    bits: int = 0

    @staticmethod
    def of(node: Node, name: str, index: int, heads: int, width: Dim) -> _Stored:
        """As the attribute `name` says, with the scale at that input. Raises ImportModelError."""
        kind, bits, dtype = node.attr(name, "NONE"), node.attr("kv_cache_bit_width", 8) or 8, node.info(0).dtype
        if kind == "NONE":
            if node.has(index):
                raise node.fail(f"input {index} is a scale, and {name} is NONE")
            return _Stored(node, dtype)
        if kind not in ("PER_TENSOR", "PER_CHANNEL") or bits not in (4, 8) or (bits == 4 and as_int(width) % 2):
            raise node.fail(f"{name}={kind} of {bits} bits and {width} elements is not supported")
        shape = ShapeExpr((1, 1, 1, 1) if kind == "PER_TENSOR" else (1, heads, 1, width))
        if product_of(node.info(index).dims) != product_of(shape.values):
            raise node.fail(f"scales {list(node.info(index).dims)} for {kind} of {heads} heads of {width}")
        scale = node.emit(op.reshape(op.astype(node.input(index), "float32"), shape))
        return _Stored(node, dtype, scale, bits)

    def packed(self, x: Expr) -> Expr:
        """As it is kept."""
        if self.scale is None:
            return x
        emit, most = self.node.emit, 1 << self.bits - 1
        real = x if self.dtype == "float32" else emit(op.astype(x, "float32"))
        whole = op.clip(op.round(emit(op.divide(real, self.scale))), min=-most, max=most - 1)
        if self.bits == 8:
            return emit(op.astype(whole, "int8"))
        raised = emit(op.astype(op.add(whole, constant(most, "float32")), "uint8"))
        axis = info_of(raised).ndim - 1
        low, high = (
            emit(op.strided_slice(raised, axes=(axis,), begin=(i,), end=(TO_THE_END,), strides=(2,))) for i in (0, 1)
        )
        return emit(op.bitwise_or(low, op.left_shift(high, constant(4, "uint8"))))

    def unpacked(self, x: Expr) -> Expr:
        """What it stands for."""
        if self.scale is None:
            return x
        emit, (*lead, width) = self.node.emit, info_of(x).dims
        if self.bits == 4:
            both = [op.bitwise_and(x, constant(15, "uint8")), op.right_shift(x, constant(4, "uint8"))]
            pairs = emit(op.concat(Tuple(tuple(emit(op.expand_dims(v, axis=(len(lead) + 1,))) for v in both)), axis=-1))
            x = emit(op.reshape(pairs, ShapeExpr((*lead, plain(2 * width)))))
        real = op.astype(x, "float32")
        real = op.subtract(real, constant(8, "float32")) if self.bits == 4 else real
        found = emit(op.multiply(real, self.scale))
        return found if self.dtype == "float32" else emit(op.astype(found, self.dtype))


def _kept(node: Node, index: int, new: Expr, stored: _Stored, start: Expr, total: Dim) -> Expr:
    """Keys or values [B, G, L, D] of earlier calls and this one."""
    new = stored.packed(node.emit(op.permute_dims(new, axes=[0, 2, 1, 3])))
    batch, groups, length, width = info_of(new).dims
    if not node.has(index):
        return with_sizes(new, (batch, groups, total, width), node.emit)
    past = _past(node, index, new)
    room = larger(total, info_of(past).dims[2])
    return node.emit(op.nn.cache_update(past, new, start, ShapeExpr((room,))))


def _past(node: Node, index: int, new: Expr) -> Expr:
    """The cache at an input, which differs from what is new in length alone. Raises ImportModelError."""
    past, (batch, groups, _, width) = node.input(index), info_of(new).dims
    if info_of(past).dtype != info_of(new).dtype:
        raise node.fail(f"a past of {info_of(past).dtype} where {info_of(new).dtype} is kept")
    return with_sizes(past, (batch, groups, info_of(past).dims[2], width), node.emit)


def _slid(
    node: Node, news: Sequence[Expr], stored: Sequence[_Stored], last: Expr, start: Expr, window: int
) -> tuple[list[Expr], list[Expr], Expr, Dim]:
    """A cache of the last positions: what is kept, what queries see, where the new keys are in that, its rows.

    Queries see the cache before the call with all new keys behind it; what goes from it, goes afterwards.
    """
    if window < 1 or not node.has(3) or not node.has(4) or node.has(10):
        raise node.fail("sliding_window_cache without a window or a past, or with a bias, is not supported")
    room, length = info_of(node.input(3)).dims[2], info_of(news[0]).dims[1]
    capacity = ShapeExpr((room,))
    first = node.emit(op.nn.window_cache_length(start, capacity, window_size=window))
    total = node.emit(op.add(last, constant(1, "int64")))
    left = node.emit(op.nn.window_cache_length(total, capacity, window_size=window))
    gone = node.emit(op.add(first, op.subtract(op.subtract(total, start), left)))
    places, kept, seen = plain(room + length), [], []
    for at, new in enumerate(news):
        new = stored[at].packed(node.emit(op.permute_dims(new, axes=[0, 2, 1, 3])))
        past = _past(node, 3 + at, new)
        past = with_sizes(past, (*info_of(past).dims[:2], room, info_of(past).dims[3]), node.emit)
        seen.append(node.emit(op.nn.cache_update(past, new, first, ShapeExpr((places,)), keep_rest=False)))
        kept.append(node.emit(op.nn.cache_slide(seen[-1], gone, capacity)))
    return kept, seen, first, places


def _turned(node: Node, q: Expr, k: Expr, start: Expr, tables: int, positions: int | None) -> list[Expr]:
    """Queries and keys turned by the angles of their positions, whose tables are the inputs at `tables`."""
    batch, length = info_of(q).dims[:2]
    if positions is not None and node.has(positions):
        at = node.emit(op.reshape(node.input(positions), ShapeExpr((batch, length))))
    else:
        at = node.emit(op.add(op.reshape(start, ShapeExpr((batch, 1))), node.counted(length, 1, 2)))
    angles = [node.emit(op.expand_dims(op.take(node.input(i), at, axis=0), axis=2)) for i in (tables, tables + 1)]
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


@converter(DOMAIN + "SparseAttention")
def sparse_attention(node: Node) -> tuple[Expr | None, ...]:
    """The same where a block of queries sees some blocks of keys alone, which one or several layouts list by rows.

    Heads have the layouts one after the other, from the first again behind the last.
    """
    only(
        node, range(11), ("num_heads", "kv_num_heads", "scale", "do_rotary", "rotary_interleaved", "sparse_block_size")
    )
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    q, k, v = _query_key_value(node, heads, groups)
    batch, length = info_of(q).dims[:2]
    (total,) = node.sizes_of(7)
    last = node.emit(op.reshape(op.astype(node.input(8), "int64"), ShapeExpr((batch,))))
    start = _first_positions(node, node.emit(op.subtract(last, constant(1, "int64"))), length, total)
    if node.attr("do_rotary", 0):
        q, k = _turned(node, q, k, start, 9, None)
    plainly = _Stored(node, node.info(0).dtype)
    kept = [_kept(node, 3 + i, x, plainly, start, total) for i, x in enumerate((k, v))]
    bias = _blocks_bias(node, start, length, total, heads)
    return _shared_attention(node, q, kept, start, total, bias, None, groups), *kept


def _blocks_bias(node: Node, start: Expr, length: Dim, total: Dim, heads: int) -> Expr:
    """[B, H, S, T]: 0 where a head's queries see keys, -inf where their block does not."""
    size, blocks = node.attr("sparse_block_size"), _blocks(node)
    layouts, rows, columns = blocks.shape
    if size < 1 or heads % layouts or (isinstance(total, int) and total > size * min(rows, columns)):
        raise node.fail(f"{total} keys and {heads} heads for {layouts} layouts of {rows} blocks of {size}")
    batch, side = info_of(start).dims[0], constant(size, "int64")
    at = node.emit(op.add(op.reshape(start, ShapeExpr((batch, 1))), node.counted(length, 1, 2)))
    seen = Constant(np.where(blocks, 0, -np.inf).astype(node.info(0).dtype))
    of_rows = node.emit(op.take(seen, node.emit(op.floor_divide(at, side)), axis=1))  # [layouts, B, S, columns]
    whole = node.emit(op.take(of_rows, node.emit(op.floor_divide(node.counted(total, 0, 1), side)), axis=3))
    whole = node.emit(op.permute_dims(whole, axes=(1, 0, 2, 3)))
    if layouts in (1, heads):
        return whole
    wide = ShapeExpr((batch, heads // layouts, layouts, length, total))
    repeated = node.emit(op.broadcast_to(op.expand_dims(whole, axis=(1,)), wide))
    return node.emit(op.reshape(repeated, ShapeExpr((batch, heads, length, total))))


def _blocks(node: Node) -> np.ndarray:
    """[layouts, rows, columns]: which blocks of keys each block of queries sees. Raises ImportModelError."""
    ends, columns = node.array(5), node.array(6)
    if ends.ndim != 2 or columns.ndim != 2 or len(ends) != len(columns):
        raise node.fail(f"rows {list(ends.shape)} and columns {list(columns.shape)} of blocks")
    count = ends.shape[1] - 1
    found = np.zeros((len(ends), count, count), np.bool_)
    for layout, (own, places) in enumerate(zip(ends, columns, strict=True)):
        if (np.diff(own) < 0).any() or own[0] != 0 or own[-1] > len(places):
            raise node.fail(f"rows of blocks that end at {own.tolist()}")
        here = places[: own[-1]]
        if here.size and not 0 <= here.min() <= here.max() < count:
            raise node.fail(f"columns {here.min()} to {here.max()} of {count} blocks")
        found[layout, np.repeat(np.arange(count), np.diff(own)), here] = True
    return found
