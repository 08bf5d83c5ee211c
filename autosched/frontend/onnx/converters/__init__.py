"""Converters of ONNX operators; importing this package fills the table."""

from autosched.frontend.onnx.converters import (
    arrange,
    control,
    conv,
    einsum,
    elementwise,
    index,
    linear,
    logic,
    norm,
    pool,
    quantize,
    recurrent,
    reduce,
    scatter,
    sequence,
    shape,
    sort,
)

__all__ = [
    *(
        "arrange",
        "control",
        "conv",
        "einsum",
        "elementwise",
        "index",
        "linear",
        "logic",
        "norm",
        "pool",
        "quantize",
        "recurrent",
    ),
    *("reduce", "scatter", "sequence", "shape", "sort"),
]
