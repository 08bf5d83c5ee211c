"""The change between plain and blocked channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.errors import ShapeError
from autosched.relax.op.conv2d import Array, to_blocked, to_plain
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
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


layout_transform = define_op(
    "layout_transform", attributes={"src_layout": "NCHW", "dst_layout": "NCHW", "channels": 0}, infer_type=_type,
    compute=_compute, reference=_reference,
    samples=[
        sample((2, 8, 3, 3), dst_layout="NCHW4c"), sample((1, 6, 2, 3), dst_layout="NCHW4c"),
        sample((1, 2, 3, 3, 4), src_layout="NCHW4c", channels=7), sample((1, 2, 3, 3, 4), src_layout="NCHW4c"),
        sample((1, 2, 2, 2, 4), src_layout="NCHW4c", dst_layout="NCHW2c", channels=6),
        sample((1, 3, 2, 2, 2), src_layout="NCHW2c", dst_layout="NCHW4c"),
    ],
)  # fmt: skip
