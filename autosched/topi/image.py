"""Images of another size or seen through a grid: any number of dimensions and all ways to interpolate, with TVM's
arguments. The common forms of two dimensions have a faster compute in `resize`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from autosched import te
from autosched.errors import InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.shapes import Dim, compute_over, int_shape, open_shape

METHODS = ("nearest_neighbor", "linear", "cubic")
MODES = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
NARROW_INTEGERS = ("int8", "uint8", "int16", "uint16")  # that a float on the way to them may not fit
Tap = tuple[PrimExpr, PrimExpr]  # position along one axis, and its weight


def rounding_of(method: str, mode: str, rounding: str) -> str:
    """How positions of nearest pixels are rounded: what is given, or what a mode does. Raises ValueError."""
    if method not in METHODS:
        raise InvalidValueError(f"method '{method}'", hint=f"one of {METHODS}")
    if mode not in MODES:
        raise InvalidValueError(f"coordinate_transformation_mode '{mode}'", hint=f"one of {MODES}")
    chosen = rounding or ("round" if mode == "align_corners" else "floor")
    if chosen not in ROUNDINGS:
        raise InvalidValueError(f"rounding_method '{rounding}'", hint=f"one of {ROUNDINGS}")
    return chosen


def source_place(mode: str, old: int, new: int, roi: tuple[float, float]) -> tuple[float, float]:
    """(a, b): pixel i of the new image lies at a * i + b of the old one, by TVM's rules."""
    scale = old / new
    match mode:
        case "align_corners":
            return ((old - 1) / (new - 1), 0.0) if new > 1 else (0.0, 0.0)
        case "asymmetric":
            return scale, 0.0
        case "tf_half_pixel_for_nn":
            return scale, 0.5 * scale
        case "tf_crop_and_resize":
            start, end = roi
            if new == 1:
                return 0.0, 0.5 * (start + end) * (old - 1)
            return (end - start) * (old - 1) / (new - 1), start * (old - 1)
        case "pytorch_half_pixel" if new == 1:
            return 0.0, 0.0
    return scale, 0.5 * scale - 0.5


def cubic_weights(t: PrimExpr, alpha: float) -> list[PrimExpr]:
    """The weights of the four pixels around a place, `t` behind the second. Source: Keys 1981."""
    a = E.const(alpha, "float32")

    def near(x: PrimExpr) -> PrimExpr:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0

    def far(x: PrimExpr) -> PrimExpr:
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def _whole(place: PrimExpr, rounding: str) -> PrimExpr:
    half = E.const(0.5, "float32")
    floor, ceil = (functools.partial(E.call, name) for name in ("floor", "ceil"))
    match rounding:
        case "round":
            found = E.call("round", place)
        case "round_prefer_floor":
            found = ceil(place - half)
        case "round_prefer_ceil":
            found = floor(place + half)
        case _:
            found = floor(place) if rounding == "floor" else ceil(place)
    return E.cast("int64", found)


def _taps(place: PrimExpr, size: int, method: str, rounding: str, alpha: float, exclude: bool) -> list[Tap]:
    one = E.const(1.0, "float32")
    if method == "nearest_neighbor":
        return [(_whole(place, rounding), one)]
    below = E.call("floor", place)
    share, first = place - below, E.cast("int64", below)
    if method == "linear":
        return [(first, one - share), (first + 1, share)]
    taps = [(first + n - 1, w) for n, w in enumerate(cubic_weights(share, alpha))]
    if not exclude:
        return taps
    kept = [(at, E.select(te.all(at >= 0, at < size), w, E.const(0.0, "float32"))) for at, w in taps]
    total = functools.reduce(E.add, (w for _, w in kept))
    return [(at, w / total) for at, w in kept]


def _weighted(taps: Sequence[Sequence[Tap]], read: Callable[[Sequence[PrimExpr]], PrimExpr]) -> PrimExpr:
    """The sum of read(positions) over all pixels around a place, times the product of their weights."""

    def along(axis: int, at: tuple[PrimExpr, ...]) -> PrimExpr:
        if axis == len(taps):
            return read(at)
        parts = [along(axis + 1, (*at, p)) for p, _ in taps[axis]]
        if len(parts) == 1:
            return parts[0]
        return functools.reduce(E.add, (v * w for v, (_, w) in zip(parts, taps[axis], strict=True)))

    return along(0, ())


def _fitting(value: PrimExpr, dtype: str, method: str) -> PrimExpr:
    """A pixel's value in this type; what cubic weights give beyond a narrow integer's numbers is its last one."""
    if method == "cubic" and dtype in NARROW_INTEGERS:
        limits = np.iinfo(dtype)
        low, high = (E.const(float(n), "float32") for n in (limits.min, limits.max))
        value = E.maximum(E.minimum(value, high), low)
    return E.cast(dtype, value)


def spatial_axes(layout: str, rank: int) -> tuple[int, ...]:
    """Where the layout has depth, height and width, or width alone. Raises ShapeError for another layout."""
    letters = "DHW"[3 - rank :]
    if any(c not in layout for c in letters):
        raise ShapeError(f"layout {layout} has not all of {letters}")
    return tuple(layout.index(c) for c in letters)


def resize_nd(
    x: Tensor, size: Sequence[int], axes: Sequence[int], method: str, mode: str, rounding: str, *, alpha: float = -0.75,
    exclude_outside: bool = False, roi: Sequence[float] | None = None, outside: float = 0.0,
) -> Tensor:  # fmt: skip
    """The dimensions `axes` of new sizes; the image's border continues outside of it.

    method   one of METHODS, mode one of MODES, rounding one of ROUNDINGS or "": what the mode does
    roi      the part of the image for "tf_crop_and_resize": all starts, then all ends, as shares of it
    outside  what lies outside of the image in that mode
    """
    shape = list(open_shape(x))
    chosen, count = rounding_of(method, mode, rounding), len(axes)
    old = [as_int(x.shape[a]) for a in axes]
    for a, n in zip(axes, size, strict=True):
        shape[a] = n
    crops = mode == "tf_crop_and_resize"
    if crops and (roi is None or len(roi) != 2 * count):
        raise InvalidValueError(f"{mode} needs a roi of {2 * count} numbers")
    parts = [(float(roi[n]), float(roi[count + n])) if crops and roi else (0.0, 1.0) for n in range(count)]
    lines = [source_place(mode, o, n, part) for o, n, part in zip(old, size, parts, strict=True)]

    def element(*i: PrimExpr) -> PrimExpr:
        places = [
            E.cast("float32", i[a]) * E.const(factor, "float32") + E.const(start, "float32")
            for a, (factor, start) in zip(axes, lines, strict=True)
        ]
        taps = [_taps(p, o, method, chosen, alpha, exclude_outside) for p, o in zip(places, old, strict=True)]

        def read(at: Sequence[PrimExpr]) -> PrimExpr:
            index = list(i)
            for a, p, o in zip(axes, at, old, strict=True):
                index[a] = E.maximum(E.minimum(p, E.const(o - 1, "int64")), E.const(0, "int64"))
            return x(*index) if method == "nearest_neighbor" else E.cast("float32", x(*index))

        value = _fitting(_weighted(taps, read), x.dtype, method)
        if not crops:
            return value
        inside = te.all(*(c for p, o in zip(places, old, strict=True) for c in (p >= 0.0, p <= float(o - 1))))
        return E.if_then_else(inside, value, E.const(outside, x.dtype))

    return compute_over(shape, element, "T_resize")


def with_fractions(data: Tensor, out_dtype: str | None) -> Tensor:
    """Integers that are to become floats as floats: shares of a pixel would be cut to integers."""
    return _as(data, out_dtype if out_dtype and is_float(out_dtype) and not is_float(data.dtype) else None)


def _resize(
    data: Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str, method: str, mode: str, rounding: str,
    alpha: float, exclude: int, outside: float, out_dtype: str | None, rank: int,
) -> Tensor:  # fmt: skip
    found = resize_nd(
        with_fractions(data, out_dtype), [as_int(n) for n in size], spatial_axes(layout, rank), method, mode, rounding,
        alpha=alpha, exclude_outside=bool(exclude), roi=roi, outside=outside,
    )  # fmt: skip
    return _as(found, out_dtype)


def _as(x: Tensor, dtype: str | None) -> Tensor:
    return x if not dtype or dtype == x.dtype else compute_over(x.shape, lambda *i: E.cast(dtype, x(*i)), "T_cast")


def resize1d(
    data: Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str = "NCW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", bicubic_alpha: float = -0.75,
    bicubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Sequences of another width; arguments as in `resize_nd`."""
    return _resize(
        data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha,
        bicubic_exclude, extrapolation_value, out_dtype, 1,
    )  # fmt: skip


def resize2d(
    data: Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str = "NCHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", bicubic_alpha: float = -0.75,
    bicubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Images of another height and width; arguments as in `resize_nd`."""
    return _resize(
        data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha,
        bicubic_exclude, extrapolation_value, out_dtype, 2,
    )  # fmt: skip


def resize3d(
    data: Tensor, roi: Sequence[float] | None, size: Sequence[int], layout: str = "NCDHW",
    method: str = "linear", coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
    bicubic_alpha: float = -0.75, bicubic_exclude: int = 0, extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Volumes of another depth, height and width; arguments as in `resize_nd`."""
    return _resize(
        data, roi, size, layout, method, coordinate_transformation_mode, rounding_method, bicubic_alpha,
        bicubic_exclude, extrapolation_value, out_dtype, 3,
    )  # fmt: skip


def grid_steps(size: int, align_corners: bool) -> tuple[float, float]:
    """(first, step) of positions along one dimension in [-1, 1]: corner pixels lie there, or their outer borders."""
    if not align_corners:
        return -1.0 + 1.0 / size, 2.0 / size
    if size < 2:
        raise ShapeError("affine_grid: two pixels at least lie at the corners")
    return -1.0, 2.0 / (size - 1)


def affine_grid(data: Tensor, target_shape: Sequence[int], align_corners: bool = True) -> Tensor:
    """[N, 2, H, W] or [N, 3, D, H, W]: where the affine maps [N, rank, rank + 1] send an image's pixels, x first.

    Source: Jaderberg et al. 2015, section 3.2.
    """
    size = [as_int(n) for n in target_shape]
    rank = len(size)
    if data.ndim != 3 or int_shape(data)[1:] != (rank, rank + 1):
        raise ShapeError(f"affine_grid: maps of shape {data.shape} for {rank} dimensions")
    steps = [grid_steps(n, align_corners) for n in size]

    def element(n: PrimExpr, d: PrimExpr, *i: PrimExpr) -> PrimExpr:
        value: PrimExpr = data(n, d, rank)
        for axis, (first, step) in enumerate(steps):
            place = E.cast(data.dtype, i[axis]) * E.const(step, data.dtype) + E.const(first, data.dtype)
            value = value + data(n, d, rank - 1 - axis) * place
        return value

    return compute_over((data.shape[0], rank, *size), lambda *i: element(*i), "T_affine_grid")


def _reflected(place: PrimExpr, size: int, align_corners: bool) -> PrimExpr:
    """A place outside of the image mirrored at its border pixels, or at their outer borders, as often as needed."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0.0:
        return E.const(0.0, place.dtype)
    apart = E.call("fabs", place - low)
    rounds = E.call("floor", apart / span)
    rest = apart - rounds * span
    is_odd = E.compare(E.NE, E.truncmod(E.cast("int64", rounds), 2), 0)
    return E.select(is_odd, span - rest + low, rest + low)


def grid_sample(
    data: Tensor, grid: Tensor, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Tensor:  # fmt: skip
    """The images at the places that a grid [N, rank, …] names in [-1, 1], x first.

    method        "bilinear", "nearest" or, of two dimensions, "bicubic"
    padding_mode  what lies outside: "zeros", the "border" pixels, or the image again, by "reflection"
    """
    rank = data.ndim - 2
    if method not in ("bilinear", "nearest", "bicubic") or (method == "bicubic" and rank != 2):
        raise InvalidValueError(f"grid_sample: method '{method}' of {rank} dimensions")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise InvalidValueError(f"grid_sample: padding_mode '{padding_mode}'")
    if layout not in ("NCHW", "NCDHW") or grid.ndim != data.ndim or as_int(grid.shape[1]) != rank:
        raise ShapeError(f"grid_sample: data {data.shape} in layout {layout}, grid {grid.shape}")
    sizes = [as_int(s) for s in data.shape[2:]]
    kind = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest_neighbor"}[method]

    def inward(place: PrimExpr, size: int) -> PrimExpr:
        if padding_mode == "reflection":
            place = _reflected(place, size, align_corners)
        return E.maximum(E.minimum(place, E.const(size - 1.0, place.dtype)), E.const(0.0, place.dtype))

    def pixel(at: PrimExpr, size: int) -> PrimExpr:
        """A position that lies outside of the image although its place is not: of a cubic's outer pixels."""
        if padding_mode == "reflection" and method == "bicubic":
            at = E.cast("int64", inward(E.cast("float32", at), size))
        return E.maximum(E.minimum(at, E.const(size - 1, "int64")), E.const(0, "int64"))

    def element(n: PrimExpr, c: PrimExpr, *i: PrimExpr) -> PrimExpr:
        places = []
        for axis, size in enumerate(sizes):
            given = E.cast("float32", grid(n, rank - 1 - axis, *i))
            place = (given + 1.0) * ((size - 1) / 2) if align_corners else (given + 1.0) * (size / 2) - 0.5
            places.append(place if padding_mode == "zeros" or method == "bicubic" else inward(place, size))
        taps = [_taps(p, s, kind, "round", -0.75, exclude=False) for p, s in zip(places, sizes, strict=True)]

        def read(at: Sequence[PrimExpr]) -> PrimExpr:
            value = E.cast("float32", data(n, c, *map(pixel, at, sizes)))
            if padding_mode != "zeros":
                return value
            inside = te.all(*(b for p, s in zip(at, sizes, strict=True) for b in (p >= 0, p < s)))
            return E.if_then_else(inside, value, E.const(0.0, "float32"))

        return E.cast(data.dtype, _weighted(taps, read))

    return compute_over((*data.shape[:2], *grid.shape[2:]), lambda *i: element(*i), "T_grid_sample")


def crop_and_resize(
    data: Tensor, boxes: Tensor, box_indices: Tensor, crop_size: Sequence[int], layout: str = "NCHW",
    method: str = "bilinear", extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Parts of images, given as boxes [R, 4] of (y1, x1, y2, x2) in [0, 1], sampled to one size."""
    if layout not in ("NCHW", "NHWC") or method not in ("bilinear", "nearest_neighbor"):
        raise InvalidValueError(f"crop_and_resize: layout {layout}, method '{method}'")
    height, width = (as_int(data.shape[a]) for a in spatial_axes(layout, 2))
    rows, columns = (as_int(n) for n in crop_size)
    dtype = out_dtype or data.dtype
    channel, vertical, horizontal = (layout.index(c) for c in "CHW")
    shape: list[Dim] = [boxes.shape[0]] * 4
    shape[channel], shape[vertical], shape[horizontal] = data.shape[channel], rows, columns

    def place(box: PrimExpr, i: PrimExpr, first: int, old: int, new: int) -> PrimExpr:
        start, end = boxes(box, first), boxes(box, first + 2)
        if new == 1:
            return (start + end) * 0.5 * float(old - 1)
        return start * float(old - 1) + E.cast("float32", i) * ((end - start) * (float(old - 1) / (new - 1)))

    def element(*i: PrimExpr) -> PrimExpr:
        y = place(i[0], i[vertical], 0, height, rows)
        x = place(i[0], i[horizontal], 1, width, columns)
        kind = "linear" if method == "bilinear" else method
        taps = [_taps(p, s, kind, "round", 0.0, exclude=False) for p, s in ((y, height), (x, width))]

        def read(at: Sequence[PrimExpr]) -> PrimExpr:
            index = list(i)
            index[0] = E.cast("int64", box_indices(i[0]))
            for axis, p, s in zip((vertical, horizontal), at, (height, width), strict=True):
                index[axis] = E.maximum(E.minimum(p, E.const(s - 1, "int64")), E.const(0, "int64"))
            return E.cast("float32", data(*index))

        inside = te.all(y >= 0.0, y <= float(height - 1), x >= 0.0, x <= float(width - 1))
        return E.if_then_else(inside, E.cast(dtype, _weighted(taps, read)), E.const(extrapolation_value, dtype))

    return compute_over(shape, element, "T_crop_and_resize")


def _dilated(
    data: Tensor, kernel: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],
    dilations: int | Sequence[int], axes: tuple[int, int, int], kernel_axes: tuple[int, int, int],
) -> Tensor:  # fmt: skip
    """The maximum over each window of data plus kernel; `axes` are the channel, height and width."""
    (sy, sx), (dy, dx) = (((v, v) if isinstance(v, int) else tuple(v)) for v in (stride, dilations))
    given = [padding] * 4 if isinstance(padding, int) else list(padding)
    top, left, bottom, right = given * 2 if len(given) == 2 else given
    shape, window = list(int_shape(data)), [int_shape(kernel)[a] for a in kernel_axes[1:]]
    channel, vertical, horizontal = axes
    height, width = shape[vertical], shape[horizontal]
    shape[vertical] = (height + top + bottom - (window[0] - 1) * dy - 1) // sy + 1
    shape[horizontal] = (width + left + right - (window[1] - 1) * dx - 1) // sx + 1
    ry, rx = (te.reduce_axis((0, E.const(n, "int64")), name) for n, name in zip(window, ("ry", "rx"), strict=True))

    def element(*i: PrimExpr) -> PrimExpr:
        y, x = i[vertical] * sy + ry.var * dy - top, i[horizontal] * sx + rx.var * dx - left
        index, weight = list(i), [i[channel]] * 3
        index[vertical], index[horizontal] = y, x
        weight[kernel_axes[1]], weight[kernel_axes[2]] = ry.var, rx.var
        inside = te.all(y >= 0, y < height, x >= 0, x < width)
        value = E.if_then_else(inside, data(*index), E.const(0, data.dtype)) + kernel(*weight)
        return te.max(value, axis=[ry, rx])

    return compute_over(shape, element, "T_dilation2d")


def dilation2d_nchw(
    input: Tensor, filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: A002
    dilations: int | Sequence[int], out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Grey-scale dilation of images [N, C, H, W] by [C, KH, KW]: the largest sum of pixel and filter in each window."""
    return _dilated(_as(input, out_dtype), _as(filter, out_dtype), stride, padding, dilations, (1, 2, 3), (0, 1, 2))


def dilation2d_nhwc(
    input: Tensor, filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: A002
    dilations: int | Sequence[int], out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The same of images [N, H, W, C] by [KH, KW, C]."""
    return _dilated(_as(input, out_dtype), _as(filter, out_dtype), stride, padding, dilations, (3, 1, 2), (2, 0, 1))


__all__ = [
    "affine_grid", "crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc", "grid_sample", "resize1d", "resize2d",
    "resize3d",
]  # fmt: skip
