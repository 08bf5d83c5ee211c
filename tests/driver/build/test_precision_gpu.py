"""Products of a model on tf32: what is marked, and how near the results are on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.driver.build.graph import prepare
from autosched.driver.build.precision import precision_of, with_precision
from autosched.relax.evaluate import evaluate
from autosched.runtime.cuda.devices import use_driver
from autosched.templates.tf32 import PRODUCTS, TF32
from tests.driver.build.test_precision import CPU, DEPTH, GPU, RNG, model


def test_products_of_a_model_are_tf32_on_gpus_where_that_is_asked_for() -> None:
    """Tasks of the one are no tasks of the other, and only products are marked."""
    plain, allowed = (prepare(with_precision(model(), p, GPU), GPU, {}) for p in (None, "tf32"))
    marked = {gv.name for gv, f in allowed.functions_items() if f.attrs.get(PRODUCTS) == TF32}
    assert len(marked) == 3 and all("matmul" in name for name in marked)
    assert not any(PRODUCTS in f.attrs for _, f in plain.functions_items())
    assert precision_of(with_precision(model(), "tf32", GPU), CPU) == "float32"


def test_a_model_of_tf32_is_as_near_as_that_lets_it_be() -> None:
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
    emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
    x = RNG.standard_normal((2, 5, DEPTH)).astype("f4")
    built = autosched.build(model(), target=GPU, records=[], precision="tf32")
    assert sum("tf32" in kernel.ptx for kernel in built.kernels.values()) >= 2
    with use_driver(emulate.EmulatorDriver):
        got = built(x).numpy()
    wanted = evaluate(model(), {"x": x}, dtype="float64")
    assert 0 < np.abs(got - wanted).max() < 2e-2
