"""Convolutions and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from autosched.errors import InvalidValueError, refuse
from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import value_of
from autosched.frontend.nn.op.elementwise import add
from autosched.frontend.nn.op.shapes import reshape
from autosched.relax import op as R
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.op.registry import get_op

Sizes: TypeAlias = "int | Sequence[int]"  # the same in all dimensions, or one each


def _biased(result: Expr, bias: Tensor | None, ndim: int, name: str, channel: int = 1) -> Tensor:
    value = wrap_nested(result, name)
    if bias is None:
        return value  # type: ignore[no-any-return]
    shape = [1] * ndim
    shape[channel] = bias.shape[0]
    return add(value, reshape(bias, shape))


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1,
    groups: int = 1, name: str = "conv1d",
) -> Tensor:  # fmt: skip
    """[N, C, W] with a weight [O, C / groups, K]."""
    geometry = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _biased(get_op("nn.conv1d")(value_of(x, name), value_of(weight, name), **geometry), bias, 3, name)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1,
    groups: int = 1, data_layout: str = "NCHW", name: str = "conv2d",
) -> Tensor:  # fmt: skip
    """[N, C, H, W] with a weight [O, C / groups, KH, KW]."""
    if data_layout != "NCHW":
        raise InvalidValueError(f"conv2d with data_layout '{data_layout}' is not supported", hint="use NCHW")
    geometry = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _biased(R.nn.conv2d(value_of(x, name), value_of(weight, name), **geometry), bias, 4, name)


def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1,
    groups: int = 1, data_layout: str = "NCDHW", name: str = "conv3d",
) -> Tensor:  # fmt: skip
    """[N, C, D, H, W] with a weight [O, C / groups, KD, KH, KW]."""
    if data_layout != "NCDHW":
        raise InvalidValueError(f"conv3d with data_layout '{data_layout}' is not supported", hint="use NCDHW")
    geometry = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _biased(get_op("nn.conv3d")(value_of(x, name), value_of(weight, name), **geometry), bias, 5, name)


def conv1d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0,
    output_padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1, name: str = "conv1d_transpose",
) -> Tensor:  # fmt: skip
    """[N, C, W] with a weight [C, O / groups, K]."""
    geometry = {
        "strides": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation,
        "groups": groups,
    }  # fmt: skip
    return _biased(get_op("nn.conv1d_transpose")(value_of(x, name), value_of(weight, name), **geometry), bias, 3, name)


def interpolate(
    x: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Images of another size: nearest, bilinear ("linear"). Raises ValueError for antialias.

    With `recompute_scale_factor` positions follow from the sizes, which they always do here.
    """
    refuse("interpolate", antialias=antialias)
    if scale_factor is None:
        if size is None:
            raise InvalidValueError("interpolate takes size or scale_factor", hint="such as size=(32, 32)")
        scale_factor = 1.0  # what is not looked at
    if recompute_scale_factor is not None and not recompute_scale_factor and size is None:
        factors = [scale_factor] * 2 if isinstance(scale_factor, int | float) else list(scale_factor)
        refuse("interpolate", hint="give the size", recompute_scale_factor=any(f != int(f) for f in factors))
    shape = x.struct_info.static_shape
    height, width = shape[data_layout.index("H")], shape[data_layout.index("W")]
    if size is None:
        factors = [scale_factor] * 2 if isinstance(scale_factor, int | float) else list(scale_factor)
        size = [int(height * factors[0]), int(width * factors[1])]
    wanted = [size, size] if isinstance(size, int) else list(size)
    method = "nearest_neighbor" if mode.startswith("nearest") else "linear" if mode in ("linear", "bilinear") else mode
    positions = "asymmetric" if method == "nearest_neighbor" else "align_corners" if align_corners else "half_pixel"
    call = get_op("image.resize2d")(
        value_of(x, name), ShapeExpr(tuple(wanted)), layout=data_layout, method=method,
        coordinate_transformation_mode=positions, rounding_method="floor" if method == "nearest_neighbor" else "round",
    )  # fmt: skip
    return wrap_nested(call, name)  # type: ignore[no-any-return]
