"""Pools, and images at other sizes."""

from __future__ import annotations

from typing import Any

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Size, Unfit, Value


@kind(("float32",), least_rank=3, most_rank=5, weight=2)
def pool(m: Maker, x: Value) -> None:
    n, channels, *spatial = x.shape
    kernel = [m.choose(1, 2, 3, 5) for _ in spatial]
    strides, pads = [m.choose(1, 2, 3) for _ in spatial], [m.random.randint(0, k // 2) for k in kernel]
    ceil = m.random.randint(0, 1)
    rest = [d + 2 * p - k for d, p, k in zip(spatial, pads, kernel)]
    sizes = [_places(r, s, d + p, ceil) for r, s, d, p in zip(rest, strides, spatial, pads)]
    if min(rest) < 0 or n == 0:
        raise Unfit
    op = m.choose("MaxPool", "MaxPool", "AveragePool", "LpPool")
    if ceil and op == "LpPool":
        raise Unfit
    more: dict[str, Any] = {"ceil_mode": ceil} if ceil else {}
    if op == "AveragePool":
        more["count_include_pad"] = m.random.randint(0, 1)
    m.node(op, x, shape=(n, channels, *sizes), kernel_shape=kernel, strides=strides, pads=pads * 2, **more)


def _places(last: int, stride: int, end: int, ceil: int) -> int:
    """How many windows begin in [0, last], or with `ceil` one more that begins before the end of the data."""
    if not ceil:
        return last // stride + 1
    places = (last + stride - 1) // stride + 1
    return places - 1 if (places - 1) * stride >= end else places


@kind(("float32",), least_rank=3, most_rank=5)
def global_pool(m: Maker, x: Value) -> None:
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    m.node(m.choose("GlobalAveragePool", "GlobalMaxPool"), x, shape=shape)


@kind(("float32",), least_rank=4, most_rank=4, weight=2)
def resize(m: Maker, x: Value) -> None:
    how = m.choose("nearest", "linear", "cubic")
    attributes = {
        "mode": how, "coordinate_transformation_mode": m.choose("half_pixel", "align_corners", "asymmetric"),
        "nearest_mode": m.choose("floor", "round_prefer_floor"),
    }  # fmt: skip
    if any(isinstance(d, Size) for d in x.shape):
        attributes["coordinate_transformation_mode"] = "asymmetric"
        scales = m.constant([1, 1, 2, 2], "float32")
        m.node("Resize", x, None, scales, shape=(*x.shape[:2], *(d * 2 for d in x.shape[2:])), **attributes)
        return
    sizes = [m.random.randint(1, 40) for _ in range(2)]
    m.node("Resize", x, None, None, m.ints(*x.shape[:2], *sizes), shape=(*x.shape[:2], *sizes), **attributes)


@kind(("float32",), least_rank=4, most_rank=4)
def grid_sample(m: Maker, x: Value) -> None:
    n, channels, *_ = x.shape
    grid = m.node("Tanh", m.other((n, m.size(), m.size(), 2), x.dtype))
    m.node("GridSample", x, grid, shape=(n, channels, *grid.shape[1:3]), mode=m.choose("linear", "nearest", "cubic"),
           padding_mode=m.choose("zeros", "border", "reflection"), align_corners=m.random.randint(0, 1))  # fmt: skip


@kind(("float32",), least_rank=4, most_rank=4)
def local_response(m: Maker, x: Value) -> None:
    m.node("LRN", x, size=m.choose(3, 5))
