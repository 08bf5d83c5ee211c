"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import topi
from autosched.errors import ShapeError
from autosched.relax.op.conv2d import Array, window_limits
from autosched.relax.op.other_layouts import any_layout
from autosched.relax.op.registry import Limit, define_op, sample
from autosched.relax.op.types import four, pair, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir.dtypes import is_float, largest_finite
from autosched.tir.expr import as_int
from autosched.topi.conv2d import channel_block
from autosched.topi.pool import pooled_size

WINDOW = {"pool_size": (1, 1), "strides": 1, "padding": 0, "dilation": 1, "ceil_mode": False}


def _canonical(attrs: dict[str, object]) -> dict[str, object]:
    changed = {
        "pool_size": pair(attrs["pool_size"], "pool_size"),
        "strides": pair(attrs["strides"], "strides"),
        "padding": four(attrs["padding"]),
        "dilation": pair(attrs["dilation"], "dilation"),
    }
    return {**attrs, **changed, "out_layout": attrs["out_layout"] or attrs["layout"]}


def _check_layout(t: TensorStructInfo, layout: str) -> None:
    if t.ndim != (5 if channel_block(layout) else 4):
        raise ShapeError(f"{t!r} is not of layout {layout}")


def _type(
    data: StructInfo,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    layout: str,
    **_: object,
) -> TensorStructInfo:
    t = tensor(data)
    _check_layout(t, layout)
    shape = t.image_shape
    size = [
        pooled_size(shape[2 + i], pool_size[i], strides[i], dilation[i], padding[i], padding[2 + i], ceil_mode)
        for i in (0, 1)
    ]
    return TensorStructInfo((*shape[:2], *size, *shape[4:]), t.dtype)


def _windows(
    x: Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[Array, Array]:
    """All windows [N, C, OH, OW, rest, KH, KW], NaN outside the padded image; and which elements lie in the image."""
    sizes = [
        pooled_size(x.shape[2 + i], pool_size[i], strides[i], dilation[i], padding[i], padding[2 + i], ceil_mode)
        for i in (0, 1)
    ]

    def positions(i: int) -> Array:
        return (
            np.arange(as_int(sizes[i]))[:, None] * strides[i]
            - padding[i]
            + np.arange(pool_size[i])[None, :] * dilation[i]
        )

    rows, columns = positions(0), positions(1)
    h, w = x.shape[2:4]
    picked = x[:, :, rows.clip(0, h - 1)][:, :, :, :, columns.clip(0, w - 1)]  # N C OH KH OW KW rest
    inside = ((rows >= 0) & (rows < h))[:, :, None, None] & ((columns >= 0) & (columns < w))[None, None]
    return picked, inside


def _fit(mask: Array, picked: Array) -> Array:
    return mask.reshape(1, 1, *mask.shape, *(1,) * (picked.ndim - 6))


def _max(
    data: Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    **_: object,
) -> Array:
    picked, inside = _windows(data, pool_size, strides, padding, dilation, ceil_mode)
    dtype = data.dtype.name
    lowest = -largest_finite(dtype) if is_float(dtype) else np.iinfo(dtype).min
    return np.where(_fit(inside, picked), picked, np.asarray(lowest, data.dtype)).max(axis=(3, 5))  # type: ignore[no-any-return]


def _avg(
    data: Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    **_: object,
) -> Array:
    picked, inside = _windows(data, pool_size, strides, padding, dilation, ceil_mode)
    total = np.where(_fit(inside, picked), picked, 0).sum(axis=(3, 5), dtype=np.float64)
    if count_include_pad:
        ones = np.ones((1, 1, data.shape[2] + padding[0] + padding[2], data.shape[3] + padding[1] + padding[3]))
        inside = _windows(ones, pool_size, strides, (0, 0, 0, 0), dilation, ceil_mode)[1]
        inside = inside[: picked.shape[2], :, : picked.shape[4]]
    count = inside.sum(axis=(1, 3))
    return (total / count.reshape(*count.shape, *(1,) * (data.ndim - 4))).astype(data.dtype)  # type: ignore[no-any-return]


def _fits(
    data: StructInfo, pool_size: Sequence[int], padding: Sequence[int], dilation: Sequence[int], **_: object
) -> list[Limit]:
    """A window fits into the padded image."""
    return window_limits(tensor(data).dims[2:4], pool_size, dilation, padding)


LAYOUT = {"layout": "NCHW", "out_layout": None}


def _max_compute(
    x: Tensor, pool_size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool, keep_nan: bool, **_: object,
) -> Tensor:  # fmt: skip
    return topi.max_pool2d(x, pool_size, strides, padding, dilation, ceil_mode, keep_nan)


def _max_canonical(attrs: dict[str, object]) -> dict[str, object]:
    """TVM's pools have all options in common; padding is never a maximum, whether it counts or not."""
    return {k: v for k, v in _canonical(attrs).items() if k != "count_include_pad"}


max_pool2d = define_op(
    "nn.max_pool2d",
    inputs=("data",),
    attributes={**WINDOW, "count_include_pad": False, **LAYOUT, "keep_nan": False},
    canonical=_max_canonical,
    **any_layout("layout", _type, _max_compute, _max, _fits),
    samples=[
        sample((1, 6, 6, 2), pool_size=2, strides=2, layout="NHWC"),
        sample((1, 2, 6, 6), pool_size=2, strides=2),
        sample((1, 2, 7, 6), pool_size=(3, 2), strides=2, padding=1),
        sample((1, 2, 6, 6), pool_size=3, strides=2, ceil_mode=True),
        sample((1, 2, 7, 7), pool_size=2, strides=1, padding=(0, 1, 1, 0), dilation=2),
        sample((1, 2, 5, 5, 4), pool_size=3, strides=2, padding=1, layout="NCHW4c"),
    ],
)


def _avg_compute(
    x: Tensor, pool_size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, **_: object,
) -> Tensor:  # fmt: skip
    return topi.avg_pool2d(x, pool_size, strides, padding, dilation, ceil_mode, count_include_pad)


avg_pool2d = define_op(
    "nn.avg_pool2d",
    inputs=("data",),
    attributes={**WINDOW, "count_include_pad": False, **LAYOUT},
    canonical=_canonical,
    **any_layout("layout", _type, _avg_compute, _avg, _fits),
    samples=[
        sample((1, 6, 6, 2), pool_size=2, strides=2, layout="NHWC"),
        sample((1, 2, 6, 6), pool_size=2, strides=2),
        sample((1, 2, 7, 6), pool_size=(3, 2), strides=2, padding=1),
        sample((1, 2, 7, 6), pool_size=3, strides=2, padding=1, count_include_pad=True),
        sample((1, 2, 6, 6), pool_size=3, strides=2, ceil_mode=True),
        sample((1, 2, 6, 6), pool_size=3, strides=2, padding=(0, 0, 1, 1), ceil_mode=True, count_include_pad=True),
        sample((1, 2, 5, 5, 4), pool_size=3, strides=2, padding=1, layout="NCHW4c"),
    ],
)


def _adaptive_canonical(attrs: dict[str, object]) -> dict[str, object]:
    size = attrs["output_size"]
    return {
        **attrs,
        "output_size": None if size is None else pair(size, "output_size"),
        "out_layout": attrs["out_layout"] or attrs["layout"],
    }


def _adaptive_type(data: StructInfo, output_size: Sequence[int], layout: str, out_layout: str) -> TensorStructInfo:
    t = tensor(data)
    _check_layout(t, layout)
    size = output_size or t.dims[2:4]
    return TensorStructInfo((*t.dims[:2], *size, *t.dims[4:]), t.dtype)


def _adaptive(data: Array, output_size: Sequence[int], layout: str, out_layout: str) -> Array:
    rows, columns = output_size or data.shape[2:4]
    h, w = data.shape[2:4]
    out = np.empty((*data.shape[:2], rows, columns, *data.shape[4:]), data.dtype)
    for i in range(rows):
        for j in range(columns):
            part = data[:, :, i * h // rows : -(-(i + 1) * h // rows), j * w // columns : -(-(j + 1) * w // columns)]
            out[:, :, i, j] = part.mean(axis=(2, 3), dtype=np.float64)
    return out


def _adaptive_compute(x: Tensor, output_size: Sequence[int], layout: str, out_layout: str) -> Tensor:
    return topi.identity(x) if output_size is None else topi.adaptive_avg_pool2d(x, output_size)


adaptive_avg_pool2d = define_op(
    "nn.adaptive_avg_pool2d",
    inputs=("data",),
    attributes={"output_size": None, **LAYOUT},
    canonical=_adaptive_canonical,
    **any_layout("layout", _adaptive_type, _adaptive_compute, _adaptive),
    samples=[
        sample((1, 6, 6, 2), output_size=2, layout="NHWC"),
        sample((1, 2, 6, 6), output_size=1),
        sample((2, 3, 7, 5), output_size=(3, 2)),
        sample((1, 2, 6, 6), output_size=3),
        sample((1, 2, 3, 3, 4), output_size=1, layout="NCHW4c"),
    ],
)
