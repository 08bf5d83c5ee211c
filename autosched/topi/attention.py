"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr, const_int
from autosched.topi.shapes import dims

LAYOUT = "BSHD"  # batch, sequence, heads, elements of a head
_SCORES = ["b", "h", "i", "j"]  # batch, head, query, key


class Layered:
    """A tensor in one of the layouts, read by batch, sequence, head and element."""

    def __init__(self, x: Tensor, layout: str):
        self.x, self.layout = x, layout

    def size(self, axis: str) -> PrimExpr:
        return dims(self.x.shape)[self.layout.index(axis)]

    def __call__(self, **at: ExprLike) -> PrimExpr:
        return self.x(*(at[axis] for axis in self.layout))


@dataclass(frozen=True)
class Cache:
    """Keys of earlier calls in front of the queries' own, in memory that may have room for more.

    start    [B], integers: the position of a sequence's first query; the query at position p sees keys 0 to p
    columns  keys that are looked at, as many as there are or fewer
    shared   query heads that share a head of keys: row i of queries is that of position i // shared
    sink     [H * shared] or None: a score for each head of queries that takes part in the softmax and has no value
    """

    start: Tensor
    columns: PrimExpr
    shared: int = 1
    sink: Tensor | None = None

    def position(self, row: PrimExpr) -> PrimExpr:
        """Which of a call's queries a row is."""
        return row if self.shared == 1 else row // self.shared

    def head(self, head: PrimExpr, row: PrimExpr) -> PrimExpr:
        """The head of queries of a row below a head of keys."""
        return head if self.shared == 1 else head * self.shared + row % self.shared

    def masked(self, x: PrimExpr, b: PrimExpr, row: PrimExpr, key: PrimExpr, window: int | None) -> PrimExpr:
        """-inf where a row of queries does not see a key."""
        last = E.cast("int64", self.start(b)) + self.position(row)
        seen = key <= last if window is None else te.all(key <= last, key > last - window)
        return E.select(seen, x, E.const(float("-inf"), x.dtype))


def broadcast(x: Tensor, *index: PrimExpr) -> PrimExpr:
    """An element of a tensor whose dimensions of one stand for all."""
    own = index[len(index) - x.ndim :]
    return x(*(0 if const_int(s) == 1 else i for s, i in zip(x.shape, own, strict=True)))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    causal_mask: str | None = None,
    window_size: int | None = None,
    layouts: Sequence[str] = (LAYOUT,) * 4,
    zero_rows: str | None = None,
    out_dtype: str | None = None,
    softcap: float | None = None,
    cache: Cache | None = None,
    shared: int = 1,
) -> Tensor:
    """softmax(query keyᵀ * scale + bias) value, a head for itself.

    query   [B, S, H, D], key [B, T, H, D], value [B, T, H, E], each with its dimensions in the order of its layout
    shared  heads of queries that share a head of keys and values, which have so many times fewer
    bias    broadcast to [B, H, S, T]
    causal_mask  "TopLeft": query i sees keys up to i; "BottomRight": up to i + T - S
    window_size  a query sees at most so many keys, itself included, up to the last that it may see
    zero_rows  the queries whose weights are 0 and not NaN: "masked": those that see no key (all scores are -inf);
               "nan": also those with a score of NaN or +inf
    out_dtype  what is computed and summed up in, where it is not the inputs' type, to which weights are then rounded
    softcap    scores x become softcap * tanh(x / softcap) before bias and mask
    cache      which keys a query sees, where the call says it; window_size limits these too
    returns [B, S, H, E] in the order of the fourth layout; 0 where an open T is 0
    Source  Vaswani et al. 2017, section 3.2.1.
    """
    q, k, v = (Layered(x, layout) for x, layout in zip((query, key, value), layouts, strict=False))
    batch, heads, rows = q.size("B"), q.size("H"), q.size("S")
    columns = k.size("S") if cache is None else cache.columns
    d = te.reduce_axis((0, q.size("D")), "d")
    dtype = out_dtype or query.dtype

    def product(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return te.sum(
            E.cast(dtype, q(B=b, H=h, S=i, D=d)) * E.cast(dtype, k(B=b, H=_of_keys(h, shared), S=j, D=d)), axis=d
        )

    scores = te.compute((batch, heads, rows, columns), product, name="attention_scores", varargs_names=_SCORES)

    def shifted(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        x = scores(b, h, i, j) * E.const(scale, dtype)
        if softcap is not None:
            x = te.tanh(x * E.const(1 / softcap, dtype)) * E.const(softcap, dtype)
        if cache is not None:
            x = x if bias is None else x + broadcast(bias, b, cache.head(h, i), cache.position(i), j)
            return cache.masked(x, b, i, j, window_size)
        x = x if bias is None else x + broadcast(bias, b, h, i, j)
        return _masked(x, i, j, rows, columns, causal_mask, window_size)

    # Tuned apart: half of the work can be left out.
    name = "attention_causal" if causal_mask or cache is not None else "attention_scaled"
    scaled = te.compute(scores.shape, shifted, name=name, varargs_names=_SCORES)
    largest, power, total = _softmax(scaled, zero_rows)
    sizes = {"B": batch, "S": rows, "H": heads, "D": v.size("D")}
    j = te.reduce_axis((0, columns), "j")

    def weighted(*at: PrimExpr) -> PrimExpr:
        to = dict(zip(layouts[3], at, strict=True))
        weight = E.cast(query.dtype, power(to["B"], to["H"], to["S"], j))
        value = v(B=to["B"], H=_of_keys(to["H"], shared), S=j, D=to["D"])
        return te.sum(E.cast(dtype, weight) * E.cast(dtype, value), axis=j)

    axes = [x.lower() for x in layouts[3]]
    shape = tuple(sizes[x] for x in layouts[3])
    context = te.compute(shape, weighted, name="attention_context", varargs_names=axes)

    def normalised(*at: PrimExpr) -> PrimExpr:
        to = dict(zip(layouts[3], at, strict=True))
        weights: PrimExpr = total(to["B"], to["H"], to["S"])
        if cache is not None and cache.sink is not None:
            head = cache.sink(cache.head(to["H"], to["S"]))
            weights = weights + te.exp(E.cast(dtype, head) - largest(to["B"], to["H"], to["S"]))
        may_be_none = cache is None and const_int(columns) is None  # keys: their sum is 0 then, of some it is not
        return _mean(context(*at), weights, "masked" if zero_rows is None and may_be_none else zero_rows)

    return te.compute(shape, normalised, name="T_attention", varargs_names=axes)


def _softmax(scaled: Tensor, zero_rows: str | None) -> tuple[Tensor, Tensor, Tensor]:
    """The largest score of each query, [B, H, S]; the scores' powers less it, [B, H, S, T]; their sums, [B, H, S]."""
    columns = scaled.shape[3]
    over = [te.reduce_axis((0, columns), "j") for _ in range(2)]
    zero, hidden = E.const(0, scaled.dtype), E.const(float("-inf"), scaled.dtype)
    largest = te.compute(
        scaled.shape[:3], lambda b, h, i: te.max(scaled(b, h, i, over[0]), axis=over[0]), name="attention_max"
    )

    def power_of(b: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        top: PrimExpr = largest(b, h, i)
        if zero_rows is not None:
            top = E.select(E.compare(E.EQ, top, hidden), zero, top)
        return te.exp(scaled(b, h, i, j) - top)

    power = te.compute(scaled.shape, power_of, name="attention_exp", varargs_names=_SCORES)
    total = te.compute(
        scaled.shape[:3], lambda b, h, i: te.sum(power(b, h, i, over[1]), axis=over[1]), name="attention_sum"
    )
    return largest, power, total


def _mean(context: PrimExpr, weights: PrimExpr, zero_rows: str | None) -> PrimExpr:
    """A weighted sum of values by the sum of its weights; 0 in the rows that `zero_rows` says."""
    zero, one = E.const(0, context.dtype), E.const(1, context.dtype)
    if zero_rows is None:
        return context * (one / weights)
    mean = context * (one / E.select(E.compare(E.EQ, weights, zero), one, weights))
    return mean if zero_rows == "masked" else E.select(E.compare(E.GE, weights, zero), mean, zero)


def _of_keys(head: PrimExpr, shared: int) -> PrimExpr:
    """The head of keys of a head of queries."""
    return head if shared == 1 else head // shared


def _masked(
    x: PrimExpr, i: PrimExpr, j: PrimExpr, rows: PrimExpr, columns: PrimExpr, causal: str | None, window: int | None
) -> PrimExpr:
    """-inf where query i does not see key j."""
    if causal is None:
        return x
    last = i if causal == "TopLeft" else i + (columns - rows)
    seen = j <= last
    if window is not None:
        seen = te.all(seen, j > last - window)
    return E.select(seen, x, E.const(float("-inf"), x.dtype))
