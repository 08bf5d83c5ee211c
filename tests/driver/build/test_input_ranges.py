"""Which integers inputs may hold, from what the graph does with them; and that bench draws them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched.driver.bench.programs import INTEGER_LIMIT, known_ranges, random_inputs
from autosched.driver.build.input_ranges import input_ranges
from autosched.frontend.onnx import from_onnx
from autosched.records import FallbackContext


def embedding() -> object:
    """words[ids] + kinds[reshape(kind)]: 300 words, 3 kinds; `mask` is multiplied with the result."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((300, 8)).astype(np.float32), "words"),
        numpy_helper.from_array(rng.standard_normal((3, 8)).astype(np.float32), "kinds"),
        numpy_helper.from_array(np.array([5, 1], np.int64), "shape"),
        numpy_helper.from_array(np.array([5], np.int64), "flat"),
    ]
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["a"], axis=0),
        helper.make_node("Reshape", ["kind", "flat"], ["kind_flat"]),
        helper.make_node("Gather", ["kinds", "kind_flat"], ["b"], axis=0),
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["m", "shape"], ["column"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "column"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name, shape in (("ids", [5]), ("kind", [1, 5]), ("mask", [5]))
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 8])]
    graph = helper.make_graph(nodes, "embedding", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_positions_lie_within_what_they_select_from() -> None:
    assert input_ranges(from_onnx(embedding())) == {"ids": 300, "kind": 3}


def test_the_build_keeps_them_for_bench_and_run() -> None:
    executable = autosched.build(from_onnx(embedding()), target="cpu", records=FallbackContext(), threads=1)
    assert known_ranges(executable) == {"ids": 300, "kind": 3}


def test_integers_are_drawn_from_the_whole_range_and_no_further() -> None:
    drawn = random_inputs({"ids": ((4000,), "int64"), "mask": ((100,), "int32")}, ranges={"ids": 300})
    assert drawn["ids"].min() == 0
    assert drawn["ids"].max() == 299
    assert drawn["mask"].max() == INTEGER_LIMIT - 1
    assert drawn["mask"].dtype == np.int32
