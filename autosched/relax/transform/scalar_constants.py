"""Constants of one element as numbers."""

from __future__ import annotations

from autosched.relax.expr import Constant, Expr


def number_of(x: Expr) -> float | None:
    """The number that a constant of one element is; None for anything else."""
    return float(x.data.reshape(-1)[0]) if isinstance(x, Constant) and x.data.size == 1 else None
