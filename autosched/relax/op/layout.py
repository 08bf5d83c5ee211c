"""Changes of layout: between plain and blocked channels, and by a map of indices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from autosched import te
from autosched.errors import InvalidValueError, ShapeError
from autosched.relax.expr import PrimValue
from autosched.relax.op.conv2d import Array, to_blocked, to_plain
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.functor import substitute
from autosched.tir.index_map import IndexMap
from autosched.topi import layout
from autosched.topi.conv2d import channel_block
from autosched.topi.shapes import image_shape


def _channels(shape: Sequence[Any], source: int, channels: int) -> int:
    stored = shape[1] * (source or 1)
    if channels > stored or (not source and channels not in (0, stored)):
        raise ShapeError(f"{channels} channels out of {stored}")
    return channels or stored


def _type(x: StructInfo, src_layout: str, dst_layout: str, channels: int) -> TensorStructInfo:
    t = tensor(x)
    source, target = channel_block(src_layout), channel_block(dst_layout)
    shape = t.image_shape
    if len(shape) != (5 if source else 4) or (source and shape[4] != source):
        raise ShapeError(f"{t!r} is not of layout {src_layout}")
    count = _channels(shape, source, channels)
    if target:
        return TensorStructInfo((shape[0], -(-count // target), *shape[2:4], target), t.dtype)
    return TensorStructInfo((shape[0], count, *shape[2:4]), t.dtype)


def _reference(x: Array, src_layout: str, dst_layout: str, channels: int) -> Array:
    source, target = channel_block(src_layout), channel_block(dst_layout)
    plain = to_plain(x, source)[:, : _channels(x.shape, source, channels)]
    missing = -plain.shape[1] % target if target else 0
    if missing:
        plain = np.pad(plain, ((0, 0), (0, missing), (0, 0), (0, 0)))
    return to_blocked(plain, target) if target else np.ascontiguousarray(plain)


def _compute(x: Tensor, src_layout: str, dst_layout: str, channels: int) -> Tensor:
    source = channel_block(src_layout)
    return layout.layout_transform(x, src_layout, dst_layout, _channels(image_shape(x), source, channels))


def _by_map(x: StructInfo, index_map: IndexMap, pad_value: float | None, **_: object) -> TensorStructInfo:
    t = tensor(x)
    return TensorStructInfo(index_map.map_shape([*map(E.to_expr, t.static_shape)]), t.dtype)


def _map_compute(x: Tensor, index_map: IndexMap, pad_value: float | None) -> Tensor:
    back, padding = index_map.non_surjective_inverse(x.shape)
    fill = E.const(pad_value or 0, x.dtype)

    def element(*at: E.PrimExpr) -> E.PrimExpr:
        values = dict(zip(back.initial_indices, at, strict=True))
        value = x(*(substitute(i, values) for i in back.final_indices))
        return value if E.const_int(padding) == 0 else E.if_then_else(substitute(padding, values), fill, value)

    return te.compute(index_map.map_shape(x.shape), element, name="te_layout_transform")


def _map_reference(x: Array, index_map: IndexMap, pad_value: float | None) -> Array:
    shape = [E.as_int(n) for n in index_map.map_shape(x.shape)]
    result = np.full(shape, pad_value or 0, x.dtype)
    for at in product(*map(range, x.shape)):
        result[tuple(E.as_int(i) for i in index_map.map_indices([*map(E.to_expr, at)]))] = x[at]
    return result


BLOCKED = {"src_layout": "NCHW", "dst_layout": "NCHW", "channels": 0}
MAPPED = {"index_map": None, "pad_value": None}


def _attrs(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of one of the two forms; TVM's first one is the map."""
    index_map = attrs["index_map"] or (None if isinstance(attrs["src_layout"], str) else attrs["src_layout"])
    if index_map is None:
        return {k: attrs[k] for k in BLOCKED}
    if any(attrs[k] for k in ("axis_separators", "input_axis_separators")):
        raise InvalidValueError("axis separators", hint="buffers have one order of dimensions")
    if not isinstance(index_map, IndexMap):
        index_map = IndexMap.from_func(index_map, dtype="int64")
    pad = attrs["pad_value"]
    if isinstance(pad, PrimValue):
        pad = pad.value
    return {"index_map": index_map, "pad_value": pad.value if isinstance(pad, E.IntImm | E.FloatImm) else pad}


layout_transform = define_op(
    "layout_transform", attributes={**BLOCKED, **MAPPED, "axis_separators": None, "input_axis_separators": None},
    canonical=_attrs, infer_type=lambda x, **form: (_by_map if "index_map" in form else _type)(x, **form),
    compute=lambda x, **form: (_map_compute if "index_map" in form else _compute)(x, **form),
    reference=lambda x, **form: (_map_reference if "index_map" in form else _reference)(x, **form),
    samples=[
        sample((2, 8, 3, 3), dst_layout="NCHW4c"), sample((1, 6, 2, 3), dst_layout="NCHW4c"),
        sample((1, 2, 3, 3, 4), src_layout="NCHW4c", channels=7), sample((1, 2, 3, 3, 4), src_layout="NCHW4c"),
        sample((1, 2, 2, 2, 4), src_layout="NCHW4c", dst_layout="NCHW2c", channels=6),
        sample((1, 3, 2, 2, 2), src_layout="NCHW2c", dst_layout="NCHW4c"),
        sample((3, 5), index_map=lambda a, b: (b // 2, a, b % 2), pad_value=1.5),
        sample((4, 3), index_map=lambda a, b: (a * 3 + b,)),
        sample((4,), index_map=lambda a: (a * 2 + 1,), pad_value=-1.0),
    ],
)  # fmt: skip
