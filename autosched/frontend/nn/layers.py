"""Layers."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.frontend.nn import op
from autosched.frontend.nn.core import Module, Parameter, Tensor


class Identity(Module):
    """What came in."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """x times the normal distribution's share below x."""

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x)


class Linear(Module):
    """x W' + b with the weight as [out_features, in_features]."""

    def __init__(
        self,
        in_features: int | str,
        out_features: int | str,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ):
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), dtype if out_dtype is None else out_dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        result = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return result if self.bias is None else result + self.bias

    def to(self, dtype: str | None = None) -> None:
        self.weight.to(dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)


class LayerNorm(Module):
    """Over the last dimensions, `normalized_shape`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ):
        own = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = own, eps
        self.weight = Parameter(own, dtype) if elementwise_affine else None
        self.bias = Parameter(own, dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps or 0.0)


class RMSNorm(Module):
    """x over the root of its mean square along `axes`, times a weight, plus a bias where there is one."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ):
        self.axes, self.epsilon = axes, epsilon
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        result = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return result if self.bias is None else result + self.bias


class GroupNorm(Module):
    """Over the channels of each group and all pixels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ):
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: object = None) -> Tensor:
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes)


class Embedding(Module):
    """Rows of a table by index."""

    def __init__(self, num: int | str, dim: int | str, dtype: str | None = None):
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        flat = op.take(self.weight, op.reshape(x, [-1]), axis=0, name="embedding")
        return op.reshape(flat, [*x.shape, self.weight.shape[1]])
