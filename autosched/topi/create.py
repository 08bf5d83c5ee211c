"""Tensors from nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir.expr import EQ, PrimExpr, cast, compare, const, select, to_expr
from autosched.topi.shapes import Dim, dims, int_shape


def full(shape: Sequence[Dim], dtype: str, value: float) -> Tensor:
    """The same number everywhere."""
    return te.compute(dims(shape), lambda *_: const(value, dtype), name="T_full")


def full_like(x: Tensor, value: float) -> Tensor:
    return full(x.shape, x.dtype, value)


def arange(start: int, end: int, step: int, dtype: str) -> Tensor:
    """start, start + step, … before end."""
    size = max(0, -(-(end - start) // step))
    return te.compute(dims((size,)), lambda i: cast(dtype, i * step + start), name="T_arange")


def counted(start: Dim, count: Dim, step: int, dtype: str) -> Tensor:
    """`count` numbers from `start` on, which may be symbols."""
    return te.compute(dims((count,)), lambda i: cast(dtype, i * step + start), name="T_numbers")


def listed(values: Sequence[Dim], is_scalar: bool, dtype: str) -> Tensor:
    """The values, which may be symbols, as a vector; the first one as a scalar."""

    def element(*i: PrimExpr) -> PrimExpr:
        found = to_expr(values[-1], "int64") if i else to_expr(values[0], "int64")
        for at, value in reversed(list(enumerate(values[:-1]))) if i else ():
            found = select(compare(EQ, i[0], at), value, found)
        return cast(dtype, found)

    return te.compute(() if is_scalar else dims((len(values),)), element, name="T_listed")


def zeros(shape: Sequence[int], dtype: str = "float32") -> Tensor:
    """Zeros."""
    return full(shape, dtype, 0)


def ones(shape: Sequence[int], dtype: str = "float32") -> Tensor:
    """Ones."""
    return full(shape, dtype, 1)


def zeros_like(x: Tensor) -> Tensor:
    """Zeros of a tensor's shape and dtype."""
    return full_like(x, 0)


def ones_like(x: Tensor) -> Tensor:
    """Ones of a tensor's shape and dtype."""
    return full_like(x, 1)


def ndarray_size(x: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements, as a tensor of shape ()."""
    return full((), dtype, math.prod(int_shape(x)))
