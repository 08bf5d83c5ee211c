"""Scaled dot-product attention, as one operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from autosched import topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.relax.expr import Call
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import float_same, tensor
from autosched.relax.struct_info import Dim, Expr, StructInfo, TensorStructInfo, same_dims
from autosched.te import Tensor
from autosched.tir.expr import as_int
from autosched.topi.attention import LAYOUT

ATTRIBUTES = {
    "scale": None, "causal_mask": None, "window_size": None, "layouts": (LAYOUT,) * 4, "zero_rows": None,
    "out_dtype": None, "shared": 1,
}  # fmt: skip


class _Masks(TypedDict):
    """The attributes but for the scale."""

    causal_mask: str | None
    window_size: int | None
    layouts: Sequence[str]
    zero_rows: str | None
    out_dtype: str | None
    shared: int


class _Attributes(_Masks):
    """All attributes."""

    scale: float | None


def _dims(t: TensorStructInfo, layout: str, what: str) -> dict[str, Dim]:
    if sorted(layout) != sorted(LAYOUT):
        raise InvalidValueError(f"the {what}'s layout '{layout}'", hint=f"an order of the letters of {LAYOUT}")
    if t.ndim != 4:
        raise ShapeError(f"the {what} is {t!r}", hint=f"it has four dimensions, {LAYOUT}")
    return dict(zip(layout, t.dims, strict=True))


def _type(
    query: StructInfo, key: StructInfo, value: StructInfo, layouts: Sequence[str], causal_mask: str | None,
    zero_rows: str | None, out_dtype: str | None, shared: int, **_: object,
) -> TensorStructInfo:  # fmt: skip
    if zero_rows not in (None, "masked", "nan"):
        raise InvalidValueError(f"zero_rows '{zero_rows}'", hint="None, 'masked' or 'nan'")
    if causal_mask not in (None, "TopLeft", "BottomRight"):
        raise InvalidValueError(f"causal_mask '{causal_mask}'", hint="None, 'TopLeft' or 'BottomRight'")
    if shared < 1:
        raise InvalidValueError(f"{shared} heads of queries share a head of keys", hint="one or more")
    return heads_type(query, key, value, layouts, out_dtype, shared)


def heads_type(
    query: StructInfo, key: StructInfo, value: StructInfo, layouts: Sequence[str], out_dtype: str | None,
    shared: int = 1,
) -> TensorStructInfo:  # fmt: skip
    """The type of a result, a query's with a value's elements. Raises ShapeError for sizes that do not fit."""
    t = float_same(query)
    q = _dims(t, layouts[0], "query")
    k, v = _dims(tensor(key), layouts[1], "key"), _dims(tensor(value), layouts[2], "value")
    for what, mine, theirs in (
        ("batch and heads of query and key", (q["B"], q["H"]), (k["B"], k["H"] * shared)),
        ("batch and heads of query and value", (q["B"], q["H"]), (v["B"], v["H"] * shared)),
        ("elements of query and key", (q["D"],), (k["D"],)),
        ("lengths of key and value", (k["S"],), (v["S"],)),
    ):
        if not same_dims(mine, theirs):
            raise ShapeError(f"{what} differ: {mine} and {theirs}")
    out = {"B": q["B"], "S": q["S"], "H": q["H"], "D": v["D"]}
    return TensorStructInfo(tuple(out[x] for x in layouts[3]), out_dtype or t.dtype)


def _bias_type(
    query: StructInfo, key: StructInfo, value: StructInfo, bias: StructInfo, **attrs: Unpack[_Attributes]
) -> StructInfo:
    out = _type(query, key, value, **attrs)
    q, k = (_dims(tensor(x), attrs["layouts"][n], "query") for n, x in enumerate((query, key)))
    full, own = (q["B"], q["H"], q["S"], k["S"]), tensor(bias).dims
    if len(own) > 4 or any(not same_dims((a,), (b,)) and a != 1 for a, b in zip(reversed(own), reversed(full))):  # noqa: B905
        raise ShapeError(f"a bias {tuple(own)} does not broadcast to {full}")
    return out


def reordered(x: Array, source: str, target: str) -> Array:
    return x.transpose([source.index(a) for a in target])


def _reference(
    query: Array, key: Array, value: Array, bias: Array | None, scale: float | None, causal_mask: str | None,
    window_size: int | None, layouts: Sequence[str], zero_rows: str | None, out_dtype: str | None, shared: int,
) -> Array:  # fmt: skip
    q, k, v = (reordered(x.astype(np.float64), a, "BHSD") for x, a in zip((query, key, value), layouts, strict=False))
    k, v = (x.repeat(shared, 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores if bias is None else scores + bias
    if causal_mask is not None:
        rows, columns = scores.shape[-2:]
        last = np.arange(rows)[:, None] + (columns - rows if causal_mask == "BottomRight" else 0)
        seen = np.arange(columns) <= last
        if window_size is not None:
            seen &= np.arange(columns) > last - window_size
        scores = np.where(seen, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = e / e.sum(axis=-1, keepdims=True)
    if zero_rows is not None:
        hidden = np.isneginf(scores).all(axis=-1, keepdims=True) if zero_rows == "masked" else np.isnan(weights)
        weights = np.where(hidden, 0.0, weights)
    return reordered(weights @ v, "BHSD", layouts[3]).astype(out_dtype or query.dtype)


def _compute(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float | None, **more: Unpack[_Masks]
) -> Tensor:
    if scale is None:
        scale = 1 / math.sqrt(as_int(query.shape[more["layouts"][0].index("D")]))
    return topi.attention(query, key, value, bias, scale, **more)


_HEADS = ("BHSD", "BHSD", "BHSD", "BHSD")
_plain = define_op(
    "nn.attention",
    inputs=("query", "key", "value"),
    attributes=ATTRIBUTES,
    infer_type=_type,
    compute=lambda q, k, v, **more: _compute(q, k, v, None, **more),
    reference=lambda q, k, v, **more: _reference(q, k, v, None, **more),
    samples=[
        sample((1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4)),
        sample((2, 3, 2, 4), (2, 7, 2, 4), (2, 7, 2, 6), scale=0.3, causal_mask="BottomRight"),
        sample((1, 2, 6, 4), (1, 2, 6, 4), (1, 2, 6, 4), causal_mask="TopLeft", window_size=2, layouts=_HEADS),
        sample((1, 2, 6, 4), (1, 2, 4, 6), (1, 6, 2, 4), layouts=("BHSD", "BHDS", "BSHD", "BSHD")),
        sample((1, 3, 4, 4), (1, 5, 2, 4), (1, 5, 2, 6), shared=2),
    ],
)
attention_bias = define_op(
    "nn.attention_bias",
    inputs=("query", "key", "value", "bias"),
    attributes=ATTRIBUTES,
    infer_type=_bias_type,
    compute=_compute,
    reference=_reference,
    legal_name="attention",
    samples=[
        sample((1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4), (1, 1, 5, 5)),
        sample((2, 3, 2, 4), (2, 7, 2, 4), (2, 7, 2, 6), (2, 1, 1, 7), scale=0.3),
        sample((2, 3, 2, 4), (2, 7, 2, 4), (2, 7, 2, 6), (2, 1, 1, 7), zero_rows="nan"),
        sample((2, 3, 2, 4), (2, 7, 2, 4), (2, 7, 2, 6), (3, 7), zero_rows="masked"),
    ],
)


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    bias: Expr | None = None,
    scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
    layouts: Sequence[str] = (LAYOUT,) * 4,
    zero_rows: str | None = None,
    out_dtype: str | None = None,
    shared: int = 1,
) -> Call:
    """softmax(query keyᵀ * scale + bias) value, with TVM's signature.

    query, key, value  [batch, length, heads, elements of a head]; bias broadcasts to [batch, heads, rows, columns]
    scale        1 / sqrt(elements of a head) where not given
    causal_mask  None, "TopLeft" or "BottomRight"; window_size limits how many keys a query sees, with a causal mask
    layouts      other orders of the dimensions of query, key, value and result
    zero_rows    the queries that give 0 and not NaN: None, "masked" (those that see no key: all scores are -inf) or
                 "nan" (all whose softmax is NaN; their 0 stands whatever the values are)
    out_dtype    the result's type, which sums and softmax are computed in; None: that of query, key and value
    shared       heads of queries that share a head of keys and values, which have so many times fewer
    Raises ShapeError, ValueError
    """
    attrs: dict[str, object] = {"scale": scale, "causal_mask": causal_mask, "window_size": window_size}
    attrs |= {"layouts": tuple(layouts), "zero_rows": zero_rows}
    attrs |= {"out_dtype": out_dtype, "shared": shared}
    return _plain(query, key, value, **attrs) if bias is None else attention_bias(query, key, value, bias, **attrs)


__all__ = ["attention", "attention_bias"]
