"""Relay's constructors of expressions that Relay and relax write differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidTypeError
from autosched.relax import Expr, TensorStructInfo
from autosched.relax import Tuple as GraphTuple
from autosched.relay.expr import Branch, unwrap


def Tuple(fields: Sequence[Any]) -> GraphTuple:  # noqa: N802  (TVM's name)
    """Several values together."""
    return GraphTuple(tuple(unwrap(field) for field in fields))


def If(cond: Any, true_branch: Any, false_branch: Any) -> Expr:  # noqa: N802  (TVM's name)
    """The value of one of two expressions; only that one is computed.

    cond  a truth: a bool tensor without dimensions
    """
    condition = unwrap(cond)
    info = condition.struct_info
    if isinstance(info, TensorStructInfo) and (info.dtype != "bool" or info.ndim not in (0, -1)):
        raise InvalidTypeError(f"If: the condition is {info!r}, not a bool tensor without dimensions")
    return Branch(condition, unwrap(true_branch), unwrap(false_branch))
