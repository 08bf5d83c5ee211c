"""ONNX Runtime's interface: names, shapes, feeds by name, results as NumPy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autosched
from autosched.errors import InvalidTypeError, InvalidValueError, TargetError


def model(batch: int | str) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("the/x", TensorProto.FLOAT, [batch, 4])
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 4]) for name in ("double", "more")]
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    nodes = [
        helper.make_node("Add", ["the/x", "the/x"], ["double"]),
        helper.make_node("Add", ["double", "one"], ["more"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], outs, [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_file_runs_as_in_onnx_runtime(tmp_path: Path) -> None:
    import onnxruntime

    path, x = tmp_path / "m.onnx", np.arange(8, dtype="float32").reshape(2, 4)
    onnx.save(model(2), path)
    ours, theirs = autosched.onnx.InferenceSession(path), onnxruntime.InferenceSession(str(path))
    for a, b in zip(ours.get_inputs() + ours.get_outputs(), theirs.get_inputs() + theirs.get_outputs(), strict=True):
        assert (a.name, a.type, list(a.shape)) == (b.name, b.type, b.shape)
    for names in (None, ["more"], ["more", "double"]):
        for a, b in zip(ours.run(names, {"the/x": x}), theirs.run(names, {"the/x": x}), strict=True):
            assert isinstance(a, np.ndarray)
            np.testing.assert_array_equal(a, b)


def test_symbolic_sizes_are_those_of_the_run() -> None:
    session = autosched.onnx.InferenceSession(model("batch").SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ("batch", 4)
    for batch in (1, 3):
        x = np.full((batch, 4), 2, "float32")
        np.testing.assert_array_equal(session.run(["more"], {"the/x": x})[0], x * 2 + 1)


def test_what_does_not_fit_is_refused() -> None:
    session = autosched.onnx.InferenceSession(model(2))
    x = np.zeros((2, 4), "float32")
    with pytest.raises(InvalidTypeError, match="input 'the/x' is missing"):
        session.run(None, {})
    with pytest.raises(InvalidTypeError, match="input 'y' is unknown"):
        session.run(None, {"the/x": x, "y": x})
    with pytest.raises(InvalidValueError, match="no output 'z'"):
        session.run(["z"], {"the/x": x})
    with pytest.raises(TargetError, match="no provider 'Tensorrt"):
        autosched.onnx.InferenceSession(model(2), providers=["TensorrtExecutionProvider"])
