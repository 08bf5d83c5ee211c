"""Converters by kind; importing the package fills the table."""

from __future__ import annotations

from autosched.frontend.torch.converters import (
    attention,
    conv,
    create,
    elementwise,
    index,
    linear,
    norm,
    pool,
    reduce,
    shape,
)  # fmt: skip
from autosched.frontend.torch.registry import CONVERTERS

__all__ = [
    "attention", "conv", "create", "elementwise", "index", "linear", "norm", "pool", "reduce", "shape",
    "supported_operators",
]  # fmt: skip


def supported_operators() -> tuple[str, ...]:
    """Names of the PyTorch operators that can be imported, sorted."""
    return tuple(sorted(CONVERTERS))
