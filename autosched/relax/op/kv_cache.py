"""Attention of a decoder with keys and values of earlier calls, whose number the call says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict, TypeVar, Unpack

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.expr import Call
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import Limit, OpDef, Sample, define_op, sample
from autosched.relax.op.types import float_same, tensor
from autosched.relax.struct_info import (
    Dim,
    Expr,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    same_dims,
    to_dim,
)
from autosched.te import Tensor
from autosched.tir.dtypes import is_int
from autosched.tir.expr import as_int
from autosched.topi.attention import Cache
from autosched.topi.shapes import known

T = TypeVar("T")
BHSD = ("BHSD",) * 4


def _one_size(shape: StructInfo) -> Dim:
    if not isinstance(shape, ShapeStructInfo) or shape.values is None or len(shape.values) != 1:
        raise InvalidTypeError("a number of keys is one size")
    return TensorStructInfo(shape.values, "int64").dims[0]


def _check_start(start: StructInfo, batch: Dim) -> None:
    t = tensor(start)
    if not is_int(t.dtype) or t.ndim != 1 or not same_dims(t.dims, (batch,)):
        raise ShapeError(f"the first positions are {t!r}", hint=f"integers [{batch}], one of each sequence")


def _heads(x: StructInfo, what: str) -> TensorStructInfo:
    t = tensor(x)
    if t.ndim != 4:
        raise ShapeError(f"the {what} is {t!r}", hint="it has four dimensions, [batch, heads, length, elements]")
    return t


def _update_type(
    past: StructInfo, new: StructInfo, start: StructInfo, shape: StructInfo, keep_rest: bool
) -> TensorStructInfo:
    p, n = _heads(past, "past"), _heads(new, "new part")
    others = [tuple(t.dims[i] for i in (0, 1, 3)) for t in (p, n)]
    if p.dtype != n.dtype or not same_dims(*others):
        raise ShapeError(f"a past {p!r} and a new part {n!r}", hint="they differ in length alone")
    _check_start(start, p.dims[0])
    return TensorStructInfo((p.dims[0], p.dims[1], _one_size(shape), p.dims[3]), p.dtype)


def _update_limits(
    past: StructInfo, new: StructInfo, start: StructInfo, shape: StructInfo, keep_rest: bool
) -> list[Limit]:
    """There is room for what is new."""
    return [(to_dim(_one_size(shape)) - to_dim(tensor(new).dims[2]), 0, None)]


def _updated(past: Array, new: Array, start: Array, shape: Sequence[int], keep_rest: bool) -> Array:
    out = past[:, :, np.clip(np.arange(shape[0]), 0, max(past.shape[2] - 1, 0))] if past.shape[2] else None
    if out is None:
        out = np.zeros((*past.shape[:2], shape[0], past.shape[3]), past.dtype)
    for b, first in enumerate(start):
        at = np.arange(shape[0]) - first
        at = at if keep_rest else np.minimum(at, new.shape[2] - 1)
        inside = (at >= 0) & (at < new.shape[2])
        out[b][:, inside] = new[b][:, at[inside]]
    return out


# Keys or values of earlier calls [B, H, P, D] and new ones [B, H, S, D], of position start[b] on; shape: (length,).
# Behind these stands what was kept there, or (keep_rest=False) the last new one.
cache_update = define_op(
    "nn.cache_update",
    inputs=("past", "new", "start", "shape"),
    attributes={"keep_rest": True},
    infer_type=_update_type,
    limits=_update_limits,
    compute=lambda past, new, start, shape, keep_rest: topi.cache_update(past, new, start, to_dim(shape[0]), keep_rest),
    reference=_updated,
    samples=[
        sample((2, 3, 4, 8), (2, 3, 1, 8), ((2,), "int64"), ShapeStructInfo((5,)), low=0),
        sample((1, 2, 6, 4), (1, 2, 3, 4), ((1,), "int32"), ShapeStructInfo((6,)), low=0),
        sample((2, 2, 6, 4), (2, 2, 2, 4), ((2,), "int32"), ShapeStructInfo((8,)), low=0, high=5, keep_rest=False),
        sample((2, 2, 0, 4), (2, 2, 3, 4), ((2,), "int64"), ShapeStructInfo((3,)), low=0, high=1),
        sample(((2, 1, 4, 8), "int8"), ((2, 1, 2, 8), "int8"), ((2,), "int64"), ShapeStructInfo((6,)), low=0, high=4),
    ],
)


def _length_type(total: StructInfo, shape: StructInfo, window_size: int) -> TensorStructInfo:
    _one_size(shape)
    t = tensor(total)
    _check_start(t, t.dims[0] if t.ndim else 1)
    if window_size < 1:
        raise InvalidValueError(f"window_size {window_size}")
    return TensorStructInfo(t.dims, "int64")


def _length(total: Array, shape: Sequence[int], window_size: int) -> Array:
    step = shape[0] - window_size + 1
    more = np.maximum(total.astype(np.int64) - shape[0], 0)
    return np.asarray(total - -(-more // step) * step)


# How many of total[b] positions are kept in room for `shape` (of one size): when it is full, all but a window go.
window_cache_length = define_op(
    "nn.window_cache_length",
    inputs=("total", "shape"),
    attributes={"window_size": 1},
    infer_type=_length_type,
    limits=lambda total, shape, window_size: [(to_dim(_one_size(shape)) - window_size, 0, None)],
    compute=lambda total, shape, window_size: topi.window_cache_length(total, to_dim(shape[0]), window_size),
    reference=_length,
    samples=[
        sample(((9,), "int64"), ShapeStructInfo((5,)), low=0, high=30, window_size=3),
        sample(((9,), "int32"), ShapeStructInfo((4,)), low=0, high=30, window_size=4),
    ],
)


def _slide_type(kept: StructInfo, start: StructInfo, shape: StructInfo) -> TensorStructInfo:
    t = _heads(kept, "cache")
    _check_start(start, t.dims[0])
    return TensorStructInfo((*t.dims[:2], _one_size(shape), t.dims[3]), t.dtype)


# Rows from start[b] on of keys or values [B, H, P, D], as many as `shape` says; the last one stands for those behind.
cache_slide = define_op(
    "nn.cache_slide",
    inputs=("kept", "start", "shape"),
    infer_type=_slide_type,
    limits=lambda kept, start, shape: [(to_dim(tensor(kept).dims[2]), 1, None)],
    compute=lambda kept, start, shape: topi.cache_slide(kept, start, to_dim(shape[0])),
    reference=lambda kept, start, shape: np.stack(
        [x[:, np.minimum(np.arange(shape[0]) + first, x.shape[1] - 1)] for x, first in zip(kept, start, strict=True)]
    ),
    samples=[
        sample((2, 3, 6, 8), ((2,), "int64"), ShapeStructInfo((4,)), low=0),
        sample((3, 1, 3, 4), ((3,), "int32"), ShapeStructInfo((5,)), low=0, high=3),
    ],
)


class _Attributes(TypedDict):
    scale: float | None
    window_size: int | None
    softcap: float | None
    shared: int


ATTRIBUTES = {"scale": None, "window_size": None, "softcap": None, "shared": 1}


def _attention_type(
    query: StructInfo, key: StructInfo, value: StructInfo, start: StructInfo, shape: StructInfo,
    *more: StructInfo, shared: int, window_size: int | None, softcap: float | None, scale: float | None,
) -> TensorStructInfo:  # fmt: skip
    q, k, v = _heads(float_same(query), "query"), _heads(key, "key"), _heads(value, "value")
    pairs = ((q.dims[:2], k.dims[:2]), (k.dims[:3], v.dims[:3]), (q.dims[3:], k.dims[3:]))
    if not all(same_dims(a, b) for a, b in pairs):
        raise ShapeError(f"queries {q!r}, keys {k!r} and values {v!r} do not fit each other")
    if shared < 1 or (window_size is not None and window_size < 1) or (softcap is not None and softcap <= 0):
        raise InvalidValueError(f"shared {shared}, window_size {window_size}, softcap {softcap}")
    _check_start(start, q.dims[0])
    heads, rows = (known(d) for d in (q.dims[1] * shared, to_dim(q.dims[2]) // shared))
    full = (q.dims[0], heads, rows, _one_size(shape))
    for x in map(tensor, more):  # a bias, and the scores of what has no value
        fits = [same_dims((a,), (b,)) or (a == 1 and x.ndim == 4) for a, b in zip(x.dims, full, strict=False)]
        if not (same_dims(x.dims, (heads,)) or (x.ndim == 4 and all(fits))):
            raise ShapeError(f"{x!r} does not fit scores {full}")
    return TensorStructInfo((*q.dims[:3], v.dims[3]), q.dtype)


def _attention_limits(
    query: StructInfo, key: StructInfo, value: StructInfo, start: StructInfo, shape: StructInfo, *_: StructInfo,
    **_attrs: object,
) -> list[Limit]:  # fmt: skip
    """The keys that are looked at are there, one at least."""
    count = to_dim(_one_size(shape))
    return [(to_dim(tensor(key).dims[2]) - count, 0, None), (count, 1, None)]


def _compute(
    query: Tensor, key: Tensor, value: Tensor, start: Tensor, shape: Sequence[Dim], bias: Tensor | None,
    sink: Tensor | None, scale: float | None, window_size: int | None, softcap: float | None, shared: int,
) -> Tensor:  # fmt: skip
    scale = 1 / math.sqrt(as_int(query.shape[3])) if scale is None else scale
    cache = Cache(start, to_dim(shape[0]), shared, sink)
    return topi.attention(
        query, key, value, bias, scale, None, window_size, BHSD, None, None, softcap, cache
    )  # fmt: skip


def _reference(
    query: Array, key: Array, value: Array, start: Array, shape: Sequence[int], bias: Array | None, sink: Array | None,
    scale: float | None, window_size: int | None, softcap: float | None, shared: int,
) -> Array:  # fmt: skip
    count = int(shape[0])
    batch, heads, rows, width = query.shape
    q, k, v = (x.astype(np.float64) for x in (query, key[:, :, :count], value[:, :, :count]))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(width) if scale is None else scale)
    if softcap is not None:
        scores = np.tanh(scores / softcap) * softcap
    apart = scores.reshape(batch, heads, rows // shared, shared, count).swapaxes(2, 3)
    apart = apart.reshape(batch, heads * shared, rows // shared, count)
    if bias is not None:
        apart = apart + bias
    last = start[:, None].astype(np.int64) + np.arange(rows // shared)
    seen = np.arange(count) <= last[..., None]
    if window_size is not None:
        seen &= np.arange(count) > last[..., None] - window_size
    apart = np.where(seen[:, None], apart, -np.inf)
    with np.errstate(invalid="ignore"):
        top = apart.max(axis=-1, keepdims=True)
        e = np.exp(apart - top)
        total = e.sum(axis=-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink.astype(np.float64).reshape(1, -1, 1, 1) - top)
        weights = (e / total).reshape(batch, heads, shared, rows // shared, count).swapaxes(2, 3)
    context: Array = weights.reshape(batch, heads, rows, count) @ v
    return context.astype(query.dtype)


_INPUTS = ("query", "key", "value", "start", "shape")
_COUNT = ShapeStructInfo((7,))


def _define(name: str, more: Sequence[str], samples: Sequence[Sample]) -> OpDef:
    """The operator with inputs of those names behind the others."""

    def apart(args: Sequence[T]) -> tuple[Sequence[T], T | None, T | None]:
        given = dict(zip(more, args[len(_INPUTS) :], strict=True))
        return args[: len(_INPUTS)], given.get("bias"), given.get("sink")

    def compute(*args: Tensor, **attrs: Unpack[_Attributes]) -> Tensor:
        (query, key, value, start, shape), bias, sink = apart(args)
        return _compute(query, key, value, start, shape, bias, sink, **attrs)  # type: ignore[arg-type]

    def reference(*args: Array, **attrs: Unpack[_Attributes]) -> Array:
        (query, key, value, start, shape), bias, sink = apart(args)
        return _reference(query, key, value, start, shape, bias, sink, **attrs)  # type: ignore[arg-type]

    return define_op(
        f"nn.{name}", inputs=(*_INPUTS, *more), attributes=ATTRIBUTES, infer_type=_attention_type,
        limits=_attention_limits, compute=compute, reference=reference, legal_name="cached_attention", samples=samples,
    )  # fmt: skip


_plain = _define(
    "cached_attention",
    (),
    [
        sample((2, 3, 2, 4), (2, 3, 7, 4), (2, 3, 7, 4), ((2,), "int64"), _COUNT, low=0),
        sample((2, 2, 6, 4), (2, 2, 9, 4), (2, 2, 9, 6), ((2,), "int32"), _COUNT, low=0, high=4, shared=3, softcap=2.0),
        sample((1, 2, 8, 4), (1, 2, 7, 4), (1, 2, 7, 4), ((1,), "int64"), _COUNT, low=0, shared=2, window_size=2),
    ],
)
_biased = _define(
    "cached_attention_bias",
    ("bias",),
    [
        sample((2, 2, 6, 4), (2, 2, 7, 4), (2, 2, 7, 4), ((2,), "int64"), _COUNT, (1, 6, 2, 7), low=0, shared=3),
        sample((2, 2, 2, 4), (2, 2, 7, 4), (2, 2, 7, 4), ((2,), "int64"), _COUNT, (2, 1, 2, 7), low=0),
    ],
)
_sunk = _define(
    "cached_attention_sink",
    ("sink",),
    [sample((2, 2, 6, 4), (2, 2, 7, 4), (2, 2, 7, 4), ((2,), "int64"), _COUNT, (6,), low=0, shared=3)],
)
_sunk_biased = _define(
    "cached_attention_bias_sink",
    ("bias", "sink"),
    [sample((2, 2, 4, 4), (2, 2, 7, 4), (2, 2, 7, 4), ((2,), "int64"), _COUNT, (1, 1, 2, 7), (4,), low=0, shared=2)],
)


def cached_attention(
    query: Expr, key: Expr, value: Expr, start: Expr, count: Dim, bias: Expr | None = None, sink: Expr | None = None,
    scale: float | None = None, window_size: int | None = None, softcap: float | None = None, shared: int = 1,
) -> Call:  # fmt: skip
    """softmax(query keyᵀ * scale + bias) value, of keys that may have been there before the call.

    query  [B, H, S * shared, D]: row i is a query at position start[b] + i // shared, of head h * shared + i % shared
    key    [B, H, L, D] and value [B, H, L, E], of which the first `count` are looked at; a query sees those at its own
           position and before, `window_size` of them at most
    start  [B], integers, 0 at least
    bias   [B or 1, H * shared or 1, S, count], added to scores
    sink   [H * shared]: scores of what takes part in the softmax and has no value
    scale  1 / sqrt(D) where not given; scores x become softcap * tanh(x / softcap) where that is given
    Raises ShapeError, InvalidValueError (ValueError)
    """
    args: list[Expr] = [query, key, value, start, ShapeExpr((count,))]
    attrs = {"scale": scale, "window_size": window_size, "softcap": softcap, "shared": shared}
    if bias is None:
        return _plain.make(args, attrs) if sink is None else _sunk.make([*args, sink], attrs)
    return _biased.make([*args, bias], attrs) if sink is None else _sunk_biased.make([*args, bias, sink], attrs)


__all__ = ["cache_slide", "cache_update", "cached_attention", "window_cache_length"]
