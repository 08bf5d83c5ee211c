"""Images from the columns of their windows: what `im2col` took apart is added up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from autosched import te
from autosched.errors import ShapeError
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir.expr import PrimExpr, const, if_then_else
from autosched.topi.shapes import axis_names, dims, image_shape

Array = np.ndarray


class Col2ImAttrs(TypedDict):
    """How windows lie in an image, a number for each of its dimensions; `padding` is the begins."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def _type(data: StructInfo, **attrs: Unpack[Col2ImAttrs]) -> TensorStructInfo:
    t, rank = tensor(data, "data"), len(attrs["size"])
    if t.ndim != 2 + 2 * rank or any(len(attrs[name]) != rank for name in ("strides", "padding", "dilation")):
        raise ShapeError(f"col2im takes [N, C, window, places] of {rank} dimensions each, not {t!r}")
    return TensorStructInfo((*t.dims[:2], *attrs["size"]), t.dtype)


def _compute(data: Tensor, **attrs: Unpack[Col2ImAttrs]) -> Tensor:
    """Each pixel is the sum over the places of a window that cover it, one term for each of them."""
    shape, rank = image_shape(data), len(attrs["size"])
    window, places = shape[2 : 2 + rank], shape[2 + rank :]
    steps = list(zip(attrs["strides"], attrs["padding"], attrs["dilation"], places, attrs["size"], strict=True))

    def term(n: PrimExpr, c: PrimExpr, at: Sequence[PrimExpr], tap: Sequence[int]) -> PrimExpr:
        conditions, place = [], []
        for i, k, (stride, before, dilation, count, size) in zip(at, tap, steps, strict=True):
            shift = before - k * dilation
            moved = i + shift
            conditions += [moved % stride == 0] if stride > 1 else []
            conditions += [moved >= 0] if shift < 0 else []
            conditions += [moved <= (count - 1) * stride] if size - 1 + shift > (count - 1) * stride else []
            place.append(moved // stride if stride > 1 else moved)
        value = data(n, c, *tap, *place)
        return if_then_else(te.all(*conditions), value, const(0, data.dtype)) if conditions else value

    def pixel(*axes: PrimExpr) -> PrimExpr:
        n, c, *at = axes
        first, *others = (term(n, c, at, tap) for tap in itertools.product(*map(range, window)))
        for other in others:
            first = first + other
        return first

    result = dims((*shape[:2], *attrs["size"]))
    return te.compute(result, pixel, name="col2im", varargs_names=axis_names(2 + rank))


def _reference(data: Array, **attrs: Unpack[Col2ImAttrs]) -> Array:
    rank = len(attrs["size"])
    window, places = data.shape[2 : 2 + rank], data.shape[2 + rank :]
    steps = list(zip(attrs["strides"], attrs["padding"], attrs["dilation"], strict=True))
    spans = [
        max((count - 1) * s + (k - 1) * d + 1, before + size)
        for (s, before, d), k, count, size in zip(steps, window, places, attrs["size"], strict=True)
    ]
    out = np.zeros((*data.shape[:2], *spans), data.dtype)
    for tap in itertools.product(*map(range, window)):
        lies = [slice(k * d, k * d + (n - 1) * s + 1, s) for k, (s, _, d), n in zip(tap, steps, places, strict=True)]
        out[_behind_channels(lies)] += data[_behind_channels(tap)]
    kept = [slice(b, b + size) for (_, b, _), size in zip(steps, attrs["size"], strict=True)]
    return np.ascontiguousarray(out[_behind_channels(kept)])


def _behind_channels(index: Sequence[int | slice]) -> tuple[int | slice, ...]:
    return (slice(None), slice(None), *index)


col2im = define_op(
    "nn.col2im",
    inputs=("data",),
    attributes={"size": (), "strides": (), "padding": (), "dilation": ()},
    infer_type=_type,
    compute=_compute,
    reference=_reference,
    samples=[
        sample((2, 3, 2, 3, 4, 2), size=(5, 4), strides=(1, 1), padding=(0, 0), dilation=(1, 1)),
        sample((1, 2, 3, 3, 3, 4), size=(5, 7), strides=(2, 2), padding=(1, 1), dilation=(1, 1)),
        sample((1, 2, 2, 3), size=(9,), strides=(3,), padding=(1,), dilation=(4,)),
    ],
)


def windows_along(size: int, window: int, stride: int, pads: int, dilation: int) -> int:
    """How many places a window has in a padded dimension; 0 where it does not fit."""
    room = size + pads - (window - 1) * dilation
    return (room - 1) // stride + 1 if room > 0 else 0
