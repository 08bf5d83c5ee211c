"""The real models: imported and run on NumPy references, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.frontend.onnx import from_onnx
from benchmarks.models import EXPORTED, NAMES, get_model, make_inputs

FAST = ("mlp", "squeezenet")
CASES = [(n, 1) for n in NAMES] + [(n, 3) for n in EXPORTED]


@pytest.mark.parametrize(
    ("name", "batch"), [pytest.param(*c, marks=() if c in ((n, 1) for n in FAST) else pytest.mark.slow) for c in CASES]
)
def test_model_agrees_with_onnxruntime(name: str, batch: int) -> None:
    import onnxruntime

    model = get_model(name, batch, softmax=False)
    module = from_onnx(model)
    relax.verify(module)
    inputs = make_inputs(model, seed=1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    want: Any = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)[0]
    got = relax.evaluate(module, list(inputs.values()))
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max() + 1e-5
    assert want.std() > 1e-2  # activations that died out would hide errors
