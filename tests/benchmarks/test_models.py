"""The benchmark models are ordinary ONNX files whose activations stay of order one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.light import LIGHT, load_light
from benchmarks.models import EXPORTED, cut_softmax, get_model, make_inputs
from benchmarks.weights import activation_sizes, draw, find_roles
from tests.spread import spread

pytestmark = pytest.mark.early
SMALL = ("squeezenet", "shufflenet", "inception_v1")


LARGE = tuple(pytest.param(name, marks=pytest.mark.slow) for name in LIGHT if name not in SMALL)


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_activations_stay_of_order_one(name: str) -> None:
    model = get_model(name, softmax=False)
    inputs = make_inputs(model, seed=1)
    assert list(inputs) == [model.graph.input[0].name]
    sizes = activation_sizes(model, inputs)
    outputs = {value.name for value in model.graph.output}
    # LRN divides by a constant above one in these networks, and averages shrink deviations: hence the low bar
    assert all(0.05 < sizes[name][0] < 5 for name in sizes if name in outputs)
    products = {node.output[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm")}
    assert all(0.3 < sizes[name][0] < 3 for name in products)


@spread(3, "name, batch", [*((name, 1) for name in EXPORTED), ("mlp", 3)])
def test_exported_models_have_static_shapes(name: str, batch: int) -> None:
    pytest.importorskip("torch")
    model = get_model(name, batch)
    onnx.checker.check_model(model)
    (value,) = model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    assert shape[0] == batch
    assert all(shape)
    assert all(0.2 < deviation < 30 for deviation, _ in list(activation_sizes(model, make_inputs(model)).values())[-1:])


def test_a_dynamic_batch_is_symbolic() -> None:
    pytest.importorskip("torch")
    (value,) = get_model("mlp", dynamic=True).graph.input
    assert value.type.tensor_type.shape.dim[0].dim_param


def test_equal_seeds_give_equal_models() -> None:
    first = get_model("squeezenet")
    assert first.SerializeToString() == get_model("squeezenet").SerializeToString()
    assert first.SerializeToString() != get_model("squeezenet", seed=1).SerializeToString()


def test_light_models_hold_ordinary_initialisers() -> None:
    model = load_light("squeezenet")
    assert not [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    names = {tensor.name for tensor in model.graph.initializer}
    assert not names & {value.name for value in model.graph.input}
    onnx.checker.check_model(model)


def test_softmax_is_cut_off() -> None:
    whole, cut = get_model("squeezenet"), get_model("squeezenet", softmax=False)
    assert whole.graph.node[-1].op_type == "Softmax"
    assert [value.name for value in cut.graph.output] == [whole.graph.node[-1].input[0]]
    assert cut_softmax(cut) is cut


def test_wrong_names_and_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="squeezenet"):
        get_model("squeezenetto")
    with pytest.raises(ValueError, match="batch 1 only"):
        get_model("squeezenet", batch=2)


def test_roles_reach_through_unsqueeze_and_leave_scalars_alone() -> None:
    model = load_light("inception_v2")
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    roles = find_roles(model.graph, arrays)
    assert roles["conv1/7x7_s2/bn/sc_w_0"] == "scale"
    assert roles["conv1/7x7_s2/bn/sc_b_0"] == "bias"
    scalar = onnx.helper.make_node("Clip", ["x", "low", "high"], ["y"])
    graph = onnx.helper.make_graph([scalar], "g", [], [])
    assert not find_roles(graph, {"low": np.zeros(1, np.float32), "high": np.ones(1, np.float32)})


def test_products_are_drawn_by_fan_in() -> None:
    values = draw(np.random.default_rng(0), "conv", (64, 32, 3, 3))
    assert values.std() == pytest.approx(np.sqrt(2 / (32 * 9)), rel=0.05)
