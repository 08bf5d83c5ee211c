"""Reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import plain, product_of
from autosched.frontend.torch.emitter import Emitter, constant, info_of, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr
from autosched.tir.dtypes import is_float


def axes_of(t: Emitter, x: Expr, dim: object) -> tuple[int, ...]:
    """The dimensions that are meant; None and an empty list are all, and a 0-d tensor has none."""
    ndim = len(t.shape(x))
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return tuple(range(ndim))
    given = tuple(dim) if isinstance(dim, list | tuple) else (dim,)
    return tuple(positive(d, ndim) for d in given) if ndim else ()


def _reduced(t: Emitter, definition: Callable[..., Expr], x: Expr, dim: object, keepdim: bool) -> Expr:
    axes = axes_of(t, x, dim)
    return definition(x, axis=axes, keepdims=keepdim) if axes else x


def _summable(t: Emitter, x: Expr, dtype: object) -> Expr:
    """The tensor in the dtype that it is summed in: integers as int64."""
    if dtype is not None:
        return t.cast(x, t.dtype(dtype))
    return x if is_float(info_of(x).dtype) else t.cast(x, "int64")


@converter("mean")
def mean(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False, dtype: object = None) -> Expr:
    x = input if dtype is None else t.cast(input, t.dtype(dtype))
    return _reduced(t, op.mean, x, dim, keepdim)


@converter("sum")
def sum_(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False, dtype: object = None) -> Expr:
    return _reduced(t, op.sum, _summable(t, input, dtype), dim, keepdim)


@converter("prod")
def prod(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False, dtype: object = None) -> Expr:
    return _reduced(t, op.prod, _summable(t, input, dtype), dim, keepdim)


def _ordered(t: Emitter, definition: Callable[..., Expr], x: Expr, dim: object, keepdim: bool) -> Expr:
    """A largest or smallest element; of booleans by their numbers."""
    if info_of(x).dtype != "bool":
        return _reduced(t, definition, x, dim, keepdim)
    return t.cast(t(_reduced(t, definition, t.cast(x, "uint8"), dim, keepdim)), "bool")


@converter("amax")
def amax(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr:
    return _ordered(t, partial(op.max, keep_nan=True), input, dim, keepdim)


@converter("amin")
def amin(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr:
    return _ordered(t, partial(op.min, keep_nan=True), input, dim, keepdim)


@converter("aminmax")
def aminmax(t: Emitter, input: Expr, *, dim: object = None, keepdim: bool = False) -> tuple[Expr, Expr]:
    return (amin(t, input, dim, keepdim), amax(t, input, dim, keepdim))


@converter("any", "_is_any_true")
def any_(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr:
    return _truth(t, op.max, input, dim, keepdim)


@converter("all", "_is_all_true")
def all_(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr:
    return _truth(t, op.min, input, dim, keepdim)


def _truth(t: Emitter, definition: Callable[..., Expr], x: Expr, dim: object, keepdim: bool) -> Expr:
    found = _ordered(t, definition, t.cast(x, "bool"), dim, keepdim)
    return t.cast(found, "uint8") if info_of(x).dtype == "uint8" else found


@converter("max")
def max_(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr | tuple[Expr, Expr]:
    """Over all elements a number; between two tensors the larger; along a dimension values and positions."""
    if isinstance(dim, Expr):
        return op.maximum(*t.alike(input, dim))
    if dim is None:
        return amax(t, input)
    return (amax(t, input, dim, keepdim), argmax(t, input, dim, keepdim))


@converter("min")
def min_(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr | tuple[Expr, Expr]:
    if isinstance(dim, Expr):
        return op.minimum(*t.alike(input, dim))
    if dim is None:
        return amin(t, input)
    return (amin(t, input, dim, keepdim), argmin(t, input, dim, keepdim))


def _place(t: Emitter, definition: Callable[..., Expr], x: Expr, dim: Any, keepdim: bool) -> Expr:
    ndim = len(t.shape(x))
    if not ndim:
        return constant(0, "int64")
    number = t.cast(x, "int8") if info_of(x).dtype == "bool" else x
    return definition(number, axis=None if dim is None else positive(dim, ndim), keepdims=keepdim)


@converter("argmax")
def argmax(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr:
    return _place(t, op.argmax, input, dim, keepdim)


@converter("argmin")
def argmin(t: Emitter, input: Expr, dim: object = None, keepdim: bool = False) -> Expr:
    return _place(t, op.argmin, input, dim, keepdim)


@converter("var")
def var(
    t: Emitter, input: Expr, dim: object = None, correction: Any = 1, keepdim: bool = False, **kwargs: object
) -> Expr:
    """The sample variance unless correction=0 (or unbiased=False); `var.dim` has `unbiased` in that place."""
    correction = kwargs.get("unbiased", correction)
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, correction = None, dim
    correction = 1 if correction is None else float(correction)
    axes, shape, dtype = axes_of(t, input, dim), t.shape(input), info_of(input).dtype
    count = plain(product_of([shape[d] for d in axes]))
    if not isinstance(count, int):
        result = op.variance(input, axis=axes, keepdims=keepdim)
        n = t.as_dtype(count, dtype)
        return op.multiply(t(result), t(op.divide(n, t(op.subtract(n, constant(correction, dtype))))))
    if not axes or count - correction <= 0:
        whole = tuple(1 if d in axes else s for d, s in enumerate(shape) if keepdim or d not in axes)
        if axes and count != 1:
            raise t.fail(f"the variance of {count} numbers with correction {correction} is not supported")
        return constant(np.full(whole, np.nan if correction else 0.0), dtype)
    result = op.variance(input, axis=axes, keepdims=keepdim)
    return result if not correction else op.multiply(result, constant(count / (count - correction), dtype))


@converter("std")
def std(t: Emitter, input: Expr, *args: Any, **kwargs: Any) -> Expr:
    return op.sqrt(t(var(t, input, *args, **kwargs)))


@converter("var_mean")
def var_mean(
    t: Emitter, input: Expr, dim: object = None, correction: object = 1, keepdim: bool = False, **kwargs: object
) -> tuple[Expr, Expr]:
    return (var(t, input, dim, correction, keepdim, **kwargs), mean(t, input, dim, keepdim))


@converter("linalg_vector_norm")
def vector_norm(
    t: Emitter, x: Expr, ord: Any = 2, dim: object = None, keepdim: bool = False, *, dtype: object = None
) -> Expr:
    """The root of the sum of powers; of order inf and -inf the largest and smallest, of 0 how many are not zero."""
    value = x if dtype is None else t.cast(x, t.dtype(dtype))
    size = t(op.abs(value))
    kind = info_of(size).dtype
    if ord in (math.inf, -math.inf):
        return _reduced(t, partial(op.max if ord > 0 else op.min, keep_nan=True), size, dim, keepdim)
    if ord == 0:
        return _reduced(t, op.sum, t.cast(t(op.not_equal(size, constant(0.0, kind))), kind), dim, keepdim)
    if ord == 1:
        return _reduced(t, op.sum, size, dim, keepdim)
    if ord == 2:
        return op.sqrt(t(_reduced(t, op.sum, t(op.multiply(size, size)), dim, keepdim)))
    total = t(_reduced(t, op.sum, t(op.power(size, constant(ord, kind))), dim, keepdim))
    return op.power(total, constant(1.0 / ord, kind))


@converter("histc")
def histc(t: Emitter, input: Expr, bins: int = 100, min: object = 0, max: object = 0) -> Expr:
    """How many elements lie in each of `bins` equal parts of [min, max], of what there is where both are equal."""
    dtype, n = info_of(input).dtype, math.prod(t.shape(input))
    x = t(op.reshape(input, (n, 1)))
    low: Expr = constant(min, dtype)
    high: Expr = constant(max, dtype)
    if min == max:
        low, high = t(op.min(x)), t(op.max(x))
        same, one = t(op.equal(low, high)), constant(1, dtype)
        low, high = (t(op.where(same, t(f(v, one)), v)) for f, v in ((op.subtract, low), (op.add, high)))
    inside = t(op.logical_and(t(op.greater_equal(x, low)), t(op.less_equal(x, high))))
    scaled = t(op.divide(t(op.multiply(t(op.subtract(x, low)), constant(bins, dtype))), t(op.subtract(high, low))))
    part = t(op.minimum(t(op.floor(scaled)), constant(bins - 1, dtype)))
    numbers = Constant(np.arange(bins, dtype=dtype)[None])
    found = t(op.logical_and(t(op.equal(part, numbers)), inside))
    return op.sum(t.cast(found, dtype), axis=[0])


@converter("cumsum")
def cumsum(t: Emitter, input: Expr, dim: int, *, dtype: object = None) -> Expr:
    x = _summable(t, input, dtype)
    return op.cumsum(x, axis=positive(dim, len(t.shape(x)))) if t.shape(x) else x


@converter("cumprod")
def cumprod(t: Emitter, input: Expr, dim: int, *, dtype: object = None) -> Expr:
    x = _summable(t, input, dtype)
    return op.cumprod(x, axis=positive(dim, len(t.shape(x)))) if t.shape(x) else x


@converter("cummax")
def cummax(t: Emitter, input: Expr, dim: int) -> tuple[Expr, Expr]:
    return _running(t, input, dim, largest=True)


@converter("cummin")
def cummin(t: Emitter, input: Expr, dim: int) -> tuple[Expr, Expr]:
    return _running(t, input, dim, largest=False)


@converter("logcumsumexp")
def logcumsumexp(t: Emitter, input: Expr, dim: int) -> Expr:
    x = t.as_float(input)
    return _doubled(t, x, positive(dim, len(t.shape(x))), op.log_add_exp) if t.shape(x) else x


def _running(t: Emitter, x: Expr, dim: int, largest: bool) -> tuple[Expr, Expr]:
    """(the extrema up to each element, their last positions); NaN is an extremum that stays."""
    shape = t.shape(x)
    if not shape:
        return (x, constant(0, "int64"))
    axis, dtype = positive(dim, len(shape)), info_of(x).dtype
    number = t.cast(x, "int8") if dtype == "bool" else x
    values = _doubled(t, number, axis, op.maximum if largest else op.minimum)
    is_one = t(op.equal(number, values))
    if is_float(dtype):
        is_one = t(op.logical_or(is_one, t(op.isnan(number))))
    places = np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    marked = t(op.where(is_one, constant(places, "int64"), constant(0, "int64")))
    return (t.cast(values, dtype), _doubled(t, marked, axis, op.maximum))


def _doubled(t: Emitter, x: Expr, axis: int, choice: Callable[..., Expr]) -> Expr:
    """The running choice: after each step of twice as many elements (Hillis, Steele 1986)."""
    shape, dtype = t.shape(x), info_of(x).dtype
    distance = 1
    while distance < shape[axis]:
        first = t(op.strided_slice(x, axes=[axis], begin=[0], end=[distance]))
        before = t(op.strided_slice(x, axes=[axis], begin=[0], end=[shape[axis] - distance]))
        own = t(op.strided_slice(x, axes=[axis], begin=[distance], end=[shape[axis]]))
        chosen = t(choice(own, before))
        if is_float(dtype):
            chosen = t(op.where(t(op.isnan(own)), own, t(op.where(t(op.isnan(before)), before, chosen))))
        x = t(op.concat([first, chosen], axis=axis))
        distance *= 2
    return x


@converter("_cdist_forward")
def cdist(t: Emitter, x1: Expr, x2: Expr, p: float, compute_mode: object = None) -> Expr:
    """Distances [..., rows of x1, rows of x2]."""
    a = t(op.expand_dims(x1, axis=len(t.shape(x1)) - 1))
    b = t(op.expand_dims(x2, axis=len(t.shape(x2)) - 2))
    return vector_norm(t, t(op.subtract(a, b)), p, -1)


@converter("_pdist_forward")
def pdist(t: Emitter, input: Expr, p: float = 2) -> Expr:
    """Distances of all pairs of rows, the first before the second."""
    first, second = np.triu_indices(t.shape(input)[0], 1)
    a, b = (t(op.take(input, constant(i, "int64"), axis=0)) for i in (first, second))
    return vector_norm(t, t(op.subtract(a, b)), p, -1)
