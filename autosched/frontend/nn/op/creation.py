"""Tensors made from nothing, and their triangles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import shape_of, value_of
from autosched.frontend.nn.op.elementwise import where
from autosched.relax import op as R


def full(shape: Sequence[object], fill_value: object, dtype: str = "float32", name: str = "full") -> Tensor:
    """One value everywhere."""
    return wrap_nested(R.full(shape_of(shape), fill_value=fill_value, dtype=dtype), name)  # type: ignore[no-any-return]


def zeros(shape: Sequence[object], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """Zeros."""
    return full(shape, 0.0, dtype, name)


def ones(shape: Sequence[object], dtype: str = "float32", name: str = "ones") -> Tensor:
    """Ones."""
    return full(shape, 1.0, dtype, name)


def empty(shape: Sequence[object], dtype: str = "float32", name: str = "empty") -> Tensor:
    """Values that do not matter: zeros."""
    return zeros(shape, dtype, name)


def arange(
    start: int, end: int | None = None, step: int = 1, dtype: str | None = "float32", name: str = "arange"
) -> Tensor:
    """start, start + step, … below end."""
    first, last = (0, start) if end is None else (start, end)
    return wrap_nested(R.arange(start=first, end=last, step=step, dtype=dtype or "int64"), name)  # type: ignore[no-any-return]


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """The part above a diagonal; zeros elsewhere."""
    rows, columns = x.struct_info.static_shape[-2:]
    above = Tensor.from_const(np.triu(np.ones((rows, columns), bool), diagonal))
    return where(above, x, 0.0, name)


def tril(x: Tensor, diagonal: int = 0, name: str = "tril") -> Tensor:
    """The lower triangle, zeros elsewhere."""
    return wrap_nested(R.tril(value_of(x, name), diagonal), name)  # type: ignore[no-any-return]
