"""Converters by kind; importing the package fills the table."""

from __future__ import annotations

from autosched.extensions import load_extensions
from autosched.frontend.torch.complex_values import COMPLEX, of_reals
from autosched.frontend.torch.converters import (
    activation,
    attention,
    complex_numbers,
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
    vision,
)  # fmt: skip
from autosched.frontend.torch.registry import CONVERTERS

__all__ = [
    "activation", "attention", "complex_numbers", "conv", "create", "elementwise", "index", "linear", "logic", "norm",
    "pool", "quantize", "reduce", "resize", "scatter", "shape", "sort", "supported_operators", "vision",
]  # fmt: skip

for _name in COMPLEX:
    CONVERTERS.setdefault(_name, of_reals)


def supported_operators() -> tuple[str, ...]:
    """Names of the PyTorch operators that can be imported, sorted; those of extensions too."""
    load_extensions()
    return tuple(sorted(CONVERTERS))
