"""Converters by kind; importing the package fills the table."""

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

__all__ = [
    "attention", "conv", "create", "elementwise", "index", "linear", "norm", "pool", "reduce", "shape",
]  # fmt: skip
