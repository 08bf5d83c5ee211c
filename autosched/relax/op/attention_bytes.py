"""Attention whose query, key, value and weights are quantised, as one operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.expr import Call
from autosched.relax.op.attention import heads_type, reordered
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import Expr, StructInfo, TensorStructInfo
from autosched.topi.attention import LAYOUT
from autosched.topi.attention_bytes import Change, Steps
from autosched.topi.attention_bytes import attention_bytes as compute

ATTRIBUTES = {"changes": (), "weights": (1 / 255, 0, "uint8"), "layouts": (LAYOUT,) * 4}
WIDE = "float32"


def _type(
    query: StructInfo, key: StructInfo, value: StructInfo, changes: Sequence[Change], weights: Steps,
    layouts: Sequence[str], has_bias: bool = False,
) -> TensorStructInfo:  # fmt: skip
    if not weights[0] > 0 or weights[2] not in ("uint8", "int8"):
        raise InvalidValueError(f"attention with weights of {weights}", hint="(a positive scale, a zero point, a byte)")
    if sum(c[0] == "add" for c in changes) != has_bias:
        raise InvalidValueError("one of the changes of attention's scores adds the bias, where there is one")
    if len({tensor(x).dtype for x in (query, key, value)}) != 1:
        raise InvalidTypeError(f"attention of {query}, {key} and {value}: they have one type")
    return heads_type(query, key, value, layouts, WIDE)


def _with_bias(
    query: StructInfo, key: StructInfo, value: StructInfo, bias: StructInfo, changes: Sequence[Change], weights: Steps,
    layouts: Sequence[str],
) -> TensorStructInfo:  # fmt: skip
    q, k = (dict(zip(a, tensor(x).dims, strict=True)) for a, x in zip(layouts, (query, key), strict=False))
    own, full = tensor(bias).static_shape, (q["B"], q["H"], q["S"], k["S"])
    if len(own) > 4 or any(a not in (1, b) for a, b in zip(reversed(own), reversed(full), strict=False)):
        raise ShapeError(f"a bias {own} does not broadcast to {full}")
    return _type(query, key, value, changes, weights, layouts, True)


def _whole(x: Array, steps: Steps) -> Array:
    scale, zero, dtype = steps
    limits = np.iinfo(dtype)
    whole: Array = np.clip(np.rint(x / np.float32(scale)) + zero, limits.min, limits.max) - zero
    return whole


def _reference(
    query: Array, key: Array, value: Array, bias: Array | None, changes: Sequence[Change], weights: Steps,
    layouts: Sequence[str],
) -> Array:  # fmt: skip
    q, k, v = (reordered(x.astype("f8"), a, "BHSD") for x, a in zip((query, key, value), layouts, strict=False))
    x: Array = (q @ k.swapaxes(-1, -2)).astype("f4")
    for kind, *given in changes:
        match kind:
            case "add":
                x = x + bias
            case "quantise":
                scale, point, dtype, again = given
                x = _whole(x, (scale, point, dtype)).astype("f4") * np.float32(again)
            case _:
                x = x * np.float32(given[0]) if kind == "multiply" else x / np.float32(given[0])
    power = np.exp(x.astype("f8") - x.max(axis=-1, keepdims=True))
    share = _whole(power / power.sum(axis=-1, keepdims=True), weights)
    return reordered(share @ v, "BHSD", layouts[3]).astype(WIDE)


_plain = define_op(
    "nn.attention_bytes",
    inputs=("query", "key", "value"),
    attributes=ATTRIBUTES,
    infer_type=_type,
    compute=lambda q, k, v, **more: compute(q, k, v, None, **more),
    reference=lambda q, k, v, **more: _reference(q, k, v, None, **more),
    samples=[sample((1, 5, 2, 4), (1, 7, 2, 4), (1, 7, 2, 6), changes=(("multiply", 0.5),))],
)
_biased = define_op(
    "nn.attention_bytes_bias",
    inputs=("query", "key", "value", "bias"),
    attributes=ATTRIBUTES,
    infer_type=_with_bias,
    compute=compute,
    reference=_reference,
    legal_name="attention_bytes",
    samples=[
        sample((1, 2, 5, 4), (1, 2, 4, 7), (1, 2, 7, 6), (1, 1, 1, 7), layouts=("BHSD", "BHDS", "BHSD", "BSHD"),
               changes=(("divide", 2.0), ("add",), ("quantise", 0.1, 3, "int8", 0.05)), weights=(1 / 128, -5, "int8")),
    ],
)  # fmt: skip


def attention_bytes(
    query: Expr, key: Expr, value: Expr, bias: Expr | None, changes: Sequence[Change], weights: Steps,
    layouts: Sequence[str] = (LAYOUT,) * 4,
) -> Call:  # fmt: skip
    """See `topi.attention_bytes`. Raises ShapeError, InvalidTypeError, InvalidValueError."""
    attrs = {"changes": tuple(changes), "weights": tuple(weights), "layouts": tuple(layouts)}
    return _plain(query, key, value, **attrs) if bias is None else _biased(query, key, value, bias, **attrs)


__all__ = ["attention_bytes"]
