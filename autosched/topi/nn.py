"""Operators of neural networks under TVM's names in `topi.nn`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.errors import InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.broadcast import add, cast, elementwise
from autosched.topi.compat import dilate as dilate
from autosched.topi.conv2d import conv2d as conv2d_general
from autosched.topi.conv_nd import Spatial, conv_nd, conv_transpose_nd
from autosched.topi.linear import matmul as matmul_general
from autosched.topi.manipulate import pad as pad_general
from autosched.topi.manipulate import reshape, transpose
from autosched.topi.nn_sizes import *  # noqa: F403
from autosched.topi.nn_windows import *  # noqa: F403
from autosched.topi.nn_windows import pool_images
from autosched.topi.norm import batch_norm as batch_norm_general
from autosched.topi.norm import layer_norm as layer_norm_general
from autosched.topi.norm import lrn as lrn_general
from autosched.topi.norm import rms_norm as rms_norm_general
from autosched.topi.pool import avg_pool2d, max_pool2d
from autosched.topi.reduction import mean, variance
from autosched.topi.reduction import sum as total
from autosched.topi.shapes import compute_over, int_shape, normal_axes, one_axis
from autosched.topi.softmax import log_softmax as log_softmax
from autosched.topi.softmax import softmax as softmax
from autosched.topi.unary import leaky_relu as leaky_relu
from autosched.topi.unary import relu as relu


def _pair(x: int | Sequence[int]) -> tuple[int, ...]:
    return (x, x) if isinstance(x, int) else tuple(x)


def _sides(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    sides = _pair(padding)
    top, left = sides[0], sides[1]
    bottom, right = sides[2:] if len(sides) == 4 else (top, left)
    return top, left, bottom, right


def _converted(dtype: str | None, *tensors: Tensor) -> list[Tensor]:
    """Tensors in the dtype that a product is summed in, where one is given."""
    return [cast(t, dtype) if dtype and t.dtype != dtype else t for t in tensors]


def conv2d(
    input: Tensor,  # noqa: A002  (TVM's name)
    filter: Tensor,  # noqa: A002
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """2-D convolution of values converted to `out_dtype`.

    data_layout    "NCHW", "NHWC" or "HWCN"
    kernel_layout  "OIHW" or "HWIO", by default what belongs to the data: OIHW for NCHW, else HWIO
    """
    if data_layout not in ("NCHW", "NHWC", "HWCN"):
        raise InvalidValueError(f"conv2d: data_layout '{data_layout}'", hint="'NCHW', 'NHWC' or 'HWCN'")
    kernel_layout = kernel_layout or ("OIHW" if data_layout == "NCHW" else "HWIO")
    if kernel_layout not in ("OIHW", "HWIO"):
        raise InvalidValueError(f"conv2d: kernel_layout '{kernel_layout}'", hint="'OIHW' or 'HWIO'")
    data, kernel = _converted(out_dtype, input, filter)
    if data_layout != "NCHW":
        data = transpose(data, [data_layout.index(c) for c in "NCHW"])
    if kernel_layout != "OIHW":
        kernel = transpose(kernel, [kernel_layout.index(c) for c in "OIHW"])
    result = conv2d_general(data, kernel, _pair(strides), _sides(padding), _pair(dilation), 1, "NCHW", "NCHW")
    return result if data_layout == "NCHW" else transpose(result, ["NCHW".index(c) for c in data_layout])


def conv2d_nchw(
    Input: Tensor,  # noqa: N803  (TVM's name)
    Filter: Tensor,  # noqa: N803
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    out_dtype: str | None = None,
) -> Tensor:
    """2-D convolution [N, C, H, W] * [O, C, KH, KW]."""
    return conv2d(Input, Filter, stride, padding, dilation, "NCHW", out_dtype=out_dtype)


def dense(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """data · weightᵀ (+ bias), the weight [units, in]."""
    product = matmul_general(data, transpose(weight), out_dtype)
    return product if bias is None else add(product, bias)


def flatten(data: Tensor) -> Tensor:
    """All axes but the first as one."""
    shape = int_shape(data)
    size = 1
    for extent in shape[1:]:
        size *= extent
    return reshape(data, (shape[0], size))


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """A bias along one axis."""
    after = data.ndim - 1 - axis % data.ndim
    return add(data, reshape(bias, (*int_shape(bias), *[1] * after)))


def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, oshape: Sequence[int] | None = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = True,
) -> Tensor:  # fmt: skip
    """tensor_a [B, M, K] times tensor_b [B, N, K], which is transposed by default."""
    a = transpose(tensor_a, (0, 2, 1)) if transpose_a else tensor_a
    b = transpose(tensor_b, (0, 2, 1)) if transpose_b else tensor_b
    product = matmul_general(a, b, out_dtype)
    if oshape is not None and tuple(int(n) for n in oshape) != int_shape(product):
        raise ShapeError(f"batch_matmul: oshape {tuple(oshape)}, and the result is of shape {int_shape(product)}")
    return product


def pool2d(
    data: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    pool_type: str, ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Maxima ("max") or means ("avg") of windows over images. Raises ValueError for another kind or layout."""
    if pool_type not in ("max", "avg") or layout != "NCHW":
        return pool_images(
            2, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad
        )  # fmt: skip
    sides = _sides(padding)
    if pool_type == "max":
        return max_pool2d(data, kernel, stride, sides, dilation, ceil_mode)
    return avg_pool2d(data, kernel, stride, sides, dilation, ceil_mode, count_include_pad)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """The maximum or mean of each image [N, C, H, W]."""
    height, width = int_shape(data)[2:4]
    return pool2d(data, (height, width), (1, 1), (1, 1), (0, 0), pool_type, False, layout)


def depthwise_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: N803
    dilation: int | Sequence[int], out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """Depthwise 2-D convolution [N, C, H, W] * [C, 1, KH, KW], of values converted to `out_dtype`."""
    data, weight = _converted(out_dtype, Input, Filter)
    groups = int_shape(data)[1]
    channels, multiplier, *kernel = int_shape(weight)
    if multiplier != 1:
        weight = reshape(weight, (channels * multiplier, 1, *kernel))
    return conv2d_general(data, weight, _pair(stride), _sides(padding), _pair(dilation), groups, "NCHW", "NCHW")


def group_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: N803
    dilation: int | Sequence[int], groups: int, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """2-D convolution of groups of channels, of values converted to `out_dtype`."""
    data, weight = _converted(out_dtype, Input, Filter)
    return conv2d_general(data, weight, _pair(stride), _sides(padding), _pair(dilation), groups, "NCHW", "NCHW")


def conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: N803
    dilation: int | Sequence[int], out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """2-D convolution [N, H, W, C] * [KH, KW, C, O]."""
    return conv2d(Input, Filter, stride, padding, dilation, "NHWC", out_dtype=out_dtype)


def conv2d_hwcn(
    Input: Tensor, Filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: N803
    dilation: int | Sequence[int], out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """2-D convolution [H, W, C, N] * [KH, KW, C, O]."""
    return conv2d(Input, Filter, stride, padding, dilation, "HWCN", out_dtype=out_dtype)


def matmul(
    tensor_a: Tensor, tensor_b: Tensor, bias: Tensor | None = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = False,
) -> Tensor:  # fmt: skip
    """The product of two matrices, each as it stands or turned, plus a bias."""
    a = transpose(tensor_a) if transpose_a else tensor_a
    b = transpose(tensor_b) if transpose_b else tensor_b
    product = matmul_general(a, b, out_dtype)
    return product if bias is None else add(product, bias)


def pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, pad_value: float = 0.0,
    name: str = "PadInput", attrs: None = None,
) -> Tensor:  # fmt: skip
    """`pad_value` around the tensor; behind it as much as before it where no `pad_after` is given."""
    if attrs is not None or name != "PadInput":
        raise InvalidValueError("pad: 'name' and 'attrs' are not supported", hint="leave them out")
    after = pad_before if pad_after is None else pad_after
    return pad_general(data, [as_int(n) for n in pad_before], [as_int(n) for n in after], pad_value)


def layer_norm(
    data: Tensor, gamma: Tensor, beta: Tensor | None, axis: Sequence[int], epsilon: float = 1e-5
) -> Tensor:  # fmt: skip
    """Subtract the mean over `axis`, divide by the standard deviation, times gamma, plus beta where there is one."""
    return layer_norm_general(
        data, gamma, gamma if beta is None else beta, normal_axes(data, axis), epsilon, beta is not None, True
    )


def rms_norm(
    data: Tensor, weight: Tensor, axis: Sequence[int], epsilon: float = 1e-5
) -> Tensor:  # fmt: skip
    """Divide by the root of the mean square over `axis`, times the weight."""
    return rms_norm_general(data, weight, normal_axes(data, axis), epsilon)


def batch_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor, axis: int | None = None,
    epsilon: float | None = None, center: bool | None = None, scale: bool | None = None,
    training: bool | None = None, momentum: float | None = None,
) -> list[Tensor]:  # fmt: skip
    """[result, mean, variance] of inference along `axis` (1); `training` is refused: see `relax.op.nn.batch_norm`."""
    if training or momentum is not None:
        raise InvalidValueError("batch_norm: training is not supported", hint="relax.op.nn.batch_norm(training=True)")
    place = one_axis(data, 1 if axis is None else axis)
    eps = 1e-5 if epsilon is None else epsilon
    return [
        *batch_norm_general(
            data, gamma, beta, moving_mean, moving_var, place, eps, center is not False, scale is not False
        )
    ]


def lrn(
    data: Tensor, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2
) -> Tensor:  # fmt: skip
    """Local response normalisation over `size` neighbours along `axis`."""
    return lrn_general(data, size, one_axis(data, axis), alpha, beta, bias)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""

    def compute(v: PrimExpr) -> PrimExpr:
        scaled = v * E.const(beta, v.dtype)
        soft = te.log(E.const(1, v.dtype) + te.exp(E.minimum(scaled, E.const(threshold, v.dtype))))
        return E.select(scaled > E.const(threshold, v.dtype), v, soft / E.const(beta, v.dtype))

    return elementwise(compute, "T_softplus", x)


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """x, or where it is negative x times the slope of its channel."""
    place = one_axis(x, axis)
    return compute_over(
        x.shape, lambda *i: E.select(x(*i) > E.const(0, x.dtype), x(*i), x(*i) * slope(i[place])), "T_prelu"
    )


def depth_to_space(data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Tensor:
    """Blocks of channels as squares of pixels; of [N, C, H, W] or with "NHWC" channels last."""
    _require_block_layout("depth_to_space", layout)
    if mode not in ("DCR", "CRD"):
        raise InvalidValueError(f"depth_to_space: mode '{mode}'", hint="'DCR' or 'CRD'")
    x = transpose(data, (0, 3, 1, 2)) if layout == "NHWC" else data
    n, c, h, w = int_shape(x)
    if c % block_size**2:
        raise ShapeError(f"depth_to_space: {c} channels are no multiple of {block_size**2}")
    out = c // block_size**2

    def compute(*i: PrimExpr) -> PrimExpr:
        square = i[2] % block_size * block_size + i[3] % block_size
        channel = square * out + i[1] if mode == "DCR" else i[1] * block_size**2 + square
        return x(i[0], channel, i[2] // block_size, i[3] // block_size)

    result = compute_over((n, out, h * block_size, w * block_size), compute, "T_depth_to_space")
    return transpose(result, (0, 2, 3, 1)) if layout == "NHWC" else result


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """Squares of pixels as blocks of channels, the opposite of `depth_to_space`."""
    _require_block_layout("space_to_depth", layout)
    x = transpose(data, (0, 3, 1, 2)) if layout == "NHWC" else data
    n, c, h, w = int_shape(x)
    if h % block_size or w % block_size:
        raise ShapeError(f"space_to_depth: images of {h} × {w} are no multiple of {block_size}")

    def compute(*i: PrimExpr) -> PrimExpr:
        square, channel = i[1] // c, i[1] % c
        row = i[2] * block_size + square // block_size
        return x(i[0], channel, row, i[3] * block_size + square % block_size)

    result = compute_over((n, c * block_size**2, h // block_size, w // block_size), compute, "T_space_to_depth")
    return transpose(result, (0, 2, 3, 1)) if layout == "NHWC" else result


def _require_block_layout(what: str, layout: str) -> None:
    if layout not in ("NCHW", "NHWC"):
        raise InvalidValueError(f"{what}: layout '{layout}'", hint="'NCHW' or 'NHWC'")


def mirror_pad(
    data: Tensor, pad_before: Sequence[int], pad_after: Sequence[int] | None = None, mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:  # fmt: skip
    """The tensor with its mirror image around it: with its border ("SYMMETRIC") or without ("REFLECT")."""
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise InvalidValueError(f"mirror_pad: mode '{mode}'", hint="'SYMMETRIC' or 'REFLECT'")
    after = pad_before if pad_after is None else pad_after
    size, edge = int_shape(data), int(mode == "SYMMETRIC")
    for n, before, behind in zip(size, pad_before, after, strict=True):
        if max(before, behind) > n - 1 + edge:
            raise ShapeError(f"mirror_pad: {max(before, behind)} elements beside a dimension of {n}")

    def place(v: PrimExpr, n: int, before: int, behind: int) -> PrimExpr:
        at = v - before
        if behind:
            at = E.select(at >= n, E.const(2 * n - 2 + edge, at.dtype) - at, at)
        return E.select(v < before, E.const(before - edge, v.dtype) - v, at) if before else at

    def compute(*i: PrimExpr) -> PrimExpr:
        return data(*map(place, i, size, pad_before, after))

    return compute_over([b + n + a for b, n, a in zip(pad_before, size, after, strict=True)], compute, name)


def group_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, num_groups: int, channel_axis: int, axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Each group of channels, and `axes`, brought to mean 0 and variance 1; times gamma of the channel, plus beta."""
    channel = one_axis(data, channel_axis)
    shape = int_shape(data)
    if shape[channel] % num_groups:
        raise ShapeError(f"group_norm: {shape[channel]} channels in {num_groups} groups")
    size = shape[channel] // num_groups
    grouped = reshape(data, (*shape[:channel], num_groups, size, *shape[channel + 1 :]))
    over = [channel + 1, *(a + (a > channel) for a in normal_axes(data, axes))]
    middle, spread = mean(grouped, over, True), variance(grouped, over, True)
    reduced = int_shape(middle)

    def compute(*i: PrimExpr) -> PrimExpr:
        at = [*i[:channel], i[channel] // size, i[channel] % size, *i[channel + 1 :]]
        own = [E.const(0, "int64") if n == 1 else v for v, n in zip(at, reduced, strict=True)]
        value = (data(*i) - middle(*own)) * te.rsqrt(spread(*own) + E.const(epsilon, data.dtype))
        return value * gamma(i[channel]) + beta(i[channel])

    return compute_over(data.shape, compute, "T_group_norm")


def instance_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, channel_axis: int, axis: Sequence[int] | int, epsilon: float = 1e-5
) -> Tensor:  # fmt: skip
    """Each channel of each image brought to mean 0 and variance 1 over `axis`; times gamma, plus beta."""
    channel = one_axis(data, channel_axis)
    return group_norm(data, gamma, beta, int_shape(data)[channel], channel, normal_axes(data, axis), epsilon)


def _conv_nd(
    rank: int, data: Tensor, weight: Tensor, strides: int | Sequence[int], padding: int | Sequence[int],
    dilation: int | Sequence[int], out_dtype: str | None, groups: int = 1,
) -> Tensor:  # fmt: skip
    def each(x: int | Sequence[int]) -> tuple[int, ...]:
        return (x,) * rank if isinstance(x, int) else tuple(as_int(n) for n in x)

    data, weight = _converted(out_dtype, data, weight)
    sides = each(padding)
    return conv_nd(
        data, weight, Spatial(each(strides), sides if len(sides) == 2 * rank else sides * 2, each(dilation)), groups
    )


def conv3d_ncdhw(
    Input: Tensor, Filter: Tensor, stride: int | Sequence[int], padding: int | Sequence[int],  # noqa: N803
    dilation: int | Sequence[int], groups: int = 1, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """3-D convolution [N, C, D, H, W] * [O, C / groups, KD, KH, KW]."""
    return _conv_nd(3, Input, Filter, stride, padding, dilation, out_dtype, groups)


def conv2d_transpose_nchw(
    Input: Tensor, Filter: Tensor, strides: int | Sequence[int], padding: int | Sequence[int],  # noqa: N803
    out_dtype: str | None, output_padding: Sequence[int],
) -> Tensor:  # fmt: skip
    """Transposed 2-D convolution [N, C, H, W] * [C, O, KH, KW]."""
    data, weight = _converted(out_dtype, Input, Filter)
    return conv_transpose_nd(data, weight, Spatial(_pair(strides), _sides(padding), (1, 1)), _pair(output_padding))


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:  # noqa: N803
    """Input * Scale + Shift of each channel, dimension 1."""
    return compute_over(Input.shape, lambda *i: Input(*i) * Scale(i[1]) + Shift(i[1]), "T_scale_shift")


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:  # noqa: N803
    """Input * Scale + Shift of each channel, the last dimension."""
    return compute_over(Input.shape, lambda *i: Input(*i) * Scale(i[-1]) + Shift(i[-1]), "T_scale_shift")


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

    return compute_over(buffer.shape, element, "new_buffer")


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

    each = compute_over(targets.shape, loss, "T_nll")
    if reduction == "none":
        return each
    if reduction == "sum":
        return total(each)
    summed, counted = total(each), total(compute_over(targets.shape, weight, "T_weight"))
    return te.compute((), lambda: summed() / counted(), name="T_divide")
