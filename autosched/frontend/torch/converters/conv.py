"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched.frontend.torch.emitter import Emitter
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


def several(value: Any, count: int) -> list[int]:
    """A number, or a sequence of one or `count` numbers, as `count` numbers."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """PyTorch's padding="same": before and after each dimension, the odd one after."""
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [p // 2 for p in totals] + [p - p // 2 for p in totals]


@converter("conv2d", "conv3d")
def convolved(
    t: Emitter,
    input: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Expr:
    dims = len(t.shape(weight)) - 2
    definition, steps = {2: op.nn.conv2d, 3: op.nn.conv3d}[dims], several(dilation, dims)
    if padding == "same":
        pads = same_padding(t.shape(weight)[2:], steps)
    else:
        pads = [0] * dims if padding == "valid" else several(padding, dims)
    return _in_batches(
        t, input, bias, dims,
        lambda x: definition(x, weight, strides=several(stride, dims), padding=pads, dilation=steps, groups=groups),
    )  # fmt: skip


@converter("conv1d")
def conv1d(
    t: Emitter,
    input: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
) -> Expr:
    """A convolution of images with one row."""
    shape, kernel = t.shape(input), t.shape(weight)
    n, c, width = (1, *shape) if len(shape) == 2 else shape
    wide = t.reshape(input, (n, c, 1, width))
    pads = padding if isinstance(padding, str) else [0, *several(padding, 1)]
    result = convolved(
        t, wide, t.reshape(weight, (*kernel[:2], 1, kernel[2])), bias, [1, *several(stride, 1)], pads,
        [1, *several(dilation, 1)], groups,
    )  # fmt: skip
    out = t.shape(result)
    return t.reshape(result, (out[1], out[3]) if len(shape) == 2 else (out[0], out[1], out[3]))


@converter("convolution")
def convolution(
    t: Emitter,
    input: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: object,
    padding: object,
    dilation: object,
    transposed: bool,
    output_padding: object,
    groups: int,
) -> Expr:
    dims = len(t.shape(weight)) - 2
    if not transposed:
        return (conv1d if dims == 1 else convolved)(t, input, weight, bias, stride, padding, dilation, groups)
    return _transposed(t, input, weight, bias, stride, padding, output_padding, groups, dilation)


@converter("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed(
    t: Emitter,
    input: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: object = 1,
    padding: object = 0,
    output_padding: object = 0,
    groups: int = 1,
    dilation: object = 1,
) -> Expr:
    dims = len(t.shape(weight)) - 2
    definition = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}[dims]
    return _in_batches(
        t, input, bias, dims,
        lambda x: definition(
            x, weight, strides=several(stride, dims), padding=several(padding, dims),
            output_padding=several(output_padding, dims), dilation=several(dilation, dims), groups=groups,
        ),
    )  # fmt: skip


def _in_batches(t: Emitter, x: Expr, bias: Expr | None, dims: int, run: Callable[[Expr], Expr]) -> Expr:
    """A convolution of a batch, or of one image without that dimension, and the bias of its channels."""
    single = len(t.shape(x)) == dims + 1
    result = t(run(t.reshape(x, (1, *t.shape(x))) if single else x))
    if bias is not None:
        result = t(op.add(result, t.reshape(bias, (1, t.shape(bias)[0], *(1,) * dims))))
    return t.reshape(result, t.shape(result)[1:]) if single else result
