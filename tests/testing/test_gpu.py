"""Functions that are scheduled for a GPU, run on a CPU."""

import numpy as np
import pytest

from autosched.testing.gpu import run_serially
from tests.codegen.gpu_programs import elementwise, tiled_product


@pytest.mark.parametrize("m, n, k", [(64, 64, 16), (65, 67, 9)])
@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
def test_products(m, n, k, scope):
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype("f") for shape in ((m, k), (k, n), (n,)))
    out = np.full((m, n), np.nan, "f")
    run_serially(tiled_product(m, n, k, scope=scope).func, a, b, bias, out)
    np.testing.assert_allclose(out, np.maximum(a.astype("d") @ b + bias, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 127, 1024, 1030])
def test_elementwise(n):
    a, b = np.arange(n, dtype="f"), np.zeros(n, "f")
    run_serially(elementwise((n,)).func, a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)


def test_a_missing_barrier_shows(monkeypatch):
    """Without barriers a thread reads what those behind it have not written yet."""
    func = tiled_product(64, 64, 16).func
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape).astype("f") for shape in ((64, 16), (16, 64), (64,)))
    import autosched.codegen.lower.device as device

    monkeypatch.setattr(device, "place_barriers", lambda body, *_: body)
    with pytest.raises(AssertionError):
        run_serially(func, a, b, bias, np.zeros((64, 64), "f"))
