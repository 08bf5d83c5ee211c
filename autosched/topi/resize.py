"""Images of another size."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.topi.shapes import Dim, compute_over, open_shape

HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, PYTORCH = "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"


def source_position(mode: str, old: int, new: int, scale: float) -> tuple[float, float, float]:
    """(m, d, s) with the position (i + s) * m / d - s in the old image for i in the new one; `scale` is new / old.

    Computed in this order in float32, as ONNX Runtime does: a rounded position decides which pixel is the nearest.
    """
    if mode == ALIGN_CORNERS:
        return (old - 1.0, new - 1.0, 0.0) if new > 1 else (0.0, 1.0, 0.0)
    if mode == ASYMMETRIC:
        return 1.0, scale, 0.0
    if mode == PYTORCH and new == 1:
        return 0.0, 1.0, 0.0
    return 1.0, scale, 0.5


def _position(mode: str, i: PrimExpr, old: Dim, new: Dim, scale: float | None) -> PrimExpr:
    """The position of `source_position`; of sizes that are not known, in terms of them: they come with the call."""
    at = E.cast("float32", i)
    if scale is None and not (isinstance(old, int) and isinstance(new, int)):
        wide, whole = (E.cast("float32", E.to_expr(d, "int64")) for d in (new, old))
        factor: PrimExpr | float = wide / whole
    else:
        factor = scale if scale is not None else new / old  # type: ignore[operator]
    if isinstance(old, int) and isinstance(new, int):
        assert isinstance(factor, float), "sizes are known"
        m, d, s = (E.const(v, "float32") for v in source_position(mode, old, new, factor))
        return (at + s) * m / d - s
    if mode == ALIGN_CORNERS:
        return at * E.cast("float32", old - 1) / E.cast("float32", E.maximum(new - 1, 1))
    if mode == ASYMMETRIC:
        return at / factor
    half = E.const(0.5, "float32")
    place = (at + half) / factor - half
    return E.Select(E.compare(E.GT, new, 1), place, E.const(0.0, "float32")) if mode == PYTORCH else place


def _rounded(
    place: Any, rounding: str, floor: Callable[[Any], Any], ceil: Callable[[Any], Any], nearest: Callable[[Any], Any],
    half: Any,
) -> Any:  # fmt: skip
    """A position as a whole number, by the rules of `resize2d`; an expression, or an array of all positions."""
    if rounding == "floor":
        return floor(place)
    if rounding == "ceil":
        return ceil(place)
    if rounding == "round_prefer_floor":
        return ceil(place - half)
    return nearest(place) if rounding == "round" else floor(place + half)


def _in_proportion(mode: str, i: PrimExpr, old: Dim, new: Dim, scale: float | None, rounding: str) -> PrimExpr | None:
    """The nearest pixel as i * old // new, where that is the rounded position of all: i // 2 for twice the size."""
    if not isinstance(old, int) or not isinstance(new, int):
        return None
    m, d, s = map(np.float32, source_position(mode, old, new, new / old if scale is None else scale))
    places = (np.arange(new, dtype=np.float32) + s) * m / d - s
    whole = np.clip(_rounded(places, rounding, np.floor, np.ceil, np.round, np.float32(0.5)), 0, old - 1)
    if not np.array_equal(whole, np.arange(new) * old // new):
        return None
    shared = math.gcd(old, new)
    return E.floordiv(E.mul(E.cast("int64", i), E.const(old // shared, "int64")), E.const(new // shared, "int64"))


def _clip(i: ExprLike, size: Dim) -> PrimExpr:
    last = E.const(size - 1, "int64") if isinstance(size, int) else size - 1
    return E.maximum(E.minimum(i, last), E.const(0, "int64"))


def resize2d(
    x: Tensor, size: Sequence[Dim], layout: str, method: str, mode: str, rounding: str, scales: Sequence[float | None]
) -> Tensor:
    """Height and width of a new size, by the nearest pixel or between the four around.

    method    "nearest_neighbor" or "linear"; outside of the image its border continues. Numbers between pixels are
              computed in float32 or float64, and those of integers are cut off
    rounding  of nearest positions: "floor", "ceil", "round" (halves to even), "round_prefer_floor" or
              "round_prefer_ceil"
    scales    new / old; None: what the sizes say
    """
    at = layout.index("H"), layout.index("W")
    shape = list(open_shape(x))
    old = [shape[a] for a in at]
    for n, a in enumerate(at):
        shape[a] = size[n]

    def position(n: int, i: PrimExpr) -> PrimExpr:
        return _position(mode, i, old[n], size[n], scales[n])

    def element(i: tuple[PrimExpr, ...], y: PrimExpr, z: PrimExpr) -> PrimExpr:
        index = list(i)
        index[at[0]], index[at[1]] = _clip(y, old[0]), _clip(z, old[1])
        return x(*index)

    def pixel(n: int, i: PrimExpr) -> PrimExpr:
        found = _in_proportion(mode, i, old[n], size[n], scales[n], rounding)
        if found is not None:
            return found
        floor, ceil, nearest = (functools.partial(E.call, f) for f in ("floor", "ceil", "round"))
        return E.cast("int64", _rounded(position(n, i), rounding, floor, ceil, nearest, E.const(0.5, "float32")))

    def nearest(*i: PrimExpr) -> PrimExpr:
        return element(i, *(pixel(n, i[a]) for n, a in enumerate(at)))

    between = "float64" if x.dtype == "float64" else "float32"

    def linear(*i: PrimExpr) -> PrimExpr:
        low, share = [], []
        for n, a in enumerate(at):
            p = position(n, i[a])
            down = E.call("floor", p)
            low.append(E.cast("int64", down))
            share.append(E.cast(between, p - down))
        rows = []
        for dy in (0, 1):
            left, right = (E.cast(between, element(i, low[0] + dy, low[1] + dx)) for dx in (0, 1))
            rows.append(left + (right - left) * share[1])
        return E.cast(x.dtype, rows[0] + (rows[1] - rows[0]) * share[0])

    return compute_over(shape, nearest if method == "nearest_neighbor" else linear, "T_resize")
