"""Operators of neural networks that move elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from autosched import topi
from autosched.errors import ShapeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.topi.shapes import int_shape

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
