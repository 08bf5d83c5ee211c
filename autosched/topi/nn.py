"""Operators of neural networks under TVM's names in `topi.nn`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.topi.broadcast import add, cast
from autosched.topi.conv2d import conv2d as conv2d_general
from autosched.topi.linear import matmul as matmul
from autosched.topi.manipulate import pad as pad
from autosched.topi.manipulate import reshape, transpose
from autosched.topi.norm import batch_norm as batch_norm
from autosched.topi.norm import layer_norm as layer_norm
from autosched.topi.norm import lrn as lrn
from autosched.topi.pool import avg_pool2d, max_pool2d
from autosched.topi.shapes import int_shape
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
    data: Tensor,
    kernel: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    layout: str = "NCHW",
    out_dtype: str | None = None,
) -> Tensor:
    """2-D convolution [N, C, H, W] * [O, C, KH, KW], of values converted to `out_dtype`."""
    data, kernel = _converted(out_dtype, data, kernel)
    return conv2d_general(data, kernel, _pair(strides), _sides(padding), _pair(dilation), 1, layout, layout)


def conv2d_nchw(
    Input: Tensor,  # noqa: N803  (TVM's name)
    Filter: Tensor,  # noqa: N803
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    out_dtype: str | None = None,
) -> Tensor:
    """2-D convolution [N, C, H, W] * [O, C, KH, KW]."""
    return conv2d(Input, Filter, stride, padding, dilation, "NCHW", out_dtype)


def dense(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """data · weightᵀ (+ bias), the weight [units, in]."""
    product = matmul(data, transpose(weight), out_dtype)
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
    product = matmul(a, b, out_dtype)
    if oshape is not None and tuple(int(n) for n in oshape) != int_shape(product):
        raise ShapeError(f"batch_matmul: oshape {tuple(oshape)}, and the result is of shape {int_shape(product)}")
    return product


def pool2d(
    data: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    pool_type: str, ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Maxima ("max") or means ("avg") of windows [N, C, H, W]. Raises ValueError for another kind or layout."""
    if pool_type not in ("max", "avg") or layout != "NCHW":
        raise InvalidValueError(f"pool2d: '{pool_type}' in layout '{layout}'", hint="'max' or 'avg' in NCHW")
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
    data, weight = transpose(Input, (0, 3, 1, 2)), transpose(Filter, (3, 2, 0, 1))
    return transpose(conv2d(data, weight, stride, padding, dilation, "NCHW", out_dtype), (0, 2, 3, 1))
