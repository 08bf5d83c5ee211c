"""Relay's convolutions and poolings: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import ShapeError, refuse
from autosched.relax import Expr, op
from autosched.relax.op.conv_nd import several
from autosched.relay.expr import info, unwrap

Pair = int | Sequence[int]


def conv2d(
    data: object,
    weight: object,
    strides: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Pair | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Expr:
    """2-D convolution. Raises ShapeError where `channels` or `kernel_size` do not fit the weight."""
    x, w = unwrap(data), unwrap(weight)
    if data_layout == "NHWC":
        x = op.permute_dims(x, [0, 3, 1, 2])
    if kernel_layout != "OIHW":
        w = op.permute_dims(w, [kernel_layout.index(axis) for axis in "OIHW"])
    shape = info(w).static_shape
    size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    if channels is not None and channels != shape[0]:
        raise ShapeError(f"conv2d: channels={channels}, and the weight has {shape[0]}")
    if size is not None and tuple(size) != shape[2:]:
        raise ShapeError(f"conv2d: kernel_size={tuple(size)}, and the weight's is {shape[2:]}")
    layout = data_layout if data_layout != "NHWC" else "NCHW"
    result = op.nn.conv2d(
        x, w, strides, padding, dilation, groups, layout, "OIHW", "" if data_layout == "NHWC" else out_layout,
        out_dtype or None,
    )  # fmt: skip
    return op.permute_dims(result, [0, 2, 3, 1]) if (out_layout or data_layout) == "NHWC" else result


def refuse_out_layout(out_layout: str, layout: str) -> None:
    """Raises InvalidValueError for a result in another layout than the data."""
    refuse("pool2d", hint="the result has the data's layout", out_layout=out_layout not in ("", layout))


def _window(pool: Callable[..., Expr], data: object, layout: str, *args: object) -> Expr:
    x = unwrap(data)
    if layout == "NHWC":
        return op.permute_dims(pool(op.permute_dims(x, [0, 3, 1, 2]), *args), [0, 2, 3, 1])
    return pool(x, *args)


def max_pool2d(
    data: object,
    pool_size: Pair = (1, 1),
    strides: Pair = (1, 1),
    dilation: Pair = (1, 1),
    padding: Pair = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Expr:
    """The largest of each window."""
    refuse_out_layout(out_layout, layout)
    return _window(op.nn.max_pool2d, data, layout, pool_size, strides, padding, dilation, ceil_mode)


def avg_pool2d(
    data: object,
    pool_size: Pair = (1, 1),
    strides: Pair = (1, 1),
    dilation: Pair = (1, 1),
    padding: Pair = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Expr:
    """The mean of each window."""
    refuse_out_layout(out_layout, layout)

    def pool(x: object, *args: object) -> Expr:
        return op.nn.avg_pool2d(x, *args, count_include_pad=count_include_pad)

    return _window(pool, data, layout, pool_size, strides, padding, dilation, ceil_mode)


def _image_axes(layout: str) -> list[int]:
    return [layout.index("H"), layout.index("W")]


def global_avg_pool2d(data: object, layout: str = "NCHW", out_layout: str = "") -> Expr:
    """The mean of each channel."""
    refuse_out_layout(out_layout, layout)
    return op.mean(unwrap(data), _image_axes(layout), True)


def global_max_pool2d(data: object, layout: str = "NCHW", out_layout: str = "") -> Expr:
    """The largest of each channel."""
    refuse_out_layout(out_layout, layout)
    return op.max(unwrap(data), _image_axes(layout), True)


def adaptive_avg_pool2d(
    data: object, output_size: int | Sequence[int] | None = None, layout: str = "NCHW", out_layout: str = ""
) -> Expr:
    """Means of as many windows as the output has elements."""
    refuse_out_layout(out_layout, layout)
    return _window(lambda x: op.nn.adaptive_avg_pool2d(x, output_size), data, layout)


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
