"""Look-ups, choices, reductions, and what sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import value_of
from autosched.frontend.nn.op.elementwise import astype
from autosched.frontend.nn.op.shapes import reshape
from autosched.relax import op as R
from autosched.relax.op.registry import get_op


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Entries along an axis by index; of the flat tensor where there is none."""
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    return wrap_nested(R.take(value_of(x, name), value_of(indices, name), axis=axis), name)  # type: ignore[no-any-return]


def _reduction(definition: Any, default: str) -> Callable[..., Tensor]:
    def function(x: Tensor, axis: Any = None, keepdims: bool = False, name: str = default) -> Tensor:
        return wrap_nested(definition(value_of(x, default), axis=axis, keepdims=keepdims), name)  # type: ignore[no-any-return]

    function.__name__, function.__doc__ = default, f"{default} over one or several axes, or over all."
    return function


sum = _reduction(R.sum, "sum")
max = _reduction(R.max, "max")
min = _reduction(R.min, "min")
mean = _reduction(R.mean, "mean")
argmax = _reduction(R.argmax, "argmax")
argmin = _reduction(R.argmin, "argmin")


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None, name: str = "cumsum"
) -> Tensor:
    """Sums of all elements up to each, along an axis."""
    if axis is None:
        data, axis = reshape(data, [-1]), 0
    x = data if dtype is None else astype(data, dtype)
    return wrap_nested(get_op("cumsum")(value_of(x, name), axis=axis, exclusive=bool(exclusive)), name)  # type: ignore[no-any-return]


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The k largest (or smallest) along an axis, sorted: values and positions, or one of them."""
    call = get_op("topk")(value_of(data, name), k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype)
    return wrap_nested(call, name)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """In order along an axis."""
    return wrap_nested(R.sort(value_of(x, name), axis=axis, descending=descending), name)  # type: ignore[no-any-return]


def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32", name: str = "argsort"
) -> Tensor:
    """The positions in order along an axis."""
    call = R.argsort(value_of(data, name), axis=axis, descending=descending, dtype=dtype)
    return wrap_nested(call, name)  # type: ignore[no-any-return]
