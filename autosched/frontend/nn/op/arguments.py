"""What operators make of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.errors import InvalidTypeError
from autosched.frontend.nn.core import Tensor
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.tir.expr import PrimExpr


def operands(a: object, b: object) -> tuple[Any, Any]:
    """The expressions of two operands; a number becomes a constant of the other's dtype."""
    tensor = a if isinstance(a, Tensor) else b
    if not isinstance(tensor, Tensor):
        raise InvalidTypeError("one of the operands must be a Tensor")
    return tuple(x._expr if isinstance(x, Tensor) else Constant(np.asarray(x, tensor.dtype)) for x in (a, b))  # type: ignore[return-value]


def value_of(x: object, where: str) -> Expr:
    """The expression of a Tensor. Raises TypeError for anything else."""
    if not isinstance(x, Tensor):
        raise InvalidTypeError(f"{where} takes a Tensor, not a {type(x).__name__}")
    return x._expr


def shape_of(shape: Any) -> ShapeExpr:
    """A shape of numbers, symbolic sizes, or a ShapeExpr."""
    values = shape.values if isinstance(shape, ShapeExpr) else tuple(shape)
    return ShapeExpr(tuple(v if isinstance(v, int | PrimExpr) else int(v) for v in values))


def filled(shape: Sequence[int], value: float, dtype: str) -> Constant:
    """A constant of one value."""
    return Constant(np.full(tuple(shape), value, dtype))


def scalar(value: float, like: Tensor) -> Constant:
    """A number as a constant of a tensor's dtype."""
    return Constant(np.asarray(value, like.dtype))
