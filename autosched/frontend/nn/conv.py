"""Convolutional layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidValueError
from autosched.frontend.nn import op
from autosched.frontend.nn.core import Module, Parameter, Tensor

Size = int | Sequence[int]


class _Conv(Module):
    """What convolutions over any number of dimensions share; the weight is [out, in / groups, *kernel]."""

    dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ):
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise InvalidValueError(
                f"{type(self).__name__}: groups={groups} does not divide {in_channels} and {out_channels} channels"
            )
        kernel = (kernel_size,) * self.dims if isinstance(kernel_size, int) else tuple(kernel_size)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight = Parameter((out_channels, in_channels // groups, *kernel), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def geometry(self) -> tuple[Any, Any, Any, Any]:
        return self.stride, self.padding, self.dilation, self.groups


class Conv1D(_Conv):
    """Over one dimension, [N, C, W]."""

    dims = 1

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d(x, self.weight, self.bias, *self.geometry())


class Conv2D(_Conv):
    """Over images, [N, C, H, W]."""

    dims = 2

    def __init__(self, *args: Any, data_layout: str = "NCHW", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv2d(x, self.weight, self.bias, *self.geometry(), data_layout=self.data_layout)


class Conv3D(_Conv):
    """Over volumes, [N, C, D, H, W]."""

    dims = 3

    def __init__(self, *args: Any, data_layout: str = "NCDHW", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv3d(x, self.weight, self.bias, *self.geometry(), data_layout=self.data_layout)


class ConvTranspose1D(Module):
    """The transposed convolution over one dimension; the weight is [in, out / groups, kernel]."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ):
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        self.weight = Parameter((in_channels, out_channels // groups, kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d_transpose(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.dilation, self.groups
        )
