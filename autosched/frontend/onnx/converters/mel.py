"""Matrices from frequencies to bands of the mel scale."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax.expr import Constant, Expr

FLOAT = 1  # of TensorProto


@converter("MelWeightMatrix")
def mel_weight_matrix(node: Node) -> Expr:
    """A constant [frequencies, bands]: triangles that rise from one band's centre to the next and fall behind it."""
    from onnx import helper

    dtype = helper.tensor_dtype_to_np_dtype(node.attr("output_datatype", FLOAT))
    bands, length, rate = (node.integers(i)[0] for i in range(3))
    if bands < 0 or length < 1 or rate < 1:
        raise node.fail(f"{bands} bands of a transform of {length} values, {rate} a second")
    frequencies = length // 2 + 1
    node.require_small(8 * frequencies * max(bands, 1))
    with np.errstate(all="ignore"):
        low, high = (2595 * np.log1p(node.number(i) / 700) / np.log(10) for i in (3, 4))
        edges = 700 * np.expm1((np.arange(bands + 2) * ((high - low) / (bands + 2)) + low) / 2595 * np.log(10))
    if not np.isfinite(edges).all():
        raise node.fail(f"frequencies from {node.number(3)} to {node.number(4)}")
    places = (((length + 1) * edges) // rate).astype(np.int64)
    before, centre, behind = places[:-2], places[1:-1], places[2:]
    if bands and (places.min() < 0 or centre.max() >= frequencies or behind.max() > frequencies):
        raise node.fail(f"frequencies from {node.number(3)} to {node.number(4)}, of {rate} values a second")
    at = np.arange(frequencies)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(centre > before, (at - before) / (centre - before), 1.0)
        falling = (behind - at) / (behind - centre)
    found = np.where((at >= before) & (at <= centre), rising, np.where((at > centre) & (at < behind), falling, 0.0))
    return Constant(np.ascontiguousarray(found.astype(dtype)))
