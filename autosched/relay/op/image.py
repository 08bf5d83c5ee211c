"""Relay's operators of images."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import refuse
from autosched.relax import Expr, op
from autosched.relay.expr import unwrap


def resize2d(
    data: object, size: Sequence[int], roi: Sequence[float] | None = None, layout: str = "NCHW", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "", cubic_alpha: float = -0.5,
    cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None,
) -> Expr:  # fmt: skip
    """An image in another size. Raises ValueError for a region (roi), cubic interpolation and extrapolation."""
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    refuse(
        "resize2d", hint="crop with strided_slice; method is 'linear' or 'nearest_neighbor'",
        roi=roi is not None and len(roi) > 0 and cropped, extrapolation_value=extrapolation_value != 0,
        cubic_alpha=cubic_alpha != -0.5, cubic_exclude=cubic_exclude,
    )  # fmt: skip
    resized = op.image.resize2d(
        unwrap(data), tuple(int(s) for s in size), layout=layout, method=method,
        coordinate_transformation_mode=coordinate_transformation_mode, rounding_method=rounding_method,
    )  # fmt: skip
    return op.astype(resized, out_dtype) if out_dtype else resized
