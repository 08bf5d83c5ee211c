"""The real models: imported and run on NumPy references, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched import relax
from autosched.frontend.onnx import from_onnx
from benchmarks.models import EXPORTED, NAMES, get_model, make_inputs
from tests.frontend.onnx_models import node

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


@pytest.mark.parametrize("is_put", [True, False])
def test_attention_as_transformers_exports_it(is_put: bool) -> None:
    """Where(IsNaN(softmax), 0, softmax) is part of the attention: a query that sees no key gives 0, NaN without it."""
    import onnxruntime

    nodes = [
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("Mul", "q scale", "qs"), node("Mul", "kt scale", "ks"),
        node("Where", "seen zero low", "bias"), node("MatMul", "qs ks", "products"),
        node("Add", "products bias", "scores"), node("Softmax", "scores", "weights", axis=-1),
        *([node("IsNaN", "weights", "none"), node("Where", "none zero weights", "put")] if is_put else []),
        node("MatMul", f"{'put' if is_put else 'weights'} v", "y"),
    ]  # fmt: skip
    shape = (2, 3, 5, 8)
    constants = {"scale": np.float32(0.6), "zero": np.float32(0), "low": np.float32(-np.inf)}
    types = {n: TensorProto.BOOL if n == "seen" else TensorProto.FLOAT for n in ("q", "k", "v", "seen")}
    inputs = [helper.make_tensor_value_info(n, t, (2, 1, 5, 5) if n == "seen" else shape) for n, t in types.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    tensors = [numpy_helper.from_array(np.asarray(x), n) for n, x in constants.items()]
    graph = helper.make_graph(nodes, "attention", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(shape).astype(np.float32) for n in ("q", "k", "v")}
    values["seen"] = np.tri(5, 5, -1, dtype=bool) & np.ones((2, 1, 1, 1), bool)
    want: Any = onnxruntime.InferenceSession(model.SerializeToString()).run(None, values)[0]
    built = autosched.build(model, target="cpu")
    assert "attention" in " ".join(built.kernels)
    got = built(*values.values()).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert (not got[:, :, 0].any()) if is_put else np.isnan(got[:, :, 0]).all()
