"""Converters of ONNX operators; importing this package fills the table."""

from __future__ import annotations

from autosched.frontend.onnx.converters import (
    arrange,
    contrib,
    contrib_attention,
    contrib_delta,
    contrib_experts,
    contrib_forms,
    contrib_gates,
    contrib_grouped,
    contrib_packed,
    control,
    conv,
    deform,
    detect,
    dft,
    einsum,
    elementwise,
    index,
    linear,
    logic,
    mel,
    ml,
    nbits,
    norm,
    pool,
    quantize,
    recurrent,
    reduce,
    resize,
    roi_align,
    scatter,
    sequence,
    shape,
    sort,
    trees,
)
from autosched.frontend.onnx.registry import CONVERTERS

__all__ = [
    *(
        "arrange",
        "contrib",
        "contrib_attention",
        "contrib_delta",
        "contrib_experts",
        "contrib_forms",
        "contrib_gates",
        "contrib_grouped",
        "contrib_packed",
        "control",
        "conv",
        "deform",
        "detect",
        "dft",
        "einsum",
        "elementwise",
        "index",
        "linear",
        "logic",
        "mel",
        "ml",
        "nbits",
        "norm",
        "pool",
        "quantize",
        "recurrent",
    ),
    *("reduce", "resize", "roi_align", "scatter", "sequence", "shape", "sort", "trees"),
    "supported_operators",
]


def supported_operators() -> tuple[str, ...]:
    """Names of the ONNX operators that can be imported, sorted."""
    return tuple(sorted(CONVERTERS))
