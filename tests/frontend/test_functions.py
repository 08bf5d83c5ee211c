"""Functions, control flow and sequences of ONNX models: what is known at import is written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched import relax
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.frontend.onnx.importer import Importer
from tests.frontend.onnx_models import make, node


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> tuple[np.ndarray, ...]:
    module = from_onnx(model)
    relax.verify(module)
    result = relax.evaluate(module, feeds)
    return result if isinstance(result, tuple) else (result,)


X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def test_an_operator_that_the_specification_defines_by_others() -> None:
    model = make([node("Mish", "x", "y")], {"x": (2, 3)}, ["y"], opset=22)
    (got,) = run(model, x=X)
    np.testing.assert_allclose(got, X * np.tanh(np.log1p(np.exp(X))), rtol=1e-5)


def test_defaults_of_an_operator_reach_its_definition() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype("float32")
    (got,) = run(make([node("MeanVarianceNormalization", "x", "y")], {"x": x.shape}, ["y"], opset=13), x=x)
    axes = (0, 2, 3)
    np.testing.assert_allclose(
        got, (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True), rtol=1e-4, atol=1e-5
    )


def test_a_function_of_the_model_with_attributes_and_defaults() -> None:
    scale = helper.make_node("Constant", [], ["k"], name="k")
    reference = scale.attribute.add()
    reference.name, reference.type, reference.ref_attr_name = "value_float", onnx.AttributeProto.FLOAT, "factor"
    body = [scale, helper.make_node("Mul", ["a", "k"], ["b"], name="m")]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Scale", ["a"], ["b"], body, opsets, attributes=["factor"])
    calls = [
        helper.make_node("Scale", ["x"], ["h"], domain="own", name="first", factor=2.0),
        helper.make_node("Scale", ["h"], ["y"], domain="own", name="second", factor=3.0),
    ]
    model = make(calls, {"x": (2, 3)}, ["y"])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    (got,) = run(model, x=X)
    np.testing.assert_allclose(got, 6 * X)


def test_nodes_out_of_order_are_sorted() -> None:
    model = make([node("Neg", "h", "y"), node("Abs", "x", "h")], {"x": (2, 3)}, ["y"])
    (got,) = run(model, x=X)
    np.testing.assert_array_equal(got, -np.abs(X))


def test_nodes_in_a_circle_are_named() -> None:
    model = make([node("Neg", "h", "y"), node("Abs", "y", "h")], {"x": (2, 3)}, ["y"])
    with pytest.raises(ImportModelError, match="computed by no node"):
        from_onnx(model)


def _graph(nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> onnx.GraphProto:
    values = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names] for names in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *values)


def _if(condition: str) -> onnx.NodeProto:
    then = _graph([node("Neg", "x", "a")], [], ["a"])
    other = _graph([node("Exp", "x", "b")], [], ["b"])
    return helper.make_node("If", [condition], ["y"], name="choice", then_branch=then, else_branch=other)


@pytest.mark.parametrize("value", [True, False])
def test_if_with_a_constant_condition_imports_one_branch(value: bool) -> None:
    model = make([_if("c")], {"x": (2, 3)}, ["y"], {"c": np.asarray(value)})
    (got,) = run(model, x=X)
    np.testing.assert_allclose(got, -X if value else np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("value", [True, False])
def test_if_with_a_condition_at_run_time_chooses(value: bool) -> None:
    model = make([_if("c")], {"x": (2, 3)}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    (got,) = run(model, x=X, c=np.asarray(value))
    np.testing.assert_allclose(got, -X if value else np.exp(X), rtol=1e-6)


def test_a_branch_that_is_not_taken_need_not_fit_the_inputs() -> None:
    """A detector of speech at two rates: each branch takes windows of its own size."""
    then, other = (_graph([node("MatMul", f"x w{n}", f"y{n}")], [], [f"y{n}"]) for n in (3, 4))
    choice = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)
    weights = {f"w{n}": np.full((n, 2), 0.5, np.float32) for n in (3, 4)}
    model = make([choice], {"x": (2, 3)}, ["y"], weights)
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    built = autosched.build(model, threads=1)
    np.testing.assert_allclose(built(x=X, c=np.asarray(True)).numpy(), X @ weights["w3"], rtol=1e-6)
    with pytest.raises(ImportModelError, match="3 columns"):
        built(x=X, c=np.asarray(False))


def test_a_loop_is_written_out() -> None:
    body = helper.make_graph(
        [node("Add", "s x", "t"), node("Identity", "go", "on"), node("Mul", "t t", "square")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("on", "t", "square")],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["last", "all"], name="loop", body=body)
    model = make([loop], {"x": (2, 3)}, ["last", "all"], {"n": np.asarray(3, np.int64)})
    last, every = run(model, x=X)
    np.testing.assert_allclose(last, 4 * X, rtol=1e-6)
    np.testing.assert_allclose(every, np.stack([(k * X) ** 2 for k in (2, 3, 4)]), rtol=1e-5)


def test_scan_backwards() -> None:
    body = _graph([node("Add", "s v", "t"), node("Identity", "t", "o")], ["s", "v"], ["t", "o"])
    scan = helper.make_node(
        "Scan", ["z", "x"], ["end", "sums"], name="scan", body=body, num_scan_inputs=1,
        scan_input_directions=[1], scan_output_directions=[1],
    )  # fmt: skip
    model = make([scan], {"x": (2, 3)}, ["end", "sums"], {"z": np.zeros(3, np.float32)})
    end, sums = run(model, x=X)
    np.testing.assert_allclose(end, X.sum(0), rtol=1e-6)
    np.testing.assert_allclose(sums, np.cumsum(X[::-1], axis=0)[::-1], rtol=1e-6)


def test_sequences_of_tensors() -> None:
    nodes = [
        node("SplitToSequence", "x", "parts", axis=1, keepdims=0),
        node("SequenceAt", "parts last", "end"),
        node("SequenceInsert", "parts end first", "more"),
        node("ConcatFromSequence", "more", "y", axis=1, new_axis=1),
        node("SequenceLength", "more", "n"),
    ]
    model = make(nodes, {"x": (2, 3)}, ["y", "n"], {"last": np.asarray(-1), "first": np.asarray(0)})
    got, count = run(model, x=X)
    np.testing.assert_array_equal(got, np.stack([X[:, 2], X[:, 0], X[:, 1], X[:, 2]], axis=1))
    assert count == 4


def test_quantized_product_is_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (4, 9), dtype=np.uint8), rng.integers(-128, 128, (9, 5), dtype=np.int8)
    graph = helper.make_graph(
        [node("MatMulInteger", "a b az bz", "y")], "g",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, a.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [
            numpy_helper.from_array(b, "b"), numpy_helper.from_array(np.asarray(7, np.uint8), "az"),
            numpy_helper.from_array(np.arange(5, dtype=np.int8), "bz"),
        ],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (got,) = run(model, a=a)
    np.testing.assert_array_equal(got, (a.astype(int) - 7) @ (b.astype(int) - np.arange(5)))


def test_calls_in_calls_become_a_bounded_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty functions that call the next one twice are 2**40 nodes."""
    monkeypatch.setattr("autosched.frontend.onnx.importer.MOST_WRITTEN_OUT", 1000)
    h = helper
    opsets = [h.make_opsetid("", 18), h.make_opsetid("own", 1)]
    inner = [
        h.make_function("own", f"F{k}", ["a"], ["b"], [
            h.make_node(f"F{k + 1}", ["a"], ["t"], domain="own"), h.make_node(f"F{k + 1}", ["t"], ["b"], domain="own"),
        ], opsets)
        for k in range(40)
    ]  # fmt: skip
    inner.append(h.make_function("own", "F40", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])], opsets))
    model = make([h.make_node("F0", ["x"], ["y"], domain="own")], {"x": (2,)}, ["y"])
    model.functions.extend(inner)
    model.opset_import.append(opsets[1])
    with pytest.raises(ImportModelError, match="become more than 1000 nodes"):
        from_onnx(model)


def test_names_of_nested_branches_are_their_paths() -> None:
    """A path that each level puts before all names below it is twice as long with each level."""
    h, kinds = helper, TensorProto
    graph = h.make_graph([node("Relu", "x", "z")], "b", [], [h.make_tensor_value_info("z", kinds.FLOAT, None)])
    for k in range(18):
        other = h.make_graph([node("Neg", "x", "q")], "e", [], [h.make_tensor_value_info("q", kinds.FLOAT, None)])
        choice = h.make_node("If", ["c"], [f"z{k}"], f"if{k}", then_branch=graph, else_branch=other)
        graph = h.make_graph([choice], "b", [], [h.make_tensor_value_info(f"z{k}", kinds.FLOAT, None)])
    model = make([*graph.node], {"x": (2,)}, ["z17"])
    model.graph.input.append(h.make_tensor_value_info("c", kinds.BOOL, ()))
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Importer, "converted", _noting(names, Importer.converted))
        from_onnx(model)
    assert max(map(len, names)) < 18 * 20


def _noting(names: list[str], converted: Any) -> Any:
    def noted(self: Importer, proto: onnx.NodeProto, name: str, *rest: Any) -> Any:
        names.append(name)
        return converted(self, proto, name, *rest)

    return noted
