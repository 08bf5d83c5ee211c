"""Numbers of shapes, for computes that users write."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr, Var, const_int, to_expr
from autosched.tir.simplify import Analyzer


def simplify(expr: object) -> Any:
    """The simplest form of an expression; other values as they are."""
    return Analyzer().simplify(expr) if isinstance(expr, PrimExpr) else expr


def get_const_int(expr: ExprLike) -> int:
    """Raises ValueError for what is no integer constant."""
    value = const_int(simplify(expr))
    if value is None:
        raise InvalidValueError(f"expected a constant integer, got {expr!r}")
    return int(value)


def get_const_float(expr: ExprLike) -> float:
    """Raises ValueError for what is no constant."""
    value = simplify(expr)
    if isinstance(value, int | float | E.IntImm | E.FloatImm):
        return float(getattr(value, "value", value))
    raise InvalidValueError(f"expected a constant number, got {expr!r}")


def equal_const_int(expr: ExprLike, value: int) -> bool:
    """Whether an expression is that constant."""
    return const_int(simplify(expr)) == value


def get_const_tuple(in_tuple: Iterable[ExprLike]) -> tuple[Any, ...]:
    """A shape with integers where they are known; other dimensions as they are. Raises TypeError for a Tensor."""
    if isinstance(in_tuple, Tensor):
        raise InvalidTypeError("get_const_tuple takes a shape, not a Tensor", hint="give tensor.shape")
    found = []
    for dim in in_tuple:
        simple = dim if isinstance(dim, Var) else simplify(dim)
        value = const_int(simple)
        found.append(simple if value is None else int(value))
    return tuple(found)


def get_float_tuple(in_tuple: Iterable[ExprLike]) -> tuple[float, ...]:
    return tuple(map(get_const_float, in_tuple))


def prod(x: Sequence[Any]) -> Any:
    """The product of sizes; 1 of none."""
    return functools.reduce(operator.mul, x) if len(x) else E.const(1, "int32")


def ceil_div(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


def ravel_index(indices: Sequence[ExprLike], shape: Sequence[ExprLike]) -> Any:
    """The flat position of an element in row-major order."""
    flat: Any = 0
    for i, n in zip(indices, shape, strict=True):
        flat = flat * n + i
    return flat


def unravel_index(idx: ExprLike, shape: Sequence[ExprLike]) -> list[Any]:
    """The element at a flat position, which is inside of the shape."""
    rest: Any = idx
    found: list[Any] = []
    for axis in reversed(range(len(shape))):
        if const_int(shape[axis]) == 0:
            found.append(0)
        elif axis == 0:
            found.append(rest)
        else:
            found.append(rest % shape[axis])
            rest = rest // shape[axis]
    return found[::-1]


def const_vector(vector: npt.ArrayLike, name: str = "const_vector") -> Tensor:
    """A short vector of numbers as a compute."""
    values = np.asarray(vector)
    if values.ndim != 1:
        raise InvalidValueError(f"const_vector takes a vector, not an array of shape {values.shape}")
    dtype = str(values.dtype)

    def chosen(i: PrimExpr) -> PrimExpr:
        found = E.const(0, dtype)
        for at, value in enumerate(values):
            found = E.select(E.compare(E.EQ, i, at), E.const(value.item(), dtype), found)
        return found

    return te.compute(values.shape, chosen, name=name)


def swap(arr: Sequence[Any], axis: int) -> list[Any]:
    """The sequence with entry `axis` at the end and the last one in its place."""
    swapped = list(arr)
    swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
    return swapped


def is_dynamic_shape(shape: Sequence[ExprLike]) -> bool:
    """Whether a dimension is no constant."""
    return any(const_int(simplify(to_expr(s))) is None for s in shape)


def is_empty_shape(shape: Sequence[ExprLike]) -> bool:
    """Whether a dimension is 0."""
    return any(equal_const_int(s, 0) for s in shape)


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The largest power of two that divides `n`, at most `max_value`. Raises ValueError unless `n` is positive."""
    if n < 1:
        raise InvalidValueError(f"get_max_power2_factor: {n} is not positive")
    factor = 1
    while n % 2 == 0 and (max_value is None or factor * 2 <= max_value):
        factor, n = factor * 2, n // 2
    return factor
