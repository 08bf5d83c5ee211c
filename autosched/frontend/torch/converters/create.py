"""Tensors made from nothing: constants of the import."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.frontend.torch.emitter import Emitter, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr


def _dtype(t: Emitter, dtype: object, default: str) -> str:
    return default if dtype is None else t.dtype(dtype)


@converter("arange")
def arange(
    t: Emitter, start: float, end: float | None = None, step: float = 1, *, dtype: object = None, **_: object
) -> Expr:
    if end is None:
        start, end = 0, start
    whole = all(isinstance(v, int) for v in (start, end, step))
    count = max(0, math.ceil((end - start) / step))
    return Constant((start + np.arange(count) * step).astype(_dtype(t, dtype, "int64" if whole else "float32")))


@converter("full")
def full(t: Emitter, size: Sequence[int], fill_value: float, *, dtype: object = None, **_: object) -> Expr:
    kind = {bool: "bool", int: "int64"}.get(type(fill_value), "float32")
    return Constant(np.full(tuple(size), fill_value, _dtype(t, dtype, kind)))


@converter("zeros")
def zeros(t: Emitter, *size: object, dtype: object = None, **_: object) -> Expr:
    return Constant(np.zeros(_sizes(size), _dtype(t, dtype, "float32")))


@converter("ones")
def ones(t: Emitter, *size: object, dtype: object = None, **_: object) -> Expr:
    return Constant(np.ones(_sizes(size), _dtype(t, dtype, "float32")))


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)


@converter("full_like", "new_full")
def full_like(t: Emitter, input: Expr, *args: Any, dtype: object = None, **_: object) -> Expr:
    """full_like(x, value) has x's shape; new_full(x, size, value) only its dtype."""
    shape = t.shape(input) if len(args) == 1 else tuple(args[0])
    return Constant(np.full(shape, args[-1], _dtype(t, dtype, info_of(input).dtype)))


@converter("zeros_like", "new_zeros")
def zeros_like(
    t: Emitter, input: Expr, size: Sequence[int] | None = None, *, dtype: object = None, **_: object
) -> Expr:
    return Constant(np.zeros(t.shape(input) if size is None else tuple(size), _dtype(t, dtype, info_of(input).dtype)))


@converter("ones_like", "new_ones")
def ones_like(t: Emitter, input: Expr, size: Sequence[int] | None = None, *, dtype: object = None, **_: object) -> Expr:
    return Constant(np.ones(t.shape(input) if size is None else tuple(size), _dtype(t, dtype, info_of(input).dtype)))


@converter("scalar_tensor", "tensor")
def scalar_tensor(t: Emitter, value: object, *, dtype: object = None, **_: object) -> Expr:
    kind = {bool: "bool", int: "int64"}.get(type(value), "float32")
    return Constant(np.asarray(value, _dtype(t, dtype, kind)))


@converter("empty", "empty_strided", "empty_permuted", "new_empty")
def empty(t: Emitter, *args: object, size: Sequence[int] | None = None, dtype: object = None, **_: object) -> Expr:
    """Values that nobody may depend on: zeros."""
    given = [a for a in args if not isinstance(a, Expr)]
    default = info_of(args[0]).dtype if args and isinstance(args[0], Expr) else "float32"
    return Constant(np.zeros(_sizes(tuple(given[:1])) if size is None else tuple(size), _dtype(t, dtype, default)))


@converter("empty_like")
def empty_like(t: Emitter, input: Expr, *, dtype: object = None, **_: object) -> Expr:
    return zeros_like(t, input, dtype=dtype)


@converter("linspace")
def linspace(t: Emitter, start: float, end: float, steps: int, *, dtype: object = None, **_: object) -> Expr:
    """Counted from both ends, as PyTorch does."""
    kind = _dtype(t, dtype, "float32")
    step, at, half = (end - start) / max(steps - 1, 1), np.arange(steps), steps // 2
    values = np.where(at < half, start + step * at, end - step * (steps - 1 - at))
    return Constant((np.asarray([start]) if steps == 1 else values).astype(kind))


@converter("eye")
def eye(t: Emitter, n: int, m: int | None = None, *, dtype: object = None, **_: object) -> Expr:
    return Constant(np.eye(n, m, dtype=_dtype(t, dtype, "float32")))


@converter("tril")
def tril(t: Emitter, input: Expr, diagonal: int = 0) -> Expr:
    return _triangle(np.tril, op.tril, input, diagonal)


@converter("triu")
def triu(t: Emitter, input: Expr, diagonal: int = 0) -> Expr:
    return _triangle(np.triu, op.triu, input, diagonal)


def _triangle(
    cut: Callable[[np.ndarray, int], np.ndarray], definition: Callable[..., Expr], input: Expr, diagonal: int
) -> Expr:
    if isinstance(input, Constant):
        return Constant(np.ascontiguousarray(cut(input.data, diagonal)))
    return definition(input, k=diagonal)
