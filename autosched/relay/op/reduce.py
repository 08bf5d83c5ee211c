"""Relay's reductions and running sums: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidValueError
from autosched.relax import Expr, op
from autosched.relay.expr import info, unwrap


def _axes(data: object, axis: int | Sequence[int] | None, exclude: bool) -> list[int] | None:
    if axis is None or not exclude:
        return None if axis is None else [axis] if isinstance(axis, int) else list(axis)
    ndim = info(data).ndim
    chosen = {a % ndim for a in ([axis] if isinstance(axis, int) else axis)}
    return [a for a in range(ndim) if a not in chosen]


def _reduction(name: str) -> Callable[..., Expr]:
    function: Callable[..., Expr] = getattr(op, name)

    def apply(
        data: object, axis: int | Sequence[int] | None = None, keepdims: bool = False, exclude: bool = False
    ) -> Expr:
        x = unwrap(data)
        return function(x, _axes(x, axis, exclude), keepdims)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"`{name}` over axes, over all of them where none is given; `exclude`: over all others."
    return apply


sum, mean, max, min, prod, variance = map(_reduction, ("sum", "mean", "max", "min", "prod", "variance"))


def _position(name: str) -> Callable[..., Expr]:
    function: Callable[..., Expr] = getattr(op, name)

    def apply(
        data: object,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> Expr:
        x = unwrap(data)
        if select_last_index or exclude:
            raise InvalidValueError(f"{name}: select_last_index and exclude are not available")
        return function(x, axis if axis is None or isinstance(axis, int) else axis[0], keepdims)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"Position of the first {name[3:]}imum along an axis."
    return apply


argmax, argmin = map(_position, ("argmax", "argmin"))
std = _reduction("std")


def mean_variance(
    data: object, axis: object = None, keepdims: bool = False, exclude: bool = False
) -> tuple[Expr, Expr]:
    """Mean and variance over axes."""
    x = unwrap(data)
    return _reduction("mean")(x, axis, keepdims, exclude), _reduction("variance")(x, axis, keepdims, exclude)


def mean_std(data: object, axis: object = None, keepdims: bool = False, exclude: bool = False) -> tuple[Expr, Expr]:
    """Mean and standard deviation over axes."""
    x = unwrap(data)
    return _reduction("mean")(x, axis, keepdims, exclude), std(x, axis, keepdims, exclude)


def collapse_sum_like(data: object, collapse_type: object) -> Expr:
    """A tensor summed to another one's shape."""
    return op.collapse_sum_like(unwrap(data), unwrap(collapse_type))


def collapse_sum_to(data: object, shape: Sequence[int]) -> Expr:
    """A tensor summed to a shape."""
    return op.collapse_sum_to(unwrap(data), tuple(shape))


def cumsum(data: object, axis: int | None = None, dtype: str | None = None, exclusive: object = None) -> Expr:
    """Running sums."""
    return op.cumsum(unwrap(data), axis, dtype, bool(exclusive))


def cumprod(data: object, axis: int | None = None, dtype: str | None = None, exclusive: object = None) -> Expr:
    """Running products."""
    return op.cumprod(unwrap(data), axis, dtype, bool(exclusive))


def all(data: object, axis: int | Sequence[int] | None = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """Whether all elements along axes hold."""
    return op.astype(_reduction("min")(op.astype(unwrap(data), "int32"), axis, keepdims, exclude), "bool")


def any(data: object, axis: int | Sequence[int] | None = None, keepdims: bool = False, exclude: bool = False) -> Expr:  # noqa: A001
    """Whether one element along axes holds."""
    return op.astype(_reduction("max")(op.astype(unwrap(data), "int32"), axis, keepdims, exclude), "bool")
