"""Tensors made from nothing: constants of the import."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import plain
from autosched.frontend.torch.emitter import Emitter, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr


def filled(t: Emitter, shape: Sequence[Dim], value: Any, dtype: str) -> Expr:
    """One value everywhere: a constant, where all sizes are known and the value is no size."""
    if isinstance(value, PrimExpr) or not all(isinstance(n, int) for n in shape):
        return t.broadcast(t.as_dtype(value, dtype), shape)
    return Constant(np.full([n for n in shape if isinstance(n, int)], value, dtype))


def _dtype(t: Emitter, dtype: object, default: str) -> str:
    return default if dtype is None else t.dtype(dtype)


@converter("arange")
def arange(
    t: Emitter, start: float, end: float | None = None, step: float = 1, *, dtype: object = None, **_: object
) -> Expr:
    if end is None:
        start, end = 0, start
    if any(isinstance(v, PrimExpr) for v in (start, end)):
        return _open_range(t, start, end, step, _dtype(t, dtype, "int64"))
    whole = all(isinstance(v, int) for v in (start, end, step))
    count = max(0, math.ceil((end - start) / step))
    return Constant((start + np.arange(count) * step).astype(_dtype(t, dtype, "int64" if whole else "float32")))


def _open_range(t: Emitter, start: Any, end: Any, step: Any, dtype: str) -> Expr:
    if not isinstance(step, int) or not step or not all(isinstance(v, int | PrimExpr) for v in (start, end)):
        raise t.fail(f"arange from {start} to {end} in steps of {step}")
    distance = end - start if step > 0 else start - end
    count = distance if abs(step) == 1 else (distance + (abs(step) - 1)) // abs(step)
    return op.size_range(ShapeExpr((plain(start), plain(count))), step=step, dtype=dtype)


@converter("full")
def full(t: Emitter, size: Sequence[int], fill_value: float, *, dtype: object = None, **_: object) -> Expr:
    kind = "float32" if isinstance(fill_value, float) else "bool" if isinstance(fill_value, bool) else "int64"
    return filled(t, size, fill_value, _dtype(t, dtype, kind))


@converter("zeros")
def zeros(t: Emitter, *size: object, dtype: object = None, **_: object) -> Expr:
    return filled(t, _sizes(size), 0, _dtype(t, dtype, "float32"))


@converter("ones")
def ones(t: Emitter, *size: object, dtype: object = None, **_: object) -> Expr:
    return filled(t, _sizes(size), 1, _dtype(t, dtype, "float32"))


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], list | tuple) else tuple(size)


@converter("full_like", "new_full")
def full_like(t: Emitter, input: Expr, *args: Any, dtype: object = None, **_: object) -> Expr:
    """full_like(x, value) has x's shape; new_full(x, size, value) only its dtype."""
    shape = t.shape(input) if len(args) == 1 else tuple(args[0])
    return filled(t, shape, args[-1], _dtype(t, dtype, info_of(input).dtype))


@converter("zeros_like", "new_zeros")
def zeros_like(
    t: Emitter, input: Expr, size: Sequence[int] | None = None, *, dtype: object = None, **_: object
) -> Expr:
    return filled(t, t.shape(input) if size is None else size, 0, _dtype(t, dtype, info_of(input).dtype))


@converter("ones_like", "new_ones")
def ones_like(t: Emitter, input: Expr, size: Sequence[int] | None = None, *, dtype: object = None, **_: object) -> Expr:
    return filled(t, t.shape(input) if size is None else size, 1, _dtype(t, dtype, info_of(input).dtype))


@converter("scalar_tensor", "tensor")
def scalar_tensor(t: Emitter, value: object, *, dtype: object = None, **_: object) -> Expr:
    kind = "float32" if isinstance(value, float) else "bool" if isinstance(value, bool) else "int64"
    if isinstance(value, Expr):
        return t.cast(value, info_of(value).dtype if dtype is None else t.dtype(dtype))
    return filled(t, (), value, _dtype(t, dtype, kind))


@converter("empty", "empty_strided", "empty_permuted", "new_empty")
def empty(t: Emitter, *args: object, size: Sequence[int] | None = None, dtype: object = None, **_: object) -> Expr:
    """Values that nobody may depend on: zeros."""
    given = [a for a in args if not isinstance(a, Expr)]
    default = info_of(args[0]).dtype if args and isinstance(args[0], Expr) else "float32"
    return filled(t, _sizes(tuple(given[:1])) if size is None else size, 0, _dtype(t, dtype, default))


@converter("empty_like")
def empty_like(t: Emitter, input: Expr, *, dtype: object = None, **_: object) -> Expr:
    return zeros_like(t, input, dtype=dtype)


@converter("linspace")
def linspace(t: Emitter, start: Any, end: Any, steps: int, *, dtype: object = None, **_: object) -> Expr:
    """Counted from both ends, as PyTorch does."""
    kind = _dtype(t, dtype, "float32")
    if isinstance(start, Expr) or isinstance(end, Expr):
        return _between(t, start, end, steps, kind)
    step, at, half = (end - start) / max(steps - 1, 1), np.arange(steps), steps // 2
    values = np.where(at < half, start + step * at, end - step * (steps - 1 - at))
    return Constant((np.asarray([start]) if steps == 1 else values).astype(kind))


def _between(t: Emitter, start: Any, end: Any, steps: int, dtype: str) -> Expr:
    """`linspace` of which one end or both are tensors of one number."""
    kind = dtype if is_float(dtype) else "float32"
    first, last = (t.reshape(t.as_dtype(x, kind), ()) for x in (start, end))
    step = t(op.divide(t(op.subtract(last, first)), Constant(np.asarray(max(steps - 1, 1), kind))))
    at, half = np.arange(steps), max(steps // 2, 1)
    up = t(op.add(first, t(op.multiply(step, Constant(at.astype(kind))))))
    down = t(op.subtract(last, t(op.multiply(step, Constant((steps - 1 - at).astype(kind))))))
    return t.cast(t(op.where(Constant(at < half), up, down)), dtype)


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
