"""Operators of images, under TVM's names in `relax.op.image`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NotRequired, TypedDict, Unpack

import numpy as np

from autosched.errors import InvalidValueError, ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, Sample, define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import Dim, ShapeStructInfo, StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir.expr import as_int
from autosched.topi import cast
from autosched.topi import image as te_image
from autosched.topi.image import NARROW_INTEGERS, rounding_of, source_place, spatial_axes
from autosched.topi.resize import resize2d as te_resize2d
from autosched.topi.resize import source_position

CROP = "tf_crop_and_resize"


class ResizeAttrs(TypedDict):
    """The attributes; `scales` (new / old for each dimension, None: what the sizes say) only of two dimensions."""

    roi: Sequence[float] | None
    layout: str
    method: str
    coordinate_transformation_mode: str
    rounding_method: str
    cubic_alpha: float
    cubic_exclude: int
    extrapolation_value: float
    out_dtype: str | None
    scales: NotRequired[Sequence[float | None] | None]


def _resize_type(data: StructInfo, shape: StructInfo, **attrs: Unpack[ResizeAttrs]) -> TensorStructInfo:
    t, layout = tensor(data), attrs["layout"]
    assert isinstance(shape, ShapeStructInfo) and shape.values is not None, "the size must be known"
    rank = sum(letter in "DHW" for letter in layout)
    size = tuple(shape.values) * (rank if len(shape.values) == 1 else 1)
    rounding_of(attrs["method"], attrs["coordinate_transformation_mode"], attrs["rounding_method"])
    if t.ndim != sum(letter.isalpha() for letter in layout) or len(size) != rank:
        raise ShapeError(f"{t!r} in layout {layout}, size of {len(shape.values)} dimensions")
    dims = list(t.dims)
    for axis, new in zip(spatial_axes(layout, rank), size, strict=True):
        dims[axis] = new
    return TensorStructInfo(tuple(dims), attrs["out_dtype"] or t.dtype)


def _is_plain(attrs: ResizeAttrs) -> bool:
    """Whether `topi.resize` has this form of two dimensions."""
    method, mode = attrs["method"], attrs["coordinate_transformation_mode"]
    return "D" not in attrs["layout"] and method != "cubic" and mode not in (CROP, "tf_half_pixel_for_nn")


def _resize_compute(data: Tensor, shape: Sequence[Dim], **attrs: Unpack[ResizeAttrs]) -> Tensor:
    layout, method, mode = attrs["layout"], attrs["method"], attrs["coordinate_transformation_mode"]
    rounding = rounding_of(method, mode, attrs["rounding_method"])
    rank = 3 if "D" in layout else 2
    size = tuple(shape) * (rank if len(shape) == 1 else 1)
    data = te_image.with_fractions(data, attrs["out_dtype"])
    if _is_plain(attrs):
        found = te_resize2d(data, size, layout, method, mode, rounding, attrs.get("scales") or (None, None))
    else:
        if attrs.get("scales"):
            raise InvalidValueError(f"scales with method '{method}' and {mode}")
        found = te_image.resize_nd(
            data, [as_int(n) for n in size], spatial_axes(layout, rank), method, mode, rounding,
            alpha=attrs["cubic_alpha"], exclude_outside=bool(attrs["cubic_exclude"]), roi=attrs["roi"],
            outside=attrs["extrapolation_value"],
        )  # fmt: skip
    return cast(found, attrs["out_dtype"]) if attrs["out_dtype"] not in (None, data.dtype) else found


def _keys(t: Array, alpha: float) -> Array:
    """Keys' kernel at distances t."""
    d = np.abs(t)
    near = (alpha + 2) * d**3 - (alpha + 3) * d**2 + 1
    far = alpha * (d**3 - 5 * d**2 + 8 * d - 4)
    found: Array = np.where(d <= 1, near, np.where(d < 2, far, 0))
    return found


_ROUND: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor, "ceil": np.ceil, "round": np.round, "round_prefer_floor": lambda q: np.ceil(q - np.float32(0.5)),
    "round_prefer_ceil": lambda q: np.floor(q + np.float32(0.5)),
}  # fmt: skip


def _along(places: Array, old: int, attrs: ResizeAttrs) -> Array:
    """The matrix [new, old] of the weights with which pixels count along one dimension."""
    method, mode = attrs["method"], attrs["coordinate_transformation_mode"]
    out = np.zeros((len(places), old))
    if method == "nearest_neighbor":
        whole = _ROUND[rounding_of(method, mode, attrs["rounding_method"])](places)
        taps = [(whole.astype(int), np.ones(len(places)))]
    else:
        low = np.floor(places).astype(int)
        wide = places.astype(np.float64)
        near = range(2) if method == "linear" else range(-1, 3)
        kernel = (lambda d: 1 - np.abs(d)) if method == "linear" else lambda d: _keys(d, attrs["cubic_alpha"])
        taps = [(low + n, kernel(wide - low - n)) for n in near]
        if method == "cubic" and attrs["cubic_exclude"]:
            taps = [(at, np.where((at >= 0) & (at < old), w, 0)) for at, w in taps]
            total = sum(w for _, w in taps)
            taps = [(at, w / total) for at, w in taps]
    for at, weight in taps:
        np.add.at(out, (np.arange(len(places)), at.clip(0, old - 1)), weight)
    return out


def _resize_reference(data: Array, shape: Sequence[int], **attrs: Unpack[ResizeAttrs]) -> Array:
    layout, mode = attrs["layout"], attrs["coordinate_transformation_mode"]
    axes = spatial_axes(layout, 3 if "D" in layout else 2)
    size = tuple(shape) * (len(axes) if len(shape) == 1 else 1)
    out: Array = data.astype(np.float64)
    outside = np.zeros((1,) * data.ndim, bool)
    for n, (axis, new) in enumerate(zip(axes, size, strict=True)):
        old, roi = data.shape[axis], attrs["roi"]
        at = np.arange(new, dtype=np.float32)
        if _is_plain(attrs):
            scale = (attrs.get("scales") or (None,) * 2)[n]
            m, d, s = map(np.float32, source_position(mode, old, new, new / old if scale is None else scale))
            places = (at + s) * m / d - s
        else:
            part = (roi[n], roi[len(axes) + n]) if roi else (0.0, 1.0)
            factor, start = source_place(mode, old, new, part)
            places = at * np.float32(factor) + np.float32(start)
        out = np.moveaxis(np.tensordot(_along(places, old, attrs), out, (1, axis)), 0, axis)
        beyond = (places < 0) | (places > old - 1)
        outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(data.ndim)])
    out = np.where(outside, attrs["extrapolation_value"], out) if mode == CROP else out
    dtype = np.dtype(attrs["out_dtype"] or data.dtype)
    if attrs["method"] == "cubic" and data.dtype.name in NARROW_INTEGERS and dtype == data.dtype:
        out = out.clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
    return out.astype(dtype)


def _resize(name: str, layout: str, rounding: str, extra: dict[str, Any], samples: Sequence[Sample]) -> OpDef:
    return define_op(
        f"image.{name}", inputs=("data", "size"),
        attributes={
            "roi": None, "layout": layout, "method": "linear", "coordinate_transformation_mode": "half_pixel",
            "rounding_method": rounding, "cubic_alpha": -0.75, "cubic_exclude": 0, "extrapolation_value": 0.0,
            "out_dtype": None, **extra,
        },
        canonical=lambda a: {**a, "out_dtype": a["out_dtype"] or None},
        infer_type=_resize_type, compute=_resize_compute, reference=_resize_reference, samples=samples,
    )  # fmt: skip


resize2d = _resize("resize2d", "NCHW", "round", {"scales": None}, [
    sample((1, 2, 4, 6), ShapeStructInfo((7, 9))),
    sample((1, 2, 7, 5), ShapeStructInfo((3, 10)), coordinate_transformation_mode="align_corners"),
    sample((2, 3, 4, 2), ShapeStructInfo((8, 12)), layout="NHWC", method="nearest_neighbor",
           coordinate_transformation_mode="asymmetric", rounding_method="floor"),
    sample((1, 1, 5, 5), ShapeStructInfo((8, 3)), method="nearest_neighbor", rounding_method="round_prefer_floor"),
    sample((1, 1, 4, 5), ShapeStructInfo((7, 9)), method="nearest_neighbor", rounding_method="round",
           coordinate_transformation_mode="align_corners"),
    sample((1, 2, 4, 6, 8), ShapeStructInfo((7, 12)), layout="NCHW8c"),
    sample(((1, 2, 4, 6), "uint8"), ShapeStructInfo((8, 12)), low=0, high=255),
    sample(((1, 2, 4, 6), "uint8"), ShapeStructInfo((7, 9)), low=0, high=255, out_dtype="float32"),
    sample(((1, 2, 4, 6), "uint8"), ShapeStructInfo((8, 11)), low=0, high=255, method="cubic"),
    sample((1, 2, 4, 5), ShapeStructInfo((7, 3)), method="cubic", cubic_alpha=-0.5, cubic_exclude=1),
    sample((1, 4, 5, 2), ShapeStructInfo((6,)), method="nearest_neighbor", layout="NHWC", rounding_method="",
           coordinate_transformation_mode="tf_half_pixel_for_nn"),
    sample((1, 2, 4, 5), ShapeStructInfo((5, 6)), coordinate_transformation_mode=CROP, roi=(0.1, -0.2, 0.8, 0.9),
           extrapolation_value=0.5),
])  # fmt: skip
resize3d = _resize("resize3d", "NCDHW", "", {}, [
    sample((1, 2, 3, 4, 5), ShapeStructInfo((5, 3, 6))),
    sample((1, 3, 4, 2, 2), ShapeStructInfo((4, 5, 3)), layout="NDHWC", method="cubic"),
])  # fmt: skip


def _grid_sample_type(data: StructInfo, grid: StructInfo, **attrs: Any) -> TensorStructInfo:
    t, g = tensor(data), tensor(grid)
    if t.ndim not in (4, 5) or g.ndim != t.ndim:
        raise ShapeError(f"data {t!r}, grid {g!r}", hint="[N, C, H, W] and [N, 2, h, w], or one dimension more")
    return TensorStructInfo((*t.dims[:2], *g.dims[2:]), t.dtype)


def _grid_sample_reference(
    data: Array, grid: Array, method: str, layout: str, padding_mode: str, align_corners: bool
) -> Array:
    del layout
    n, c = data.shape[:2]
    rank, sizes = data.ndim - 2, data.shape[2:]
    wide: Array = data.astype(np.float64)

    def mirrored(p: Array, size: int) -> Array:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        rest = np.mod(np.abs(p - low), 2 * span) if span else 0 * p
        found: Array = np.minimum(rest, 2 * span - rest) + low
        return found

    taps = []
    for axis, size in enumerate(sizes):
        g = grid[:, rank - 1 - axis].astype(np.float64)
        p = (g + 1) * (size - 1) / 2 if align_corners else (g + 1) * size / 2 - 0.5
        if padding_mode != "zeros" and method != "bicubic":
            p = np.clip(mirrored(p, size) if padding_mode == "reflection" else p, 0, size - 1)
        low = np.floor(p)
        if method == "nearest":
            taps.append([(np.round(p), np.ones_like(p))])
        elif method == "bilinear":
            taps.append([(low, low + 1 - p), (low + 1, p - low)])
        else:
            taps.append([(low + k, _keys(p - low - k, -0.75)) for k in range(-1, 3)])
    out = np.zeros((n, c, *grid.shape[2:]))
    for index in np.ndindex(*map(len, taps)):
        weight, at = np.ones_like(grid[:, 0], np.float64), []
        inside: Array = np.ones(weight.shape, bool)
        for axis, k in enumerate(index):
            q, w = taps[axis][k]
            if padding_mode == "reflection" and method == "bicubic":
                q = mirrored(q, sizes[axis])
                q = np.trunc(np.clip(q, 0, sizes[axis] - 1))
            weight = weight * w
            inside = inside & (q >= 0) & (q < sizes[axis])
            at.append(np.clip(q, 0, sizes[axis] - 1).astype(int))
        for b in range(n):
            seen = wide[b][(slice(None), *(a[b] for a in at))]
            kept = np.where(inside[b], weight[b], 0) if padding_mode == "zeros" else weight[b]
            out[b] += seen * kept
    return out.astype(data.dtype)


grid_sample = define_op(
    "image.grid_sample", inputs=("data", "grid"),
    attributes={"method": "bilinear", "layout": "NCHW", "padding_mode": "zeros", "align_corners": False},
    infer_type=_grid_sample_type, compute=te_image.grid_sample, reference=_grid_sample_reference,
    samples=[
        sample((1, 2, 4, 5), (1, 2, 3, 4), low=-1.4, high=1.4),
        sample((1, 2, 4, 5), (1, 2, 3, 4), padding_mode="reflection", low=-1.9, high=1.9),
        sample((1, 1, 4, 5), (1, 2, 3, 4), method="bicubic", padding_mode="border", align_corners=True),
        sample((1, 2, 3, 4, 5), (1, 3, 2, 3, 2), layout="NCDHW", padding_mode="border", align_corners=True),
    ],
)  # fmt: skip


def _affine_type(data: StructInfo, shape: StructInfo, align_corners: bool) -> TensorStructInfo:
    t = tensor(data)
    assert isinstance(shape, ShapeStructInfo) and shape.values is not None, "the size must be known"
    size = tuple(shape.values) * (2 if len(shape.values) == 1 else 1)
    if t.ndim != 3 or t.dims[1:] != (len(size), len(size) + 1):
        raise ShapeError(f"maps {t!r} for images of {len(size)} dimensions")
    return TensorStructInfo((t.dims[0], len(size), *size), t.dtype)


def _affine_compute(data: Tensor, shape: Sequence[int], align_corners: bool) -> Tensor:
    return te_image.affine_grid(data, tuple(shape) * (2 if len(shape) == 1 else 1), align_corners)


def _affine_reference(data: Array, shape: Sequence[int], align_corners: bool) -> Array:
    size = tuple(shape) * (2 if len(shape) == 1 else 1)
    lines = [first + step * np.arange(n) for n in size for first, step in [te_image.grid_steps(n, align_corners)]]
    grid = np.meshgrid(*lines, indexing="ij")[::-1]
    points = np.stack([*grid, np.ones(size)])
    return np.tensordot(data.astype(np.float64), points, (2, 0)).astype(data.dtype)


affine_grid = define_op(
    "image.affine_grid", inputs=("data", "size"), attributes={"align_corners": True}, infer_type=_affine_type,
    compute=_affine_compute,
    reference=_affine_reference,
    samples=[
        sample((2, 2, 3), ShapeStructInfo((3, 4))), sample((1, 2, 3), ShapeStructInfo((3, 1)), align_corners=False),
        sample((1, 3, 4), ShapeStructInfo((2, 3, 4))),
    ],
)  # fmt: skip

__all__ = ["affine_grid", "grid_sample", "resize2d", "resize3d"]
