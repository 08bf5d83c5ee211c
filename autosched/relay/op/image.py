"""Relay's operators of images."""

from __future__ import annotations

from typing import Any

from autosched.relax import Expr, op
from autosched.relay.expr import unwrap


def resize2d(
    data: Any, size: Any, roi: Any = None, layout: str = "NCHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", cubic_alpha: float = -0.5,
    cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> Expr:  # fmt: skip
    """An image in another size."""
    return op.image.resize2d(
        unwrap(data), tuple(int(s) for s in size), layout=layout, method=method,
        coordinate_transformation_mode=coordinate_transformation_mode, rounding_method=rounding_method,
    )  # fmt: skip
