"""Reductions."""

from __future__ import annotations

from typing import Any

from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


def _axes(dim: Any) -> Any:
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return None
    return tuple(dim) if isinstance(dim, list | tuple) else (dim,)


@converter("mean")
def mean(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = input if dtype is None else t.cast(input, t.dtype(dtype))
    return op.mean(x, axis=_axes(dim), keepdims=keepdim)


@converter("sum")
def sum_(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = input if dtype is None else t.cast(input, t.dtype(dtype))
    if dtype is None and not info_of(x).dtype.startswith("float"):
        x = t.cast(x, "int64")
    return op.sum(x, axis=_axes(dim), keepdims=keepdim)


@converter("prod")
def prod(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = input if dtype is None else t.cast(input, t.dtype(dtype))
    if dtype is None and not info_of(x).dtype.startswith("float"):
        x = t.cast(x, "int64")
    return op.prod(x, axis=_axes(dim), keepdims=keepdim)


@converter("amax")
def amax(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False) -> Any:
    return op.max(input, axis=_axes(dim), keepdims=keepdim)


@converter("amin")
def amin(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False) -> Any:
    return op.min(input, axis=_axes(dim), keepdims=keepdim)


@converter("max")
def max_(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False) -> Any:
    """Over all elements a number; between two tensors the larger; along a dimension values and positions."""
    if isinstance(dim, Expr):
        return op.maximum(*t.alike(input, dim))
    if dim is None:
        return op.max(input)
    return (op.max(input, axis=_axes(dim), keepdims=keepdim), op.argmax(input, axis=dim, keepdims=keepdim))


@converter("min")
def min_(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False) -> Any:
    if isinstance(dim, Expr):
        return op.minimum(*t.alike(input, dim))
    if dim is None:
        return op.min(input)
    return (op.min(input, axis=_axes(dim), keepdims=keepdim), op.argmin(input, axis=dim, keepdims=keepdim))


@converter("argmax")
def argmax(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False) -> Any:
    return op.argmax(input, axis=dim, keepdims=keepdim)


@converter("argmin")
def argmin(t: Emitter, input: Expr, dim: Any = None, keepdim: bool = False) -> Any:
    return op.argmin(input, axis=dim, keepdims=keepdim)


@converter("var")
def var(t: Emitter, input: Expr, dim: Any = None, correction: Any = 1, keepdim: bool = False, **kwargs: Any) -> Any:
    """The sample variance unless correction=0 (or unbiased=False)."""
    if "unbiased" in kwargs:
        correction = int(kwargs["unbiased"])
    axes, shape = _axes(dim), t.shape(input)
    result = op.variance(input, axis=axes, keepdims=keepdim)
    count = 1
    for d in range(len(shape)) if axes is None else axes:
        count *= shape[d]
    if not correction:
        return result
    return op.multiply(result, constant(count / (count - correction), info_of(input).dtype))
