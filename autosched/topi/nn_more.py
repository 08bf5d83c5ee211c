"""Further operators of `topi.nn` with TVM's arguments: pooling, convolutions, paddings of other ranks and layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched import te
from autosched.errors import InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.broadcast import cast
from autosched.topi.conv_nd import Spatial, conv_nd, conv_transpose_nd
from autosched.topi.image import resize2d, resize3d
from autosched.topi.manipulate import _compute, pad_by, transpose
from autosched.topi.manipulate import pad as pad_general
from autosched.topi.pool_grad import pool_backward
from autosched.topi.pool_nd import adaptive_pool_nd, pool_nd
from autosched.topi.reduction import sum as total
from autosched.topi.shapes import int_shape, one_axis

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
    weight = _compute(
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


# --- sizes and paddings


def upsampling(
    data: Tensor, scale_h: float, scale_w: float, layout: str = "NCHW", method: str = "nearest_neighbor",
    align_corners: bool = False, output_shape: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Images `scale_h` times as high and `scale_w` times as wide, by "nearest_neighbor", "bilinear" or "bicubic"."""
    sizes = int_shape(data)
    size = output_shape or [
        int(round(sizes[layout.index(c)] * s)) for c, s in (("H", scale_h), ("W", scale_w))
    ]  # fmt: skip
    how = {"bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, None, size, layout, how, mode, bicubic_alpha=-0.75)


def upsampling3d(
    data: Tensor, scale_d: float, scale_h: float, scale_w: float, layout: str = "NCDHW",
    method: str = "nearest_neighbor", coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Volumes of other sizes, by "nearest_neighbor" or "trilinear"."""
    sizes = int_shape(data)
    scales = (("D", scale_d), ("H", scale_h), ("W", scale_w))
    size = output_shape or [int(round(sizes[layout.index(c)] * s)) for c, s in scales]
    return resize3d(
        data, None, size, layout, "linear" if method == "trilinear" else method, coordinate_transformation_mode
    )  # fmt: skip


def _around(
    data: Tensor, before: Sequence[int], after: Sequence[int] | None, mode: str, name: str
) -> Tensor:  # fmt: skip
    begins = [as_int(n) for n in before]
    return pad_by(data, begins, begins if after is None else [as_int(n) for n in after], mode, name)


def reflect_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, name: str = "ReflectPadInput"
) -> Tensor:  # fmt: skip
    """The tensor with its mirror image around it, without its border."""
    return _around(data, pad_before, pad_after, "reflect", name)


def replicate_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, name: str = "ReplicatePadInput"
) -> Tensor:  # fmt: skip
    """The tensor with its border elements repeated around it."""
    return _around(data, pad_before, pad_after, "replicate", name)


def circular_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, name: str = "CircularPadInput"
) -> Tensor:  # fmt: skip
    """The tensor continued from its other side."""
    return _around(data, pad_before, pad_after, "circular", name)


def space_to_batch_nd(
    data: Tensor, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Tensor:  # fmt: skip
    """Blocks of the padded dimensions 1, 2, … as further entries of the batch, [N * blocks, …]."""
    blocks = [as_int(b) for b in block_shape]
    rank = len(blocks)
    rest = [0] * (data.ndim - 1 - rank)
    x = pad_general(data, [0, *pad_before, *rest], [0, *pad_after, *rest], pad_value)
    sizes = int_shape(x)
    if any(s % b for s, b in zip(sizes[1:], blocks, strict=False)):
        raise ShapeError(f"space_to_batch_nd: {sizes[1 : 1 + rank]} are no multiples of {blocks}")
    n = sizes[0]
    shape = (n * math.prod(blocks), *(s // b for s, b in zip(sizes[1:], blocks, strict=False)), *sizes[1 + rank :])

    def element(*i: PrimExpr) -> PrimExpr:
        index, left = [], E.floordiv(i[0], n)
        for axis in reversed(range(rank)):
            index.append(i[1 + axis] * blocks[axis] + E.floormod(left, blocks[axis]))
            left = E.floordiv(left, blocks[axis])
        return x(E.floormod(i[0], n), *index[::-1], *i[1 + rank :])

    return _compute(shape, element, "T_space_to_batch")


def batch_to_space_nd(
    data: Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Tensor:  # fmt: skip
    """The opposite of `space_to_batch_nd`, without what is cropped of each dimension."""
    blocks, sizes = [as_int(b) for b in block_shape], int_shape(data)
    rank = len(blocks)
    n, left = divmod(sizes[0], math.prod(blocks))
    if left:
        raise ShapeError(f"batch_to_space_nd: {sizes[0]} entries are no multiple of {math.prod(blocks)}")
    wide = [s * b for s, b in zip(sizes[1:], blocks, strict=False)]
    shape = (n, *(w - b - e for w, b, e in zip(wide, crop_begin_list, crop_end_list, strict=True)), *sizes[1 + rank :])

    def element(*i: PrimExpr) -> PrimExpr:
        at = [v + b for v, b in zip(i[1:], crop_begin_list, strict=False)]
        block: PrimExpr = E.const(0, "int64")
        for p, b in zip(at, blocks, strict=True):
            block = block * b + E.floormod(p, b)
        return data(block * n + i[0], *(E.floordiv(p, b) for p, b in zip(at, blocks, strict=True)), *i[1 + rank :])

    return _compute(shape, element, "T_batch_to_space")


# --- the rest


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:  # noqa: N803
    """Input * Scale + Shift of each channel, dimension 1."""
    return _compute(Input.shape, lambda *i: Input(*i) * Scale(i[1]) + Shift(i[1]), "T_scale_shift")


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:  # noqa: N803
    """Input * Scale + Shift of each channel, the last dimension."""
    return _compute(Input.shape, lambda *i: Input(*i) * Scale(i[-1]) + Shift(i[-1]), "T_scale_shift")


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """The buffer with `data` behind it along `axis`, without as many elements at its beginning."""
    place = one_axis(buffer, axis)
    count, size = int_shape(data)[place], int_shape(buffer)[place]
    if count > size:
        raise ShapeError(f"fifo_buffer: {count} elements in a buffer of {size}")

    def element(*i: PrimExpr) -> PrimExpr:
        def at(v: PrimExpr) -> list[PrimExpr]:
            return [v if a == place else p for a, p in enumerate(i)]

        kept = i[place] < size - count
        return E.if_then_else(kept, buffer(*at(i[place] + count)), data(*at(i[place] - (size - count))))

    return _compute(buffer.shape, element, "new_buffer")


def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str, ignore_index: int
) -> Tensor:  # fmt: skip
    """The negated, weighted log-probabilities [N, C, …] of the targets' classes: each, their "sum" or their "mean"."""
    if reduction not in ("mean", "sum", "none"):
        raise InvalidValueError(f"nll_loss: reduction '{reduction}'", hint='"mean", "sum" or "none"')

    def label(*i: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        given = E.cast("int64", targets(*i))
        kept = E.compare(E.NE, given, E.const(ignore_index, "int64"))
        return E.select(kept, given, E.const(0, "int64")), kept

    def weight(*i: PrimExpr) -> PrimExpr:
        at, kept = label(*i)
        return E.select(kept, weights(at), E.const(0, weights.dtype))

    def loss(*i: PrimExpr) -> PrimExpr:
        index = (i[0], label(*i)[0], *i[1:]) if predictions.ndim > 1 else (label(*i)[0],)
        return -predictions(*index) * weight(*i)

    each = _compute(targets.shape, loss, "T_nll")
    if reduction == "none":
        return each
    if reduction == "sum":
        return total(each)
    summed, counted = total(each), total(_compute(targets.shape, weight, "T_weight"))
    return te.compute((), lambda: summed() / counted(), name="T_divide")


__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "batch_to_space_nd", "circular_pad", "conv1d",
    "conv1d_ncw", "conv1d_nwc", "conv1d_transpose_ncw", "conv3d_ndhwc", "conv3d_transpose_ncdhw",
    "depthwise_conv2d_nhwc", "fifo_buffer", "group_conv1d_ncw", "group_conv1d_nwc", "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw", "nll_loss", "pool1d", "pool3d", "pool_grad", "reflect_pad", "replicate_pad",
    "scale_shift_nchw", "scale_shift_nhwc", "space_to_batch_nd", "upsampling", "upsampling3d",
]  # fmt: skip
