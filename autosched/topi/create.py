"""Tensors from nothing."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir.expr import cast, const
from autosched.topi.shapes import Dim, dims


def full(shape: Sequence[Dim], dtype: str, value: float) -> Tensor:
    """The same number everywhere."""
    return te.compute(dims(shape), lambda *_: const(value, dtype), name="T_full")


def full_like(x: Tensor, value: float) -> Tensor:
    return full(x.shape, x.dtype, value)


def arange(start: int, end: int, step: int, dtype: str) -> Tensor:
    """start, start + step, … before end."""
    size = max(0, -(-(end - start) // step))
    return te.compute(dims((size,)), lambda i: cast(dtype, i * step + start), name="T_arange")
