"""Relay's tensors from nothing: relax's with Relay's signatures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autosched.relax import Expr, op
from autosched.relay.expr import const, info, unwrap
from autosched.runtime import NDArray


def full(fill_value: object, shape: Sequence[int] = (), dtype: str = "") -> Expr:
    """A tensor of one value."""
    value = fill_value.numpy() if isinstance(fill_value, NDArray) else getattr(fill_value, "data", fill_value)
    number = np.asarray(value)
    return op.full(
        tuple(shape), number.item(), dtype or {"float64": "float32"}.get(str(number.dtype), str(number.dtype))
    )


def zeros(shape: Sequence[int], dtype: str) -> Expr:
    """A tensor of zeros."""
    return op.zeros(tuple(shape), dtype)


def ones(shape: Sequence[int], dtype: str) -> Expr:
    """A tensor of ones."""
    return op.ones(tuple(shape), dtype)


def zeros_like(data: object) -> Expr:
    """Zeros in a tensor's shape and dtype."""
    found = info(unwrap(data))
    return op.zeros(found.static_shape, found.dtype)


def ones_like(data: object) -> Expr:
    """Ones in a tensor's shape and dtype."""
    found = info(unwrap(data))
    return op.ones(found.static_shape, found.dtype)


def full_like(data: object, fill_value: object) -> Expr:
    """One value in a tensor's shape and dtype."""
    found = info(unwrap(data))
    return full(fill_value, found.static_shape, found.dtype)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "float32") -> Expr:
    """Numbers from `start` to before `stop`."""
    if stop is None:
        start, stop = 0, start
    return const(np.arange(start, stop, step, dtype=dtype))


def shape_of(data: object, dtype: str = "int32") -> Expr:
    """A tensor's shape as a tensor."""
    return const(np.asarray(info(unwrap(data)).static_shape, dtype))


def ndarray_size(data: object, dtype: str = "int32") -> Expr:
    """The number of a tensor's elements."""
    return const(np.asarray(math.prod(info(unwrap(data)).static_shape), dtype))
