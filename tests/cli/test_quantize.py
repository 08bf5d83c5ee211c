"""`autosched quantize`: a model of bytes, the samples that decide its scales, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autosched
from autosched.cli import main
from tests.cli.models import refuse

pytest.importorskip("onnxruntime")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution, a ReLU and a dense layer."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 3, 3, 3)) / 5,
        "b": rng.standard_normal(16),
        "v": rng.standard_normal((16, 8)) / 4,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["out"], name="dense"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    out = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [1, 8])
    constants = [numpy_helper.from_array(a.astype("f"), name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "small", [x], [out], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((6, 3, 8, 8)).astype("f"))
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_the_model_is_of_bytes_and_close_to_the_one_before(model: Path, activations: str) -> None:
    data = model.with_name("data.npz")
    assert main(["quantize", str(model), "--data", str(data), "--activations", activations, "-q"]) == 0
    written = model.with_name("m.int8.onnx")
    x = np.load(data)["x"][:1]
    before, built = autosched.build(str(model)), autosched.build(str(written))
    source = "\n".join(kernel.source for kernel in built.kernels.values())
    assert "int8[" in source and "int32(" in source
    wanted = before(x).numpy()
    np.testing.assert_allclose(built(x).numpy(), wanted, atol=0.05 * np.abs(wanted).max())


def test_nodes_may_be_left_as_they_are(model: Path) -> None:
    data = str(model.with_name("data.npz"))
    assert (
        main(["quantize", str(model), "--data", data, "--skip", "conv", "-o", str(model.with_name("q.onnx")), "-q"])
        == 0
    )
    nodes = {node.name: node for node in onnx.load(model.with_name("q.onnx")).graph.node}
    assert nodes["conv"].input[1] == "w" and nodes["dense"].input[1] != "v"


def test_what_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = model.with_name("data.npz")
    refuse(capsys, ["quantize", str(model)], "no calibration data", "--data FILE.npz")
    refuse(capsys, ["quantize", str(model), "--data", str(data), "--skip", "no"], "the model has no node 'no'")
    for arrays, message in (
        ({"y": np.zeros((2, 3, 8, 8))}, "the model has no input 'y'; it has x"),
        ({}, "no data for input 'x'"),
        ({"x": np.zeros((2, 3, 7, 8))}, "have shape [2, 3, 7, 8], which holds no samples [1, 3, 8, 8]"),
        ({"x": np.zeros((0, 3, 8, 8))}, "holds no samples"),
        ({"x": np.full((1, 3, 8, 8), np.nan)}, "hold infinities or NaN"),
    ):
        np.savez(data, **{name: array.astype("f") for name, array in arrays.items()})
        refuse(capsys, ["quantize", str(model), "--data", str(data)], message)
    refuse(capsys, ["quantize", str(data), "--data", str(data)], "is no .onnx file")
