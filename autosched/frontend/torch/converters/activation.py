"""Activations."""

from __future__ import annotations

from autosched.frontend.torch.converters.elementwise import clamp
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


@converter("relu")
def relu(t: Emitter, input: Expr, inplace: bool = False) -> Expr:
    return op.nn.relu(input)


@converter("relu6")
def relu6(t: Emitter, input: Expr, inplace: bool = False) -> Expr:
    return op.clip(input, min=0.0, max=6.0)


@converter("hardtanh")
def hardtanh(t: Emitter, input: Expr, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Expr:
    dtype = info_of(input).dtype
    whole = dtype.startswith("int") or dtype.startswith("uint")
    return clamp(t, input, int(min_val), int(max_val)) if whole else clamp(t, input, float(min_val), float(max_val))


@converter("gelu")
def gelu(t: Emitter, input: Expr, approximate: str = "none") -> Expr:
    return op.nn.gelu_tanh(input) if approximate == "tanh" else op.nn.gelu(input)


@converter("silu")
def silu(t: Emitter, input: Expr, inplace: bool = False) -> Expr:
    return op.nn.silu(input)


@converter("leaky_relu")
def leaky_relu(t: Emitter, input: Expr, negative_slope: float = 0.01, inplace: bool = False) -> Expr:
    return op.nn.leakyrelu(input, alpha=float(negative_slope))


@converter("prelu", "_prelu_kernel")
def prelu(t: Emitter, input: Expr, weight: Expr) -> Expr:
    """One slope for all, or one for each channel."""
    shape, ndim = t.shape(weight), len(t.shape(input))
    if len(shape) == 1:
        weight = t.reshape(weight, tuple(shape[0] if d == min(1, ndim - 1) else 1 for d in range(ndim)))
    return op.where(op.greater(input, constant(0.0, info_of(input).dtype)), input, op.multiply(input, weight))


@converter("hardsigmoid")
def hardsigmoid(t: Emitter, input: Expr, inplace: bool = False) -> Expr:
    return op.nn.hard_sigmoid(input, alpha=1.0 / 6.0, beta=0.5)


@converter("hardswish")
def hardswish(t: Emitter, input: Expr, inplace: bool = False) -> Expr:
    return op.multiply(input, t(op.nn.hard_sigmoid(input, alpha=1.0 / 6.0, beta=0.5)))


@converter("elu")
def elu(t: Emitter, input: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    dtype = info_of(input).dtype
    zero = constant(0.0, dtype)
    scaled = input if input_scale == 1 else t(op.multiply(input, constant(input_scale, dtype)))
    below = op.multiply(op.expm1(op.minimum(scaled, zero)), constant(alpha * scale, dtype))
    above = input if scale == 1 else op.multiply(input, constant(scale, dtype))
    return op.where(op.greater(input, zero), above, below)


@converter("softplus")
def softplus(t: Emitter, input: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    dtype = info_of(input).dtype
    scaled = t(op.multiply(input, constant(beta, dtype)))
    small = t(op.log1p(op.exp(op.minimum(scaled, constant(threshold, dtype)))))
    soft = op.divide(small, constant(beta, dtype))
    return op.where(op.greater(scaled, constant(threshold, dtype)), input, soft)


@converter("mish")
def mish(t: Emitter, input: Expr, inplace: bool = False) -> Expr:
    return op.multiply(input, op.tanh(t(softplus(t, input))))


_DRAWS = "dropout in training mode draws random numbers (model.eval() before the export leaves it out)"


@converter("dropout", "feature_dropout", "dropout2d", "alpha_dropout")
def dropout(t: Emitter, input: Expr, p: float = 0.5, train: bool = False, *_: object, **__: object) -> Expr:
    """The input; PyTorch draws what is dropped in training mode."""
    if train and p:
        raise t.needs_library(_DRAWS)
    return input


@converter("native_dropout")
def native_dropout(t: Emitter, input: Expr, p: float, train: bool | None) -> tuple[Expr, Expr]:
    if train is not False and p:
        raise t.needs_library(_DRAWS)
    return (input, op.ones_like(input, dtype="bool"))
