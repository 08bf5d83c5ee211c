"""Quantised models on CPUs that multiply bytes as 16-bit integers: whole numbers are those of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched.relax import op
from autosched.relax.evaluate import evaluate
from autosched.relax.expr import Constant
from autosched.target import Target, host_cpu
from tests.relax.transform.graphs import graph

V3 = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
RNG = np.random.default_rng(0)
needs_v3 = pytest.mark.skipif(not V3.features <= host_cpu().runnable, reason="this machine has no AVX2")


def weight(*shape: int) -> Constant:
    return Constant(RNG.integers(-128, 128, shape).astype("int8"))


def network(bb: Any, x: Any) -> Any:
    """A first layer, a 3x3 convolution that is Winograd's, one that is none, and a 1x1 one; bytes between them."""
    for w, strides, padding, scale in (
        (weight(20, 3, 7, 7), 2, 3, 2.0**-11),
        (weight(24, 20, 3, 3), 1, 1, 2.0**-9),
        (weight(16, 24, 3, 3), 2, 1, 2.0**-9),
        (weight(40, 16, 1, 1), 1, 0, 2.0**-8),
    ):
        whole = bb.emit(op.nn.conv2d(x, w, strides=strides, padding=padding, out_dtype="int32"))
        real = bb.emit(op.multiply(bb.emit(op.astype(whole, "float32")), Constant(np.array(scale, "f4"))))
        x = bb.emit(op.astype(bb.emit(op.clip(bb.emit(op.round(real)), 0, 255)), "uint8"))
    return op.astype(x, "float32")


@needs_v3
def test_a_network_of_bytes_is_exact() -> None:
    module = graph({"x": (1, 3, 30, 26)}, lambda bb, x: network(bb, bb.emit(op.astype(x, "uint8"))))
    built = autosched.build(module, target=V3, threads=1)
    x = RNG.integers(0, 256, (1, 3, 30, 26)).astype("f4")
    found = built(x).numpy()
    np.testing.assert_array_equal(found, np.asarray(evaluate(module, {"x": x})))
    assert len(np.unique(found)) > 20


@needs_v3
@pytest.mark.parametrize("rows", [1, 40])
def test_products_of_bytes_are_exact(rows: int) -> None:
    w = weight(70, 33)
    module = graph({"x": (rows, 70)}, lambda bb, x: op.matmul(bb.emit(op.astype(x, "uint8")), w, "int32"))
    x = RNG.integers(0, 256, (rows, 70)).astype("f4")
    found = autosched.build(module, target=V3, threads=1)(x).numpy()
    np.testing.assert_array_equal(found, x.astype("int32") @ w.data.astype("int32"))
