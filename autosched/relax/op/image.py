"""Operators of images, under TVM's names in `relax.op.image`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched.errors import InvalidValueError, ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import Dim, ShapeStructInfo, StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.topi.resize import resize2d as te_resize2d
from autosched.topi.resize import source_position

METHODS = ("nearest_neighbor", "linear")


def _scales(old: Sequence[int], size: Sequence[int], scales: Sequence[float | None] | None) -> tuple[float, ...]:
    given = scales or (None,) * len(size)
    return tuple(n / o if s is None else s for n, o, s in zip(size, old, given, strict=True))


def _type(data: StructInfo, shape: StructInfo, layout: str, method: str, **_: object) -> TensorStructInfo:
    t = tensor(data)
    assert isinstance(shape, ShapeStructInfo) and shape.values is not None, "the size must be known"
    if method not in METHODS:
        raise InvalidValueError(f"method '{method}'", hint=f"one of {METHODS}")
    if t.ndim != sum(letter.isalpha() for letter in layout) or len(shape.values) != 2:
        raise ShapeError(f"{t!r} in layout {layout}, size of {len(shape.values)} dimensions")
    dims = list(t.dims)
    dims[layout.index("H")], dims[layout.index("W")] = shape.values
    return TensorStructInfo(tuple(dims), t.dtype)


def _compute(
    data: Tensor, shape: Sequence[Dim], layout: str, method: str, coordinate_transformation_mode: str,
    rounding_method: str, scales: Sequence[float | None] | None,
) -> Tensor:  # fmt: skip
    given = scales or (None, None)
    return te_resize2d(data, shape, layout, method, coordinate_transformation_mode, rounding_method, given)


def _reference(
    data: Array, shape: Sequence[int], layout: str, method: str, coordinate_transformation_mode: str,
    rounding_method: str, scales: Sequence[float | None] | None,
) -> Array:  # fmt: skip
    out = data if method == "nearest_neighbor" else data.astype(np.result_type(data.dtype, np.float32))
    found = _scales([data.shape[layout.index(a)] for a in "HW"], shape, scales)
    for axis, new, scale in zip((layout.index("H"), layout.index("W")), shape, found, strict=True):
        old = data.shape[axis]
        m, d, s = map(np.float32, source_position(coordinate_transformation_mode, old, new, scale))
        p = (np.arange(new, dtype=np.float32) + s) * m / d - s
        if method == "nearest_neighbor":
            rounded: dict[str, Callable[[Array], Array]] = {
                "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda q: np.ceil(q - np.float32(0.5)),
            }  # fmt: skip
            halves_up: Callable[[Array], Array] = lambda q: np.floor(q + np.float32(0.5))  # noqa: E731
            whole = rounded.get(rounding_method, halves_up)
            out = np.take(out, np.clip(whole(p).astype(int), 0, old - 1), axis)
            continue
        low = np.floor(p).astype(int)
        share = (p - low).reshape([-1 if n == axis else 1 for n in range(data.ndim)])
        left, right = (np.take(out, np.clip(low + d, 0, old - 1), axis) for d in (0, 1))
        out = left + (right - left) * share
    return out.astype(data.dtype)


resize2d = define_op(
    "image.resize2d",
    inputs=("data", "size"),
    attributes={
        "layout": "NCHW",
        "method": "linear",
        "coordinate_transformation_mode": "half_pixel",
        "rounding_method": "round",
        "scales": None,
    },
    infer_type=_type,
    compute=_compute,
    reference=_reference,
    samples=[
        sample((1, 2, 4, 6), ShapeStructInfo((7, 9))),
        sample((1, 2, 7, 5), ShapeStructInfo((3, 10)), coordinate_transformation_mode="align_corners"),
        sample((2, 3, 4, 2), ShapeStructInfo((8, 12)), layout="NHWC", method="nearest_neighbor",
               coordinate_transformation_mode="asymmetric", rounding_method="floor"),
        sample((1, 1, 5, 5), ShapeStructInfo((8, 3)), method="nearest_neighbor", rounding_method="round_prefer_floor"),
        sample((1, 2, 4, 6, 8), ShapeStructInfo((7, 12)), layout="NCHW8c"),
        sample(((1, 2, 4, 6), "uint8"), ShapeStructInfo((8, 12)), low=0, high=255),
    ],
)  # fmt: skip
