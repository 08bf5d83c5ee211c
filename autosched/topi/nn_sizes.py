"""Images of other sizes in `topi.nn` with TVM's arguments: upsampling, paddings, space to batch and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.image import resize2d, resize3d
from autosched.topi.manipulate import pad as pad_general
from autosched.topi.manipulate import pad_by
from autosched.topi.shapes import compute_over, int_shape


def upsampling(
    data: Tensor, scale_h: float, scale_w: float, layout: str = "NCHW", method: str = "nearest_neighbor",
    align_corners: bool = False, output_shape: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Images `scale_h` times as high and `scale_w` times as wide, by "nearest_neighbor", "bilinear" or "bicubic"."""
    sizes = int_shape(data)
    size = output_shape or [
        int(round(sizes[layout.index(c)] * s)) for c, s in (("H", scale_h), ("W", scale_w))
    ]  # fmt: skip
    how = {"bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, None, size, layout, how, mode, bicubic_alpha=-0.75)


def upsampling3d(
    data: Tensor, scale_d: float, scale_h: float, scale_w: float, layout: str = "NCDHW",
    method: str = "nearest_neighbor", coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Volumes of other sizes, by "nearest_neighbor" or "trilinear"."""
    sizes = int_shape(data)
    scales = (("D", scale_d), ("H", scale_h), ("W", scale_w))
    size = output_shape or [int(round(sizes[layout.index(c)] * s)) for c, s in scales]
    return resize3d(
        data, None, size, layout, "linear" if method == "trilinear" else method, coordinate_transformation_mode
    )  # fmt: skip


def _around(
    data: Tensor, before: Sequence[int], after: Sequence[int] | None, mode: str, name: str
) -> Tensor:  # fmt: skip
    begins = [as_int(n) for n in before]
    return pad_by(data, begins, begins if after is None else [as_int(n) for n in after], mode, name)


def reflect_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, name: str = "ReflectPadInput"
) -> Tensor:  # fmt: skip
    """The tensor with its mirror image around it, without its border."""
    return _around(data, pad_before, pad_after, "reflect", name)


def replicate_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, name: str = "ReplicatePadInput"
) -> Tensor:  # fmt: skip
    """The tensor with its border elements repeated around it."""
    return _around(data, pad_before, pad_after, "replicate", name)


def circular_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, name: str = "CircularPadInput"
) -> Tensor:  # fmt: skip
    """The tensor continued from its other side."""
    return _around(data, pad_before, pad_after, "circular", name)


def space_to_batch_nd(
    data: Tensor, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Tensor:  # fmt: skip
    """Blocks of the padded dimensions 1, 2, … as further entries of the batch, [N * blocks, …]."""
    blocks = [as_int(b) for b in block_shape]
    rank = len(blocks)
    rest = [0] * (data.ndim - 1 - rank)
    x = pad_general(data, [0, *pad_before, *rest], [0, *pad_after, *rest], pad_value)
    sizes = int_shape(x)
    if any(s % b for s, b in zip(sizes[1:], blocks, strict=False)):
        raise ShapeError(f"space_to_batch_nd: {sizes[1 : 1 + rank]} are no multiples of {blocks}")
    n = sizes[0]
    shape = (n * math.prod(blocks), *(s // b for s, b in zip(sizes[1:], blocks, strict=False)), *sizes[1 + rank :])

    def element(*i: PrimExpr) -> PrimExpr:
        index, left = [], E.floordiv(i[0], n)
        for axis in reversed(range(rank)):
            index.append(i[1 + axis] * blocks[axis] + E.floormod(left, blocks[axis]))
            left = E.floordiv(left, blocks[axis])
        return x(E.floormod(i[0], n), *index[::-1], *i[1 + rank :])

    return compute_over(shape, element, "T_space_to_batch")


def batch_to_space_nd(
    data: Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Tensor:  # fmt: skip
    """The opposite of `space_to_batch_nd`, without what is cropped of each dimension."""
    blocks, sizes = [as_int(b) for b in block_shape], int_shape(data)
    rank = len(blocks)
    n, left = divmod(sizes[0], math.prod(blocks))
    if left:
        raise ShapeError(f"batch_to_space_nd: {sizes[0]} entries are no multiple of {math.prod(blocks)}")
    wide = [s * b for s, b in zip(sizes[1:], blocks, strict=False)]
    shape = (n, *(w - b - e for w, b, e in zip(wide, crop_begin_list, crop_end_list, strict=True)), *sizes[1 + rank :])

    def element(*i: PrimExpr) -> PrimExpr:
        at = [v + b for v, b in zip(i[1:], crop_begin_list, strict=False)]
        block: PrimExpr = E.const(0, "int64")
        for p, b in zip(at, blocks, strict=True):
            block = block * b + E.floormod(p, b)
        return data(block * n + i[0], *(E.floordiv(p, b) for p, b in zip(at, blocks, strict=True)), *i[1 + rank :])

    return compute_over(shape, element, "T_batch_to_space")


__all__ = [
    "batch_to_space_nd", "circular_pad", "reflect_pad", "replicate_pad", "space_to_batch_nd", "upsampling",
    "upsampling3d",
]  # fmt: skip
