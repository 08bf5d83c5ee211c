"""Operators by their names."""

from __future__ import annotations

from autosched.relax.expr import Op
from autosched.relax.op.registry import OPERATORS


def get(op_name: str) -> Op:
    """The operator of a name; where relax has none of that name, one that stands for the name alone."""
    return OPERATORS[op_name].op if op_name in OPERATORS else Op(f"relay.{op_name}")
