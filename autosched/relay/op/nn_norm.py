"""Relay's normalisations and dropout: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.relax import Expr, op
from autosched.relay.expr import TupleWrapper, info, unwrap


def batch_norm(
    data: object,
    gamma: object,
    beta: object,
    moving_mean: object,
    moving_var: object,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """Normalisation with the moving statistics: (result, mean, variance)."""
    tensors = [unwrap(x) for x in (data, gamma, beta, moving_mean, moving_var)]
    return TupleWrapper(op.nn.batch_norm(*tensors, axis, epsilon, center, scale, training=False), 3)


def layer_norm(
    data: object,
    gamma: object,
    beta: object,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Normalisation along an axis."""
    return op.nn.layer_norm(unwrap(data), unwrap(gamma), unwrap(beta), axis, epsilon, center, scale)


def lrn(data: object, size: int = 5, axis: int = 1, bias: float = 2, alpha: float = 1e-5, beta: float = 0.75) -> Expr:
    """Local response normalisation."""
    return op.nn.lrn(unwrap(data), size, axis, alpha, beta, bias)


def dropout(data: object, rate: float = 0.5) -> Expr:
    """The data itself: nothing is dropped when a model runs. Raises ValueError for a rate outside of [0, 1)."""
    if not 0 <= rate < 1:
        raise InvalidValueError(f"dropout: rate {rate}", hint="a rate lies in [0, 1)")
    return op.identity(unwrap(data))


def group_norm(
    data: object, gamma: object, beta: object, num_groups: int, axis: int = 1, epsilon: float = 1e-5,
    center: bool = True, scale: bool = True,
) -> Expr:  # fmt: skip
    """Normalisation of groups of channels."""
    x = unwrap(data)
    axes = [a for a in range(2, info(x).ndim)]
    return op.nn.group_norm(x, unwrap(gamma), unwrap(beta), num_groups, axis, axes, epsilon, center, scale)


def instance_norm(
    data: object,
    gamma: object,
    beta: object,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Normalisation of each channel of each image."""
    x = unwrap(data)
    axes = [a for a in range(info(x).ndim) if a not in (0, axis)]
    return op.nn.instance_norm(x, unwrap(gamma), unwrap(beta), axis, axes, epsilon, center, scale)


def l2_normalize(data: object, eps: float, axis: Sequence[int] | None = None) -> Expr:
    """Divided by the square root of the sum of squares."""
    x = unwrap(data)
    total = op.sum(op.multiply(x, x), None if axis is None else list(axis), True)
    return op.divide(x, op.sqrt(op.maximum(total, eps)))
