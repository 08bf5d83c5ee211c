"""Converters by kind; importing the package fills the table."""

from __future__ import annotations

from autosched.frontend.torch.converters import (
    activation,
    attention,
    conv,
    create,
    elementwise,
    index,
    linear,
    logic,
    norm,
    pool,
    quantize,
    reduce,
    resize,
    scatter,
    shape,
    sort,
)  # fmt: skip
from autosched.frontend.torch.registry import CONVERTERS

__all__ = [
    "activation", "attention", "conv", "create", "elementwise", "index", "linear", "logic", "norm", "pool", "quantize",
    "reduce", "resize", "scatter", "shape", "sort", "supported_operators",
]  # fmt: skip


def supported_operators() -> tuple[str, ...]:
    """Names of the PyTorch operators that can be imported, sorted."""
    return tuple(sorted(CONVERTERS))
