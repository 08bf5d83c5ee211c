"""Operators of neural networks that move elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict, TypeVar, Unpack

import numpy as np

from autosched import te, topi
from autosched.errors import ShapeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.topi.conv2d import channel_block
from autosched.topi.shapes import dims, image_shape, int_shape, known

T = TypeVar("T", Tensor, np.ndarray)


def _flat_shape(shape: Sequence[int]) -> tuple[int, int]:
    return shape[0], math.prod(shape[1:])


batch_flatten = define_op(
    "nn.batch_flatten", infer_type=lambda x: TensorStructInfo(_flat_shape(tensor(x).static_shape), tensor(x).dtype),
    compute=lambda x: topi.reshape(x, _flat_shape(int_shape(x))), reference=lambda x: x.reshape(_flat_shape(x.shape)),
    samples=[sample((2, 3, 4))], is_view=True, legal_name="reshape",
)  # fmt: skip


def _pixel_shuffle_type(data: StructInfo, upscale_factor: int) -> TensorStructInfo:
    t = tensor(data)
    *lead, c, h, w = t.static_shape
    if c % upscale_factor**2:
        raise ShapeError(f"{c} channels for an upscale factor of {upscale_factor}")
    return TensorStructInfo((*lead, c // upscale_factor**2, h * upscale_factor, w * upscale_factor), t.dtype)


def _shuffled(
    x: T, r: int, reshape: Callable[[T, tuple[int, ...]], T], transpose: Callable[[T, tuple[int, ...]], T]
) -> T:
    sizes: list[int] = [E.as_int(s) for s in x.shape]
    lead: list[int] = sizes[:-3]
    n: int = len(lead)
    c, h, w = sizes[-3:]
    parts = reshape(x, (*lead, c // r**2, r, r, h, w))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(transpose(parts, order), (*lead, c // r**2, h * r, w * r))


pixel_shuffle = define_op(
    "nn.pixel_shuffle", inputs=("data",), attributes={"upscale_factor": 1}, infer_type=_pixel_shuffle_type,
    compute=lambda x, upscale_factor: _shuffled(x, upscale_factor, topi.reshape, topi.transpose),
    reference=lambda x, upscale_factor: _shuffled(x, upscale_factor, np.reshape, np.transpose),
    samples=[sample((1, 8, 2, 3), upscale_factor=2)],
)  # fmt: skip


class DepthToSpaceAttrs(TypedDict):
    """How many rows and columns a pixel becomes, what is cut off: rows above, columns before, rows below, behind."""

    strides: tuple[int, int]
    crop: tuple[int, int, int, int]
    layout: str


def _depth_to_space_type(data: StructInfo, **attrs: Unpack[DepthToSpaceAttrs]) -> TensorStructInfo:
    t, strides, crop = tensor(data), attrs["strides"], attrs["crop"]
    if len(strides) != 2 or min(strides) < 1 or len(crop) != 4 or min(crop) < 0:
        raise ShapeError(f"strides {strides}, crop {crop}")
    (rows, columns), (top, left, bottom, right) = strides, crop
    if t.ndim != (5 if channel_block(attrs["layout"]) else 4):
        raise ShapeError(f"{t!r} is not of layout {attrs['layout']}")
    n, c, h, w, *lanes = t.image_shape
    if c % (rows * columns):
        raise ShapeError(f"{c} channels for pixels that become {rows} x {columns}")
    size = known(h * rows - top - bottom), known(w * columns - left - right)
    if any(isinstance(n, int) and n < 0 for n in size):
        raise ShapeError(f"crop {crop} of images of {h * rows} x {w * columns}")
    return TensorStructInfo((n, c // (rows * columns), *size, *lanes), t.dtype)


def _depth_to_space(data: Tensor, **attrs: Unpack[DepthToSpaceAttrs]) -> Tensor:
    (rows, columns), (top, left, bottom, right) = attrs["strides"], attrs["crop"]
    n, c, h, w, *lanes = image_shape(data)
    count = c // (rows * columns)

    def pixel(*at: E.PrimExpr) -> E.PrimExpr:
        image, channel, y, x, *lane = at
        y, x = y + top, x + left
        phase = y % rows * columns + x % columns
        return data(image, phase * count + channel, y // rows, x // columns, *lane)

    size = h * rows - top - bottom, w * columns - left - right
    return te.compute(dims((n, count, *size, *lanes)), pixel, name="T_depth_to_space")


def _depth_to_space_reference(data: np.ndarray, **attrs: Unpack[DepthToSpaceAttrs]) -> np.ndarray:
    (rows, columns), (top, left, bottom, right) = attrs["strides"], attrs["crop"]
    n, c, h, w, *lanes = data.shape
    phases = data.reshape(n, rows, columns, c // (rows * columns), h, w, *lanes)
    axes = (0, 3, 4, 1, 5, 2, *range(6, phases.ndim))
    whole = phases.transpose(axes).reshape(n, -1, h * rows, w * columns, *lanes)
    return np.ascontiguousarray(whole[:, :, top : h * rows - bottom, left : w * columns - right])


# A copy of whole blocks: only what computes each element from the same one joins it, no other change of order.
depth_to_space = define_op(
    "nn.depth_to_space", inputs=("data",),
    attributes={"strides": (1, 1), "crop": (0, 0, 0, 0), "layout": "NCHW"}, infer_type=_depth_to_space_type,
    compute=_depth_to_space, reference=_depth_to_space_reference, is_anchor=True,
    samples=[
        sample((1, 12, 2, 3), strides=(2, 3)),
        sample((2, 4, 3, 2, 4), strides=(2, 2), crop=(1, 0, 2, 1), layout="NCHW4c"),
    ],
)  # fmt: skip
