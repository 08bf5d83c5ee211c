"""Pooling."""

from __future__ import annotations

from typing import Any

from autosched.frontend.torch.converters.conv import several
from autosched.frontend.torch.emitter import Emitter
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


@converter("max_pool2d")
def max_pool2d(
    t: Emitter,
    input: Expr,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices:
        raise t.fail("max_pool2d with return_indices is not supported")
    kernel = several(kernel_size, 2)
    return op.nn.max_pool2d(
        input, pool_size=kernel, strides=several(stride, 2) if stride else kernel, padding=several(padding, 2),
        dilation=several(dilation, 2), ceil_mode=ceil_mode,
    )  # fmt: skip


@converter("max_pool2d_with_indices")
def max_pool2d_with_indices(t: Emitter, *args: Any, **kwargs: Any) -> Any:
    """The decomposed form; its second result, the positions, is not computed and must not be used."""
    return (max_pool2d(t, *args, **kwargs), None)


@converter("avg_pool2d")
def avg_pool2d(
    t: Emitter,
    input: Expr,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if divisor_override is not None:
        raise t.fail("avg_pool2d with divisor_override is not supported")
    kernel = several(kernel_size, 2)
    return op.nn.avg_pool2d(
        input, pool_size=kernel, strides=several(stride, 2) if stride else kernel, padding=several(padding, 2),
        ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip


@converter("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_avg_pool2d(t: Emitter, input: Expr, output_size: Any) -> Any:
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    height, width = t.shape(input)[-2:]
    return op.nn.adaptive_avg_pool2d(input, output_size=[sizes[0] or height, sizes[1] or width])
