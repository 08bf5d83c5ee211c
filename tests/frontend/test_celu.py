"""ONNX's Celu, of scalars too: its definition as a function has a vector of one for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import autosched


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)])
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_values_and_shape(shape: tuple[int, ...], alpha: float) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    given, made = (helper.make_tensor_value_info(name, 1, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Celu", ["x"], ["y"], alpha=alpha)], "g", [given], [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for value in (x, -x):
        y = autosched.build(model, target="cpu", threads=1)(value).numpy()
        assert y.shape == shape
        low = alpha * np.expm1(value.astype("float64") / alpha)
        np.testing.assert_allclose(y, np.where(value > 0, value, low), rtol=1e-5, atol=1e-6)
