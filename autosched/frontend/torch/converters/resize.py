"""Images of another size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.size_arithmetic import is_same, plain
from autosched.frontend.torch.converters.index import chosen
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.tir.expr import PrimExpr
from autosched.topi.resize import source_position

DOUBLED = (1, 2, 4, 8, 16)
LARGEST_DIVISOR = 64  # a power of two, so that PyTorch's product of floats has no rounding


def _sizes(
    old: Sequence[Dim], output_size: Sequence[Dim] | None, scales: Sequence[float] | None
) -> tuple[list[Dim], list[float] | None]:
    """(new sizes, factors where these are given)."""
    if output_size is not None or scales is None:
        assert output_size is not None, "one of both is given"
        return [s if isinstance(s, PrimExpr) else int(s) for s in output_size], None
    return [_scaled(n, s) for n, s in zip(old, scales, strict=True)], list(scales)


def _scaled(size: Dim, factor: float) -> Dim:
    """So many times a size, rounded down. Raises ImportModelError for an open one times what is no short fraction."""
    if isinstance(size, int):
        return int(size * factor)
    above, below = factor.as_integer_ratio()
    if below > LARGEST_DIVISOR:
        raise ImportModelError(f"{factor} times an open size")
    return plain(size * above // below)


def _nearest(old: int, new: int, factor: float | None, exact: bool) -> np.ndarray:
    """PyTorch's source positions, in float32 as it computes them."""
    scale = np.float32(1.0 / factor) if factor else np.float32(old) / np.float32(new)
    at = np.arange(new, dtype=np.float32)
    found: np.ndarray = np.minimum(
        np.floor((at + np.float32(0.5)) * scale if exact else at * scale).astype(np.int64), old - 1
    )
    return found


def _ours(old: int, new: int, mode: str) -> np.ndarray:
    m, d, s = map(np.float32, source_position(mode, old, new, new / old))
    found: np.ndarray = np.clip(np.floor((np.arange(new, dtype=np.float32) + s) * m / d - s), 0, old - 1)
    return found.astype(np.int64)


def _resized_nearest(
    t: Emitter, x: Expr, output_size: Sequence[int] | None, scales: Sequence[float] | None, exact: bool = False
) -> Expr:
    """By the nearest element in each dimension after the first two."""
    old = t.shape(x)[2:]
    new, factors = _sizes(old, output_size, scales)
    if scales is not None and any(scales):
        factors = list(scales)
    sizes = [n for n in new if isinstance(n, int)]
    if len(sizes) < len(new) or any(not isinstance(d, int) for d in old):
        return _open_nearest(t, x, new, factors, exact)
    lines = [_nearest(o, n, factors[d] if factors else None, exact) for d, (o, n) in enumerate(zip(old, sizes))]
    mode = "half_pixel" if exact else "asymmetric"
    if (
        len(old) == 2
        and not exact
        and all(np.array_equal(a, _ours(o, n, mode)) for a, o, n in zip(lines, old, sizes, strict=True))
    ):
        return op.image.resize2d(
            x, ShapeExpr(tuple(new)), layout="NCHW", method="nearest_neighbor",
            coordinate_transformation_mode=mode, rounding_method="floor",
        )  # fmt: skip
    for d, positions in enumerate(lines):
        if not np.array_equal(positions, np.arange(old[d])):
            x = chosen(t, x, 2 + d, positions)
    return x


def _open_nearest(
    t: Emitter, x: Expr, new: Sequence[Dim], factors: Sequence[float | None] | None, exact: bool
) -> Expr:  # fmt: skip
    """Images of an open size: twice as large, or four times …, as PyTorch's positions are exact; else by them."""
    old = t.shape(x)[2:]
    if len(old) == 2 and not exact and all(any(is_same(n, o * k) for k in DOUBLED) for o, n in zip(old, new)):
        return op.image.resize2d(
            x, ShapeExpr(tuple(new)), layout="NCHW", method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric", rounding_method="floor",
        )  # fmt: skip
    for d, (before, after) in enumerate(zip(old, new, strict=True)):
        if is_same(before, after):
            continue
        factor = factors[d] if factors else None
        sizes = (t.as_dtype(n, "float32") for n in (before, after))
        scale = constant(1.0 / factor, "float32") if factor else t(op.divide(*sizes))
        at = t(op.size_range(ShapeExpr((0, after)), step=1, dtype="float32"))
        at = t(op.multiply(t(op.add(at, constant(0.5, "float32"))) if exact else at, scale))
        place = t.cast(t(op.floor(at)), "int64")
        last = t.as_dtype(before - 1, "int64")
        x = t(op.take(x, t(op.minimum(place, last)), axis=2 + d))
    return x


@converter("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(t: Emitter, input: Expr, output_size: Sequence[int] | None, *scales: object, **kwargs: object) -> Expr:
    return _resized_nearest(t, input, output_size, _factors(scales, kwargs))


@converter("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def nearest_exact(
    t: Emitter, input: Expr, output_size: Sequence[int] | None, *scales: object, **kwargs: object
) -> Expr:
    return _resized_nearest(t, input, output_size, _factors(scales, kwargs), exact=True)


def _factors(scales: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[float] | None:
    """Scale factors, given as a list (`.vec`) or one by one, by position or name."""
    values = [
        *scales,
        *(kwargs[k] for k in ("scale_factors", "scales_d", "scales_h", "scales_w", "scales") if k in kwargs),
    ]
    if values and isinstance(values[0], list | tuple):
        values = list(values[0])
    return [float(v) for v in values] if values and all(v is not None for v in values) else None


@converter("upsample_linear1d", "upsample_bilinear2d")
def linear(
    t: Emitter, input: Expr, output_size: Sequence[int] | None, align_corners: bool, *scales: object, **kwargs: object
) -> Expr:
    shape = t.shape(input)
    _refuse_bytes(t, input)
    flat = len(shape) == 3
    x = t.reshape(input, (*shape[:2], 1, shape[2])) if flat else input
    old, factors = t.shape(x)[2:], _factors(scales, kwargs)
    if flat:
        output_size = None if output_size is None else [1, *output_size]
        factors = None if factors is None else [1.0, *factors]
    new, _ = _sizes(old, output_size, factors)
    result = op.image.resize2d(
        x, ShapeExpr(tuple(new)), layout="NCHW", method="linear",
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        scales=None if factors is None or align_corners else tuple(factors),
    )  # fmt: skip
    return t.reshape(t(result), (*shape[:2], new[1])) if flat else result


def _refuse_bytes(t: Emitter, x: Expr) -> None:
    """Raise LibraryNeededError for bytes, for which PyTorch rounds its weights."""
    if info_of(x).dtype == "uint8":
        raise t.needs_library("bytes are resized in 16-bit integers")


@converter("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def antialiased(
    t: Emitter, input: Expr, output_size: Sequence[int] | None, align_corners: bool, *scales: object, **kwargs: object
) -> Expr:
    """Each dimension by itself, as a product with a matrix of weights."""
    shape, dtype = t.shape(input), info_of(input).dtype
    new, factors = _sizes(shape[2:], output_size, _factors(scales, kwargs))
    factors = factors or _factors(scales, kwargs)
    _refuse_bytes(t, input)
    if not all(isinstance(d, int) for d in (*shape[2:], *new)):
        raise t.fail(f"images of {list(shape[2:])} as {list(new)}: the weights depend on open sizes")
    is_cubic = "bicubic" in str(getattr(t.source, "target", ""))
    wide = dtype if dtype in ("float32", "float64") else "float32"
    x = t.cast(input, wide)
    for axis, old, size in ((3, shape[3], new[1]), (2, shape[2], new[0])):  # rows first, as PyTorch does
        assert isinstance(old, int) and isinstance(size, int), "sizes were checked"
        factor = factors[axis - 2] if factors else None
        if size != old:
            x = _weighted(t, x, axis, _blurred(old, size, is_cubic, align_corners, factor, np.dtype(wide)))
    return t.cast(x, dtype)


def _blurred(
    old: int, new: int, is_cubic: bool, align_corners: bool, factor: float | None, dtype: np.dtype
) -> np.ndarray:  # fmt: skip
    """[old, new]: what each element of the source adds to each of the result, in the arithmetic of a dtype.

    The kernel, which reaches over two elements on each side or one, is widened to as many steps.
    """
    if align_corners:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        step = 1 / factor if factor else old / new
    width, half = np.maximum(dtype.type(step), dtype.type(1)), dtype.type(0.5)
    middle, reach = dtype.type(step) * (np.arange(new).astype(dtype) + half), dtype.type(2 if is_cubic else 1) * width
    first = np.maximum((middle - reach + half).astype(np.int64), 0)
    last = np.minimum((middle + reach + half).astype(np.int64), old)
    at = np.arange(old)[:, None]
    distance = np.abs((at.astype(dtype) - middle + half) / width)
    share = np.where((at >= first) & (at < last), _cubic(distance) if is_cubic else _triangle(distance), dtype.type(0))
    weights: np.ndarray = (share / share.sum(axis=0)).astype(dtype)
    return weights


def _triangle(distance: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.maximum(1 - distance, 0)
    return found


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Source: Keys 1981, with a = -1/2."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return np.where(distance < 1, near, np.where(distance < 2, far, 0))


def _weighted(t: Emitter, x: Expr, axis: int, weights: np.ndarray) -> Expr:
    """A dimension of images multiplied by [old, new]."""
    if axis == 3:
        return t(op.matmul(x, Constant(weights)))
    return t(op.matmul(Constant(np.ascontiguousarray(weights.T)), x))
