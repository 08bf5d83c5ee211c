"""Images of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.topi.manipulate import _compute
from autosched.topi.shapes import extent_of

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


def _clip(i: ExprLike, size: int) -> PrimExpr:
    return E.maximum(E.minimum(i, E.const(size - 1, "int64")), E.const(0, "int64"))


def resize2d(
    x: Tensor, size: Sequence[int], layout: str, method: str, mode: str, rounding: str, scales: Sequence[float]
) -> Tensor:
    """Height and width of a new size, by the nearest pixel or between the four around.

    method    "nearest_neighbor" or "linear"; outside of the image its border continues
    rounding  of nearest positions: "floor", "ceil", "round_prefer_floor" or "round" (halves up)
    """
    at = layout.index("H"), layout.index("W")
    old = [extent_of(x, a) for a in at]
    shape = list(x.shape)
    lines = []
    for n, a in enumerate(at):
        shape[a] = E.const(size[n], shape[a].dtype)
        lines.append(source_position(mode, old[n], size[n], scales[n]))

    def position(n: int, i: PrimExpr) -> PrimExpr:
        m, d, s = (E.const(v, "float32") for v in lines[n])
        return (E.cast("float32", i) + s) * m / d - s

    rounded: dict[str, Callable[[PrimExpr], PrimExpr]] = {
        "floor": lambda p: E.call("floor", p),
        "ceil": lambda p: E.call("ceil", p),
        "round_prefer_floor": lambda p: E.call("ceil", p - E.const(0.5, "float32")),
    }
    halves_up: Callable[[PrimExpr], PrimExpr] = lambda p: E.call("floor", p + E.const(0.5, "float32"))  # noqa: E731
    whole = rounded.get(rounding, halves_up)

    def element(i: tuple[PrimExpr, ...], y: PrimExpr, z: PrimExpr) -> PrimExpr:
        index = list(i)
        index[at[0]], index[at[1]] = _clip(y, old[0]), _clip(z, old[1])
        return x(*index)

    def nearest(*i: PrimExpr) -> PrimExpr:
        return element(i, *(E.cast("int64", whole(position(n, i[a]))) for n, a in enumerate(at)))

    def linear(*i: PrimExpr) -> PrimExpr:
        low, share = [], []
        for n, a in enumerate(at):
            p = position(n, i[a])
            down = E.call("floor", p)
            low.append(E.cast("int64", down))
            share.append(E.cast(x.dtype, p - down))
        rows = []
        for dy in (0, 1):
            left, right = (element(i, low[0] + dy, low[1] + dx) for dx in (0, 1))
            rows.append(left + (right - left) * share[1])
        return rows[0] + (rows[1] - rows[0]) * share[0]

    return _compute(shape, nearest if method == "nearest_neighbor" else linear, "T_resize")
