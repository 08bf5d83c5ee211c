"""Operators of neural networks under TVM's names in `topi.nn`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.te import Tensor
from autosched.topi.broadcast import add
from autosched.topi.conv2d import conv2d as conv2d_general
from autosched.topi.linear import matmul as matmul
from autosched.topi.manipulate import pad as pad
from autosched.topi.manipulate import reshape, transpose
from autosched.topi.norm import batch_norm as batch_norm
from autosched.topi.norm import layer_norm as layer_norm
from autosched.topi.norm import lrn as lrn
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


def conv2d(
    data: Tensor,
    kernel: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    layout: str = "NCHW",
    out_dtype: str | None = None,
) -> Tensor:
    """2-D convolution [N, C, H, W] * [O, C, KH, KW]."""
    del out_dtype
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
