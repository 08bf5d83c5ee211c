"""Named dimensions of ONNX models stay symbols, where nobody gives their sizes."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

W = np.random.default_rng(0).random((4, 3), dtype=np.float32)


def model(first: object = "batch") -> object:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, 4])
    b = helper.make_tensor_value_info("b", TensorProto.FLOAT, [first, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, 3])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, b], [y], [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_one_symbol_for_one_name() -> None:
    module = from_onnx(model())
    x, b = module["main"].params
    assert x.struct_info.shape.values[0] is b.struct_info.shape.values[0]
    assert x.struct_info.shape.values[0].name == "batch"
    vm = relax.VirtualMachine(relax.build(module, "llvm"), autosched.cpu())
    for n in (2, 5):
        data, bias = np.ones((n, 4), np.float32), -np.ones((n, 3), np.float32)
        out = vm["main"](autosched.nd.array(data), autosched.nd.array(bias)).numpy()
        np.testing.assert_allclose(out, np.maximum(data @ W + bias, 0), rtol=1e-5)


def test_sizes_that_are_given() -> None:
    module = from_onnx(model(), shape_dict={"x": [2, 4], "b": [2, 3]})
    assert module["main"].params[0].struct_info.static_shape == (2, 4)
    named = from_onnx(model(None), shape_dict={"x": ["n", 4], "b": ["n", 3]})
    assert named["main"].params[0].struct_info.shape.values[0].name == "n"


def test_where_numbers_are_needed_they_are_asked_for() -> None:
    with pytest.raises(ImportModelError, match="unknown size"):
        from_onnx(model(), symbolic=False)
    with pytest.raises(ImportModelError, match="unknown size"):
        from_onnx(model(None))
