"""Winograd's algorithm along rows of images whose sizes come with the call: windows, steps, borders and segments."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen import counters
from autosched.target import Target
from autosched.tir.expr import Var
from tests.driver.build.test_open_images import NN, conv, images, once, reference

HOST, N = Target("cpu"), Var("n", "int64")
CASES = {
    "7x7 of every second pixel": conv(3, 64, 7, lambda e, y: e(NN.relu(y)), strides=2, padding=3),
    "few outputs": conv(2, 24, 5, padding=2),
    "uneven steps and borders": conv(3, 40, 7, strides=(1, 2), padding=(0, 3, 1, 2)),
    "no border": conv(3, 16, 5),
}
HALF_BLOCKS = ("few outputs", "uneven steps and borders")
SIZES = [(1, 7, 7), (2, 8, 9), (1, 33, 31), (1, 17, 130), (3, 40, 12), (1, 9, 1601)]


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    channels, body = CASES[name]
    module = images(channels, body, batch=N)
    built = once(module)
    (kernel,) = (kernel for name, kernel in built.kernels.items() if "conv2d" in name)
    if name not in HALF_BLOCKS or HOST.unit_bits == HOST.vector_bits:  # results in blocks of half a vector are direct
        assert "segment" in kernel.source and "products" in kernel.source
    assert not kernel.checks  # accesses are proved to stay inside
    before = counters.COMPILES.value
    for n, h, w in SIZES:
        x = np.random.default_rng(h).standard_normal((n, channels, h, w)).astype("float32")
        want = reference(module, x)
        np.testing.assert_allclose(built(x).numpy(), want, rtol=0, atol=5e-6 * np.abs(want).max(), err_msg=f"{n, h, w}")
    assert counters.COMPILES.value == before
