"""Pools and convolutions of `topi.nn` with TVM's arguments, of other ranks and layouts than those of `nn`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir.expr import as_int
from autosched.topi.broadcast import cast
from autosched.topi.conv_nd import Spatial, conv_nd, conv_transpose_nd
from autosched.topi.manipulate import transpose
from autosched.topi.pool_grad import pool_backward
from autosched.topi.pool_nd import adaptive_pool_nd, pool_nd
from autosched.topi.shapes import compute_over, int_shape

Sizes = int | Sequence[int]
AXES = {1: "W", 2: "HW", 3: "DHW"}


def _each(x: Sizes, rank: int, what: str) -> tuple[int, ...]:
    sizes = (x,) * rank if isinstance(x, int) else tuple(as_int(n) for n in x)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    if len(sizes) != rank:
        raise InvalidValueError(f"{what} needs one number or {rank}, got {sizes}")
    return sizes


def _sides(padding: Sizes | str, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """All begins, then all ends: of numbers, "VALID", or "SAME", which keeps the size at stride 1."""
    rank = len(kernel)
    if isinstance(padding, str):
        if padding not in ("VALID", "SAME"):
            raise InvalidValueError(f"padding '{padding}'", hint="numbers, 'VALID' or 'SAME'")
        whole = [(k - 1) * d * (padding == "SAME") for k, d in zip(kernel, dilation, strict=True)]
        return (*((n + 1) // 2 for n in whole), *(n - (n + 1) // 2 for n in whole))
    given = (padding,) if isinstance(padding, int) else tuple(as_int(n) for n in padding)
    return given if len(given) == 2 * rank else _each(given, rank, "padding") * 2


def _order(layout: str, rank: int) -> tuple[int, ...]:
    plain = "NC" + AXES[rank]
    if sorted(layout) != sorted(plain):
        raise InvalidValueError(f"layout '{layout}'", hint=f"an order of {plain}")
    return tuple(layout.index(c) for c in plain)


def _turned(x: Tensor, order: Sequence[int]) -> Tensor:
    return x if list(order) == sorted(order) else transpose(x, order)


def _back(x: Tensor, order: Sequence[int]) -> Tensor:
    return _turned(x, [list(order).index(a) for a in range(len(order))])


# --- pooling


def pool_images(
    rank: int, data: Tensor, kernel: Sizes, stride: Sizes, dilation: Sizes, padding: Sizes, pool_type: str,
    ceil_mode: bool, layout: str, count_include_pad: bool,
) -> Tensor:  # fmt: skip
    """Maxima or means of windows over images of `rank` dimensions in any order of the plain layout's letters."""
    if pool_type not in ("max", "avg"):
        raise InvalidValueError(f"pool_type '{pool_type}'", hint="'max' or 'avg'")
    order, size, steps = _order(layout, rank), _each(kernel, rank, "kernel"), _each(dilation, rank, "dilation")
    windows = Spatial(_each(stride, rank, "stride"), _sides(padding, size, steps), steps)
    return _back(pool_nd(_turned(data, order), size, windows, pool_type, ceil_mode, count_include_pad), order)


def pool1d(
    data: Tensor, kernel: Sizes, stride: Sizes, dilation: Sizes, padding: Sizes, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The maximum or the mean of each window over sequences; padding is (before, after)."""
    return pool_images(1, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def pool3d(
    data: Tensor, kernel: Sizes, stride: Sizes, dilation: Sizes, padding: Sizes, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The maximum or the mean of each window over volumes; padding is (front, top, left, back, bottom, right)."""
    return pool_images(3, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def _adaptive(rank: int, data: Tensor, output_size: Sizes, pool_type: str, layout: str) -> Tensor:
    if pool_type not in ("max", "avg"):
        raise InvalidValueError(f"pool_type '{pool_type}'", hint="'max' or 'avg'")
    order = _order(layout, rank)
    return _back(adaptive_pool_nd(_turned(data, order), _each(output_size, rank, "output_size"), pool_type), order)


def adaptive_pool(data: Tensor, output_size: Sizes, pool_type: str, layout: str = "NCHW") -> Tensor:
    """The maximum or the mean of windows that divide images as evenly as possible into `output_size`."""
    return _adaptive(2, data, output_size, pool_type, layout)


def adaptive_pool1d(data: Tensor, output_size: Sizes, pool_type: str, layout: str = "NCW") -> Tensor:
    """The same of sequences."""
    return _adaptive(1, data, output_size, pool_type, layout)


def adaptive_pool3d(data: Tensor, output_size: Sizes, pool_type: str, layout: str = "NCDHW") -> Tensor:
    """The same of volumes."""
    return _adaptive(3, data, output_size, pool_type, layout)


def pool_grad(
    grads: Tensor, data: Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, pool_type: str, ceil_mode: bool = False,
    count_include_pad: bool = True, layout: str = "NCHW",
) -> Tensor:  # fmt: skip
    """The gradient of the data of a pooling over images, from that of its result."""
    order, size = _order(layout, 2), _each(kernel, 2, "kernel")
    windows = Spatial(_each(stride, 2, "stride"), _sides(padding, size, (1, 1)), (1, 1))
    wanted = int_shape(pool_nd(_turned(data, order), size, windows, "max", ceil_mode, False))
    if int_shape(_turned(grads, order)) != wanted:
        raise ShapeError(f"pool_grad: a gradient of shape {grads.shape}; the result has {wanted}")
    found = pool_backward(
        _turned(grads, order), _turned(data, order), size, windows, pool_type, count_include_pad
    )  # fmt: skip
    return _back(found, order)


# --- convolutions


def _convolve(
    rank: int, data: Tensor, weight: Tensor, stride: Sizes, padding: Sizes | str, dilation: Sizes, groups: int,
    data_layout: str, kernel_layout: str, out_dtype: str | None,
) -> Tensor:  # fmt: skip
    order, plain = _order(data_layout, rank), "OI" + AXES[rank]
    if sorted(kernel_layout) != sorted(plain):
        raise InvalidValueError(f"kernel_layout '{kernel_layout}'", hint=f"an order of {plain}")
    w = _turned(weight, [kernel_layout.index(c) for c in plain])
    steps = _each(dilation, rank, "dilation")
    windows = Spatial(_each(stride, rank, "stride"), _sides(padding, int_shape(w)[2:], steps), steps)
    x, w = (t if out_dtype in (None, t.dtype) else cast(t, out_dtype) for t in (_turned(data, order), w))
    return _back(conv_nd(x, w, windows, groups), order)


def conv1d(
    data: Tensor, kernel: Tensor, strides: Sizes = 1, padding: Sizes | str = "VALID", dilation: Sizes = 1,
    groups: int = 1, data_layout: str = "NCW", kernel_layout: str = "", out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """1-D convolution; the kernel's layout is "OIW", or "WIO" where the data's is "NWC"."""
    layout = kernel_layout or ("WIO" if data_layout == "NWC" else "OIW")
    return _convolve(1, data, kernel, strides, padding, dilation, groups, data_layout, layout, out_dtype)


def conv1d_ncw(
    data: Tensor, kernel: Tensor, strides: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """1-D convolution [N, C, W] * [O, C, KW]."""
    return _convolve(1, data, kernel, strides, padding, dilation, 1, "NCW", "OIW", out_dtype)


def group_conv1d_ncw(
    data: Tensor, kernel: Tensor, strides: Sizes = 1, padding: Sizes | str = 0, dilation: Sizes = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """1-D convolution [N, C, W] * [O, C / groups, KW] of groups of channels."""
    return _convolve(1, data, kernel, strides, padding, dilation, groups, "NCW", "OIW", out_dtype)


def conv1d_nwc(
    data: Tensor, kernel: Tensor, strides: Sizes = 1, padding: Sizes | str = "VALID", dilation: Sizes = 1,
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """1-D convolution [N, W, C] * [KW, C, O]."""
    return _convolve(1, data, kernel, strides, padding, dilation, 1, "NWC", "WIO", out_dtype)


def group_conv1d_nwc(
    data: Tensor, kernel: Tensor, strides: Sizes = 1, padding: Sizes | str = "VALID", dilation: Sizes = 1,
    groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """1-D convolution [N, W, C] * [KW, C / groups, O] of groups of channels."""
    return _convolve(1, data, kernel, strides, padding, dilation, groups, "NWC", "WIO", out_dtype)


def conv3d_ndhwc(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Sizes | str, dilation: Sizes, groups: int,  # noqa: N803
    out_dtype: str | None = "float32",
) -> Tensor:  # fmt: skip
    """3-D convolution [N, D, H, W, C] * [KD, KH, KW, C / groups, O]."""
    return _convolve(3, Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)


def group_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Sizes | str, dilation: Sizes, groups: int,  # noqa: N803
    out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """2-D convolution [N, H, W, C] * [KH, KW, C / groups, O] of groups of channels."""
    return _convolve(2, Input, Filter, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype)


def depthwise_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Sizes, padding: Sizes | str, dilation: Sizes,  # noqa: N803
    kernel_layout: str = "HWOI", out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Each channel of [N, H, W, C] with filters of its own, [KH, KW, C, M]: [N, H, W, C * M]."""
    if kernel_layout != "HWOI":
        raise InvalidValueError(f"depthwise_conv2d_nhwc: kernel_layout '{kernel_layout}'", hint="HWOI")
    kh, kw, channels, times = int_shape(Filter)
    weight = compute_over(
        (channels * times, 1, kh, kw), lambda o, i, y, x: Filter(y, x, o // times, o % times + i), "T_filters"
    )
    return _convolve(2, Input, weight, stride, padding, dilation, channels, "NHWC", "OIHW", out_dtype)


def _transposed(
    rank: int, data: Tensor, kernel: Tensor, stride: Sizes, padding: Sizes | str, out_dtype: str | None,
    output_padding: Sizes, groups: int = 1,
) -> Tensor:  # fmt: skip
    x, w = (t if out_dtype in (None, t.dtype) else cast(t, out_dtype) for t in (data, kernel))
    ones = (1,) * rank
    windows = Spatial(_each(stride, rank, "stride"), _sides(padding, int_shape(w)[2:], ones), ones)
    return conv_transpose_nd(x, w, windows, _each(output_padding, rank, "output_padding"), groups)


def conv1d_transpose_ncw(
    data: Tensor, kernel: Tensor, stride: Sizes, padding: Sizes | str, out_dtype: str | None, output_padding: Sizes
) -> Tensor:  # fmt: skip
    """Transposed 1-D convolution [N, C, W] * [C, O, KW]."""
    return _transposed(1, data, kernel, stride, padding, out_dtype, output_padding)


def conv3d_transpose_ncdhw(
    Input: Tensor, Filter: Tensor, strides: Sizes, padding: Sizes | str, out_dtype: str | None,  # noqa: N803
    output_padding: Sizes,
) -> Tensor:  # fmt: skip
    """Transposed 3-D convolution [N, C, D, H, W] * [C, O, KD, KH, KW]."""
    return _transposed(3, Input, Filter, strides, padding, out_dtype, output_padding)


def group_conv2d_transpose_nchw(
    data: Tensor, kernel: Tensor, stride: Sizes, padding: Sizes | str, out_dtype: str | None, output_padding: Sizes,
    groups: int,
) -> Tensor:  # fmt: skip
    """Transposed 2-D convolution [N, C, H, W] * [C, O / groups, KH, KW] of groups of channels."""
    return _transposed(2, data, kernel, stride, padding, out_dtype, output_padding, groups)


__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "conv1d", "conv1d_ncw", "conv1d_nwc",
    "conv1d_transpose_ncw", "conv3d_ndhwc", "conv3d_transpose_ncdhw", "depthwise_conv2d_nhwc",
    "group_conv1d_ncw", "group_conv1d_nwc", "group_conv2d_nhwc", "group_conv2d_transpose_nchw", "pool1d",
    "pool3d", "pool_grad",
]  # fmt: skip
