"""Further operators of neural networks in Relay's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidValueError, ShapeError, refuse
from autosched.relax import Expr, op
from autosched.relax.op.conv_nd import several
from autosched.relay.expr import unwrap
from autosched.relay.op.nn import Pair, avg_pool2d, max_pool2d
from autosched.relay.op.tensor import info


def conv1d(
    data: object, weight: object, strides: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1,
    channels: int | None = None, kernel_size: Pair | None = None, data_layout: str = "NCW", kernel_layout: str = "OIW",
    out_layout: str = "", out_dtype: str = "",
) -> Expr:  # fmt: skip
    """1-D convolution. Raises ValueError for sizes that are not the weight's."""
    check_weight("conv1d", unwrap(weight), kernel_layout, channels, kernel_size)
    return op.nn.conv1d(
        unwrap(data), unwrap(weight), strides, padding, dilation, groups, data_layout, kernel_layout,
        out_layout or None, out_dtype or None,
    )  # fmt: skip


def conv3d(
    data: object, weight: object, strides: Pair = (1, 1, 1), padding: Pair = (0, 0, 0), dilation: Pair = (1, 1, 1),
    groups: int = 1, channels: int | None = None, kernel_size: Pair | None = None, data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW", out_layout: str = "", out_dtype: str = "",
) -> Expr:  # fmt: skip
    """3-D convolution. Raises ValueError for sizes that are not the weight's."""
    check_weight("conv3d", unwrap(weight), kernel_layout, channels, kernel_size)
    return op.nn.conv3d(
        unwrap(data), unwrap(weight), strides, padding, dilation, groups, data_layout, kernel_layout,
        out_layout or None, out_dtype or None,
    )  # fmt: skip


def conv2d_transpose(
    data: object, weight: object, strides: Pair = (1, 1), padding: Pair = (0, 0), dilation: Pair = (1, 1),
    channels: int | None = None, kernel_size: Pair | None = None, groups: int = 1, data_layout: str = "NCHW",
    kernel_layout: str = "IOHW", out_layout: str = "", output_padding: object = (0, 0), out_dtype: str = "",
) -> Expr:  # fmt: skip
    """2-D transposed convolution. Raises ValueError for other layouts, and sizes that are not the weight's."""
    check_weight(
        "conv2d_transpose", unwrap(weight), kernel_layout, None if channels is None else channels // groups, kernel_size
    )
    return op.nn.conv2d_transpose(
        unwrap(data), unwrap(weight), strides=strides, padding=padding, output_padding=output_padding,
        dilation=dilation, groups=groups, data_layout=data_layout, kernel_layout=kernel_layout,
        out_layout=out_layout or None, out_dtype=out_dtype or None,
    )  # fmt: skip


def check_weight(name: str, weight: Expr, layout: str, channels: int | None, kernel_size: Pair | None) -> None:
    """Raises ShapeError where a weight has not so many output channels, or its window another size."""
    sizes = dict(zip(layout, info(weight).static_shape, strict=False))
    if channels is not None and int(channels) != sizes.get("O"):
        raise ShapeError(f"{name}: channels={channels}, and the weight has {sizes.get('O')}")
    window = tuple(size for letter, size in sizes.items() if letter in "DHW")
    if kernel_size is not None and tuple(several(kernel_size, len(window), "kernel_size")) != window:
        raise ShapeError(f"{name}: kernel_size={kernel_size}, and the weight's is {window}")


def group_norm(
    data: object, gamma: object, beta: object, num_groups: int, axis: int = 1, epsilon: float = 1e-5,
    center: bool = True, scale: bool = True,
) -> Expr:  # fmt: skip
    """Normalisation of groups of channels."""
    x = unwrap(data)
    axes = [a for a in range(2, info(x).ndim)]
    return op.nn.group_norm(x, unwrap(gamma), unwrap(beta), num_groups, axis, axes, epsilon, center, scale)


def instance_norm(
    data: object,
    gamma: object,
    beta: object,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Normalisation of each channel of each image."""
    x = unwrap(data)
    axes = [a for a in range(info(x).ndim) if a not in (0, axis)]
    return op.nn.instance_norm(x, unwrap(gamma), unwrap(beta), axis, axes, epsilon, center, scale)


def l2_normalize(data: object, eps: float, axis: Sequence[int] | None = None) -> Expr:
    """Divided by the square root of the sum of squares."""
    x = unwrap(data)
    total = op.sum(op.multiply(x, x), None if axis is None else list(axis), True)
    return op.divide(x, op.sqrt(op.maximum(total, eps)))


def upsampling(
    data: object, scale_h: float = 1, scale_w: float = 1, layout: str = "NCHW", method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Expr:  # fmt: skip
    """An image enlarged. Raises ValueError for another layout than NCHW."""
    if layout != "NCHW":
        raise InvalidValueError(f"upsampling: layout '{layout}'", hint="use NCHW")
    x = unwrap(data)
    h, w = info(x).static_shape[2:]
    how = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    mode = "align_corners" if align_corners else ("asymmetric" if how == "nearest_neighbor" else "half_pixel")
    return op.image.resize2d(
        x, (int(h * scale_h), int(w * scale_w)), layout=layout, method=how, coordinate_transformation_mode=mode,
        rounding_method="" if how != "nearest_neighbor" else "floor",
    )  # fmt: skip


def depth_to_space(data: object, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Expr:
    """Channels as blocks of an image."""
    x, b = unwrap(data), block_size
    n, c, h, w = info(x).static_shape
    if layout != "NCHW":
        raise InvalidValueError(f"depth_to_space: layout '{layout}'", hint="use NCHW")
    if mode == "CRD":
        return op.nn.pixel_shuffle(x, b)
    parts = op.reshape(x, (n, b, b, c // (b * b), h, w))
    return op.reshape(op.permute_dims(parts, [0, 3, 4, 1, 5, 2]), (n, c // (b * b), h * b, w * b))


def cross_entropy(predictions: object, targets: object) -> Expr:
    """-sum(targets log(predictions)) by the batch."""
    return op.nn.cross_entropy_with_logits(op.log(unwrap(predictions)), unwrap(targets))


def cross_entropy_with_logits(predictions: object, targets: object) -> Expr:
    """-sum(targets predictions) by the batch."""
    return op.nn.cross_entropy_with_logits(unwrap(predictions), unwrap(targets))


def _one(x: Pair) -> int:
    return x[0] if isinstance(x, Sequence) else x


def _pool1d(
    pool: Callable[..., Expr],
    data: object,
    pool_size: Pair,
    strides: Pair,
    dilation: Pair,
    padding: Pair,
    *more: object,
) -> Expr:
    x = op.expand_dims(unwrap(data), 2)
    ends = list(padding) if isinstance(padding, Sequence) else [padding]
    sides = (0, ends[0], 0, ends[-1])
    found = pool(x, (1, _one(pool_size)), (1, _one(strides)), (1, _one(dilation)), sides, "NCHW", "", *more)
    return op.squeeze(found, [2])


def max_pool1d(
    data: object, pool_size: Pair = (1,), strides: Pair = (1,), dilation: Pair = (1,), padding: Pair = (0,),
    layout: str = "NCW", out_layout: str = "", ceil_mode: bool = False,
) -> Expr:  # fmt: skip
    """The largest of each window. Raises ValueError for another layout than NCW."""
    refuse("max_pool1d", hint="use NCW", layout=layout != "NCW", out_layout=out_layout not in ("", "NCW"))
    return _pool1d(max_pool2d, data, pool_size, strides, dilation, padding, ceil_mode)


def avg_pool1d(
    data: object, pool_size: Pair = (1,), strides: Pair = (1,), dilation: Pair = (1,), padding: Pair = (0,),
    layout: str = "NCW", out_layout: str = "", ceil_mode: bool = False, count_include_pad: bool = False,
) -> Expr:  # fmt: skip
    """The mean of each window. Raises ValueError for another layout than NCW."""
    refuse("avg_pool1d", hint="use NCW", layout=layout != "NCW", out_layout=out_layout not in ("", "NCW"))
    return _pool1d(avg_pool2d, data, pool_size, strides, dilation, padding, ceil_mode, count_include_pad)


__all__ = [
    "Pair", "avg_pool1d", "conv1d", "conv2d_transpose", "conv3d", "cross_entropy", "cross_entropy_with_logits",
    "depth_to_space", "group_norm", "instance_norm", "l2_normalize", "max_pool1d", "upsampling",
]  # fmt: skip
