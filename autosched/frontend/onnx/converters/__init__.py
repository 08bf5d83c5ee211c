"""Converters of ONNX operators; importing this package fills the table."""

from autosched.frontend.onnx.converters import (
    arrange,
    conv,
    elementwise,
    index,
    linear,
    logic,
    norm,
    pool,
    recurrent,
    reduce,
    shape,
    sort,
)

__all__ = [
    *("arrange", "conv", "elementwise", "index", "linear", "logic", "norm", "pool", "recurrent", "reduce", "shape"),
    "sort",
]
