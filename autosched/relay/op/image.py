"""Relay's operators of images."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.relax import Expr, op
from autosched.relay.expr import unwrap


def resize2d(
    data: object, size: Sequence[int], roi: Sequence[float] | None = None, layout: str = "NCHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", cubic_alpha: float = -0.5,
    cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> Expr:  # fmt: skip
    """An image in another size. The region `roi` and `extrapolation_value` are of the mode "tf_crop_and_resize"."""
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    return op.image.resize2d(
        unwrap(data), tuple(int(s) for s in size), roi=tuple(roi) if cropped and roi else None, layout=layout,
        method=method, coordinate_transformation_mode=coordinate_transformation_mode, rounding_method=rounding_method,
        cubic_alpha=cubic_alpha, cubic_exclude=cubic_exclude, extrapolation_value=extrapolation_value,
        out_dtype=out_dtype,
    )  # fmt: skip
