"""Convolutions over one and three dimensions, and transposed convolutions over one to three, in plain layouts.

`plane_windows` is what makes a convolution over three dimensions one over images.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NotRequired, TypedDict, Unpack

import numpy as np

from autosched import topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.ir.node import Attrs
from autosched.relax.op.conv2d import window_limits
from autosched.relax.op.other_layouts import any_layout
from autosched.relax.op.registry import Canonical, Limit, OpDef, Sample, define_op, sample
from autosched.relax.op.types import common_dtype, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo, to_dim
from autosched.te import Tensor
from autosched.tir.expr import as_int
from autosched.topi.conv2d import out_size
from autosched.topi.conv_nd import Spatial, conv_shape, conv_transpose_shape
from autosched.topi.shapes import ImageShape, known

Array = np.ndarray
AXES = {1: "W", 2: "HW", 3: "DHW"}


def several(x: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """One number or `count` as `count`. Raises ValueError for another number of them."""
    items = (x,) if isinstance(x, int) else tuple(int(v) for v in x)
    if len(items) == 1:
        items = items * count
    if len(items) != count:
        raise InvalidValueError(f"{what} needs one number or {count}, got {items}")
    return items


def begins_and_ends(x: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Padding as all begins, then all ends, from one number, one a dimension, or both for each."""
    items = (x,) if isinstance(x, int) else tuple(int(v) for v in x)
    return several(items, 2 * rank, "padding") if len(items) == 2 * rank else several(items, rank, "padding") * 2


def _canonical(rank: int, weight_layout: str, is_free: bool) -> Canonical:
    """Layouts may be any order of the plain ones' letters where `is_free`, else those alone."""
    data_layout = "NC" + AXES[rank]

    def canonical(attrs: Attrs) -> Attrs:
        for name, only in (("data_layout", data_layout), ("kernel_layout", weight_layout), ("out_layout", data_layout)):
            given = attrs[name] or only
            if given != only and not (is_free and sorted(given) == sorted(only)):
                raise InvalidValueError(
                    f"{name} '{attrs[name]}' is not supported", hint=f"an order of {only}" if is_free else f"use {only}"
                )
        new = {k: several(attrs[k], rank, k) for k in ("strides", "dilation", "output_padding") if k in attrs}
        out = attrs["out_layout"] or attrs["data_layout"] if is_free else data_layout
        return {**attrs, **new, "padding": begins_and_ends(attrs["padding"], rank), "out_layout": out}

    return canonical


class ConvAttrs(TypedDict):
    """The attributes in their canonical form; `output_padding` only of transposed convolutions."""

    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: NotRequired[tuple[int, ...]]
    groups: int
    data_layout: str
    kernel_layout: str
    out_layout: str | None
    out_dtype: str | None


def _spatial(attrs: ConvAttrs) -> Spatial:
    return Spatial(attrs["strides"], attrs["padding"], attrs["dilation"])


def _fits(data: StructInfo, weight: StructInfo, **attrs: Unpack[ConvAttrs]) -> list[Limit]:
    """A window fits into the padded data."""
    d, w = tensor(data, "data").dims, tensor(weight, "weight").dims
    return window_limits(d[2:], w[2:], attrs["dilation"], attrs["padding"])


def _leaves_some(data: StructInfo, weight: StructInfo, **attrs: Unpack[ConvAttrs]) -> list[Limit]:
    """The padding cuts off less than there is."""
    return [(to_dim(size), 1, None) for size in _transpose_type(data, weight, **attrs).dims[2:]]


def _type(shape: ImageShape, data: TensorStructInfo, weight: TensorStructInfo, attrs: ConvAttrs) -> TensorStructInfo:
    return TensorStructInfo(tuple(shape), attrs["out_dtype"] or common_dtype(data, weight))


def _conv_type(data: StructInfo, weight: StructInfo, **attrs: Unpack[ConvAttrs]) -> TensorStructInfo:
    d, w = tensor(data, "data"), tensor(weight, "weight")
    return _type(conv_shape(d.image_shape, w.static_shape, _spatial(attrs), attrs["groups"]), d, w, attrs)


def _transpose_type(data: StructInfo, weight: StructInfo, **attrs: Unpack[ConvAttrs]) -> TensorStructInfo:
    d, w = tensor(data, "data"), tensor(weight, "weight")
    extra, groups = attrs["output_padding"], attrs["groups"]
    return _type(conv_transpose_shape(d.image_shape, w.static_shape, _spatial(attrs), extra, groups), d, w, attrs)


def _converted(x: Tensor, attrs: ConvAttrs) -> Tensor:
    """What products are computed and summed in: `out_dtype`."""
    return x if attrs["out_dtype"] in (None, x.dtype) else topi.cast(x, attrs["out_dtype"])


def _conv_compute(data: Tensor, weight: Tensor, **attrs: Unpack[ConvAttrs]) -> Tensor:
    return topi.conv_nd(_converted(data, attrs), _converted(weight, attrs), _spatial(attrs), attrs["groups"])


def _transpose_compute(data: Tensor, weight: Tensor, **attrs: Unpack[ConvAttrs]) -> Tensor:
    x, w = _converted(data, attrs), _converted(weight, attrs)
    return topi.conv_transpose_nd(x, w, _spatial(attrs), attrs["output_padding"], attrs["groups"])


def _at_tap(weight: Array, tap: tuple[int, ...]) -> Array:
    """The weights [groups, …, …] of one element of the window."""
    at: tuple[int | slice, ...] = (slice(None), slice(None), slice(None), *tap)
    part: Array = weight[at]
    return part


def conv_reference(data: Array, weight: Array, **attrs: Unpack[ConvAttrs]) -> Array:
    """Convolution as a sum over the window's taps, each a product of matrices."""
    g, groups = _spatial(attrs), attrs["groups"]
    shape = conv_shape(data.shape, weight.shape, g, groups)
    if attrs["out_dtype"]:
        data, weight = data.astype(attrs["out_dtype"]), weight.astype(attrs["out_dtype"])
    padded = np.pad(data, [(0, 0), (0, 0), *(g.around(i) for i in range(g.rank))])
    out = np.zeros((shape[0], groups, shape[1] // groups, *shape[2:]), np.result_type(data, weight))
    split = weight.reshape(groups, -1, *weight.shape[1:])
    for tap in itertools.product(*map(range, weight.shape[2:])):
        at = tuple(
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, s, size in zip(tap, g.dilation, g.strides, shape[2:], strict=True)
        )
        seen = padded[(slice(None), slice(None), *at)]
        seen = seen.reshape(seen.shape[0], groups, -1, *shape[2:])
        out += np.einsum("goc,ngc...->ngo...", _at_tap(split, tap), seen)
    return out.reshape(shape).astype(data.dtype, copy=False)


def transpose_reference(data: Array, weight: Array, **attrs: Unpack[ConvAttrs]) -> Array:
    """Transposed convolution: each element of the data adds its multiple of the window to the result."""
    g, groups, extra = _spatial(attrs), attrs["groups"], attrs["output_padding"]
    shape = conv_transpose_shape(data.shape, weight.shape, g, extra, groups)
    if attrs["out_dtype"]:
        data, weight = data.astype(attrs["out_dtype"]), weight.astype(attrs["out_dtype"])
    full = [size + sum(g.around(i)) for i, size in enumerate(shape[2:])]
    out = np.zeros((shape[0], groups, weight.shape[1], *full), np.result_type(data, weight))
    split = weight.reshape(groups, -1, *weight.shape[1:])
    parts = data.reshape(data.shape[0], groups, -1, *data.shape[2:])
    for tap in itertools.product(*map(range, weight.shape[2:])):
        at = tuple(
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, s, size in zip(tap, g.dilation, g.strides, data.shape[2:], strict=True)
        )
        out[(slice(None), slice(None), slice(None), *at)] += np.einsum("gco,ngc...->ngo...", _at_tap(split, tap), parts)
    kept = tuple(slice(g.around(i)[0], g.around(i)[0] + size) for i, size in enumerate(shape[2:]))
    result = out.reshape(shape[0], shape[1], *full)[(slice(None), slice(None), *kept)]
    return np.ascontiguousarray(result).astype(data.dtype, copy=False)


def _attributes(rank: int, weight_layout: str, extra: Attrs) -> Attrs:
    layouts = {"data_layout": "NC" + AXES[rank], "kernel_layout": weight_layout, "out_layout": None, "out_dtype": None}
    return {"strides": 1, "padding": 0, **extra, "dilation": 1, "groups": 1, **layouts}


def _conv(rank: int, samples: Sequence[Sample]) -> OpDef:
    layout = "OI" + AXES[rank]
    return define_op(
        f"nn.conv{rank}d", inputs=("data", "weight"), attributes=_attributes(rank, layout, {}),
        canonical=_canonical(rank, layout, is_free=True), samples=samples,
        **any_layout("data_layout", _conv_type, _conv_compute, conv_reference, _fits),
    )  # fmt: skip


def _transposed(rank: int, samples: Sequence[Sample]) -> OpDef:
    layout = "IO" + AXES[rank]
    return define_op(
        f"nn.conv{rank}d_transpose", inputs=("data", "weight"),
        attributes=_attributes(rank, layout, {"output_padding": 0}), canonical=_canonical(rank, layout, is_free=False),
        infer_type=_transpose_type, compute=_transpose_compute, reference=transpose_reference, samples=samples,
        limits=_leaves_some,
    )  # fmt: skip


conv1d = _conv(
    1,
    [
        sample((1, 3, 9), (4, 3, 3), padding=1),
        sample((2, 4, 11), (6, 2, 2), strides=2, padding=(0, 2), dilation=3, groups=2),
        sample(((1, 3, 9), "uint8"), ((4, 3, 3), "uint8"), out_dtype="int32"),
        sample((1, 9, 3), (3, 3, 4), padding=1, data_layout="NWC", kernel_layout="WIO"),
    ],
)
conv3d = _conv(
    3,
    [
        sample((1, 2, 4, 5, 3), (3, 2, 3, 3, 3), padding=1),
        sample((2, 4, 5, 4, 6), (4, 2, 2, 1, 3), strides=(2, 1, 1), padding=(1, 0, 1, 0, 0, 2), groups=2),
        sample(((1, 2, 4, 5, 3), "float16"), ((3, 2, 3, 3, 3), "float16"), out_dtype="float32"),
        sample((1, 4, 5, 3, 2), (3, 2, 3, 2, 2), data_layout="NDHWC", kernel_layout="ODHWI", out_layout="NCDHW"),
    ],
)
conv1d_transpose = _transposed(
    1,
    [
        sample((1, 3, 5), (3, 4, 3), strides=2, padding=1, output_padding=1),
        sample((2, 4, 6), (4, 3, 2), dilation=2, groups=2, padding=(2, 0)),
        sample(((1, 3, 5), "float16"), ((3, 4, 3), "float16"), out_dtype="float32"),
    ],
)
conv2d_transpose = _transposed(
    2,
    [
        sample((1, 3, 4, 5), (3, 2, 4, 4), strides=2, padding=1),
        sample((1, 4, 4, 3), (4, 3, 3, 2), strides=(3, 1), padding=(1, 0, 0, 1), output_padding=(2, 0), groups=2),
        sample((1, 2, 3, 3), (2, 2, 1, 1), strides=2, padding=0),
        sample((1, 2, 4, 4), (2, 3, 3, 3), dilation=2, padding=3),
        sample(((1, 2, 3, 3), "int8"), ((2, 2, 2, 2), "int8"), strides=2, out_dtype="int32"),
    ],
)
conv3d_transpose = _transposed(
    3,
    [
        sample((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), strides=2, padding=(0, 1, 1)),
        sample((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), out_dtype="float64"),
    ],
)


class PlaneAttrs(TypedDict):
    """How windows lie along the planes of a volume: `padding` is (before, after)."""

    depth: int
    kernel: int
    stride: int
    padding: tuple[int, int]
    dilation: int
    groups: int


def _plane_count(a: PlaneAttrs) -> int:
    return as_int(out_size(a["depth"], a["kernel"], a["stride"], a["dilation"], *a["padding"]))


def _planes_type(data: StructInfo, **attrs: Unpack[PlaneAttrs]) -> TensorStructInfo:
    t = tensor(data, "data")
    if t.ndim != 4 or attrs["depth"] < 1 or min(attrs["padding"]) < 0:
        raise ShapeError(f"plane_windows takes images of volumes with planes, not {t!r} of {attrs['depth']}")
    n, channels, *size = t.image_shape
    if channels % attrs["groups"]:
        raise ShapeError(f"plane_windows: {channels} channels are not {attrs['groups']} groups")
    volumes = known(n // attrs["depth"])
    return TensorStructInfo((known(volumes * _plane_count(attrs)), channels * attrs["kernel"], *size), t.dtype)


def _planes_compute(data: Tensor, **attrs: Unpack[PlaneAttrs]) -> Tensor:
    return topi.plane_windows(data, _plane_count(attrs), **attrs)


def _planes_reference(data: Array, **attrs: Unpack[PlaneAttrs]) -> Array:
    depth, step, groups = attrs["depth"], attrs["dilation"], attrs["groups"]
    count, stride = _plane_count(attrs), attrs["stride"]
    volumes = data.reshape(-1, depth, groups, data.shape[1] // groups, *data.shape[2:])
    padded = np.pad(volumes, [(0, 0), attrs["padding"], *[(0, 0)] * 4])
    taps = [padded[:, k * step : k * step + (count - 1) * stride + 1 : stride] for k in range(attrs["kernel"])]
    return np.stack(taps, axis=3).reshape(-1, data.shape[1] * attrs["kernel"], *data.shape[2:])


# The planes that a window over a volume [N, D, C, H, W] reads, as channels of images: [N * D, C, H, W] becomes
# [N * OD, groups * kernel * C / groups, H, W].
plane_windows = define_op(
    "nn.plane_windows",
    inputs=("data",),
    attributes={"depth": 1, "kernel": 1, "stride": 1, "padding": (0, 0), "dilation": 1, "groups": 1},
    infer_type=_planes_type,
    compute=_planes_compute,
    reference=_planes_reference,
    samples=[
        sample((5, 2, 3, 4), depth=5, kernel=3, padding=(1, 1)),
        sample((12, 4, 2, 3), depth=6, kernel=2, stride=2, padding=(0, 1), dilation=3, groups=2),
    ],
)
