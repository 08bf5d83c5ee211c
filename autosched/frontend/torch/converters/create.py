"""Tensors made from nothing: constants of the import."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.frontend.torch.emitter import Emitter, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax.expr import Constant, Expr


def _dtype(t: Emitter, dtype: Any, default: str) -> str:
    return default if dtype is None else t.dtype(dtype)


@converter("arange")
def arange(t: Emitter, start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, **_: Any) -> Any:
    if end is None:
        start, end = 0, start
    whole = all(isinstance(v, int) for v in (start, end, step))
    return Constant(np.arange(start, end, step).astype(_dtype(t, dtype, "int64" if whole else "float32")))


@converter("full")
def full(t: Emitter, size: Any, fill_value: Any, *, dtype: Any = None, **_: Any) -> Any:
    kind = {bool: "bool", int: "int64"}.get(type(fill_value), "float32")
    return Constant(np.full(tuple(size), fill_value, _dtype(t, dtype, kind)))


@converter("zeros")
def zeros(t: Emitter, *size: Any, dtype: Any = None, **_: Any) -> Any:
    return Constant(np.zeros(_sizes(size), _dtype(t, dtype, "float32")))


@converter("ones")
def ones(t: Emitter, *size: Any, dtype: Any = None, **_: Any) -> Any:
    return Constant(np.ones(_sizes(size), _dtype(t, dtype, "float32")))


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)


@converter("full_like", "new_full")
def full_like(t: Emitter, input: Expr, *args: Any, dtype: Any = None, **_: Any) -> Any:
    """full_like(x, value) has x's shape; new_full(x, size, value) only its dtype."""
    shape = t.shape(input) if len(args) == 1 else tuple(args[0])
    return Constant(np.full(shape, args[-1], _dtype(t, dtype, info_of(input).dtype)))


@converter("zeros_like", "new_zeros")
def zeros_like(t: Emitter, input: Expr, size: Any = None, *, dtype: Any = None, **_: Any) -> Any:
    return Constant(np.zeros(t.shape(input) if size is None else tuple(size), _dtype(t, dtype, info_of(input).dtype)))


@converter("ones_like", "new_ones")
def ones_like(t: Emitter, input: Expr, size: Any = None, *, dtype: Any = None, **_: Any) -> Any:
    return Constant(np.ones(t.shape(input) if size is None else tuple(size), _dtype(t, dtype, info_of(input).dtype)))


@converter("scalar_tensor", "tensor")
def scalar_tensor(t: Emitter, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    kind = {bool: "bool", int: "int64"}.get(type(value), "float32")
    return Constant(np.asarray(value, _dtype(t, dtype, kind)))


@converter("tril")
def tril(t: Emitter, input: Expr, diagonal: int = 0) -> Any:
    return _triangle(t, np.tril, input, diagonal)


@converter("triu")
def triu(t: Emitter, input: Expr, diagonal: int = 0) -> Any:
    return _triangle(t, np.triu, input, diagonal)


def _triangle(t: Emitter, cut: Any, input: Expr, diagonal: int) -> Any:
    """Of a constant: a mask."""
    if not isinstance(input, Constant):
        raise t.fail("tril and triu are supported for constants")
    return Constant(np.ascontiguousarray(cut(input.data, diagonal)))
