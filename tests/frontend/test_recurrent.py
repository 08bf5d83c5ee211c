"""RNN, GRU and LSTM layers against ONNX Runtime, in every direction and with every optional input."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import autosched
from autosched.codegen import counters
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable
from tests.frontend.onnx_models import make, node
from tests.frontend.test_importer import check
from tests.spread import spread

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(
    op: str, directions: int = 1, *, bias: bool = True, lengths: bool = False, state: bool = False,
    peepholes: bool = False, steps: int = 4, batch: int = 2, size: int = 3, hidden: int = 5, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One layer with seeded weights; all its outputs are the model's."""
    rng, gates = np.random.default_rng(1), GATES[op] * hidden

    def draw(*shape: int) -> np.ndarray:
        return (0.5 * rng.standard_normal(shape)).astype("f")

    weights: dict[str, np.ndarray] = {"w": draw(directions, gates, size), "r": draw(directions, gates, hidden)}
    if bias:
        weights["b"] = draw(directions, 2 * gates)
    if lengths:
        weights["n"] = np.array([steps - 2, steps], "int32")
    if state:
        weights["h"] = draw(directions, batch, hidden)
        if op == "LSTM":
            weights["c"] = draw(directions, batch, hidden)
    if peepholes:
        weights["p"] = draw(directions, 3 * hidden)
    names = [
        "x",
        "w",
        "r",
        *(n if n in weights else "_" for n in ("b", "n", "h", *(("c", "p") if op == "LSTM" else ()))),
    ]
    outputs = "y yh yc" if op == "LSTM" else "y yh"
    nodes = [node(op, " ".join(names), outputs, hidden_size=hidden, **attrs)]
    return make(nodes, {"x": (steps, batch, size)}, outputs.split(), weights)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op: str, direction: str) -> None:
    check(layer(op, 2 if direction == "bidirectional" else 1, direction=direction))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("given", [{"bias": False}, {"state": True}, {"lengths": True, "state": True}])
def test_optional_inputs(op: str, given: dict[str, bool]) -> None:
    check(layer(op, **given))
    check(layer(op, direction="reverse", **given))


def test_long_short_term_memory_with_peepholes() -> None:
    check(layer("LSTM", peepholes=True, state=True))


def test_gate_of_forgetting_from_that_of_input() -> None:
    check(layer("LSTM", input_forget=1))


def test_reset_behind_the_product() -> None:
    check(layer("GRU", linear_before_reset=1, state=True))


@pytest.mark.parametrize(
    "attrs",
    [
        {"activations": ["Relu"]}, {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]},
        {"activations": ["LeakyRelu"], "activation_alpha": [0.3]}, {"activations": ["Softsign"]},
        {"activations": ["Softplus"]}, {"activations": ["Elu"], "activation_alpha": [0.7], "clip": 0.6},
        {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2]},
        {"activations": ["ScaledTanh"], "activation_alpha": [0.7], "activation_beta": [0.4]},
    ],
)  # fmt: skip
def test_activations(attrs: dict[str, Any]) -> None:
    check(layer("RNN", **attrs))


def test_activations_of_two_directions() -> None:
    names = ["HardSigmoid", "Tanh", "Relu", "Sigmoid", "Relu", "Tanh"]
    model = layer(
        "LSTM", 2, direction="bidirectional", activations=names, activation_alpha=[0.3], activation_beta=[0.4]
    )
    check(model)


def test_batch_first() -> None:
    """ONNX Runtime does not have it: against the same layer with the steps first."""
    from autosched import relax

    plain, turned = layer("LSTM", state=True), layer("LSTM", state=True, layout=1)
    for name in ("h", "c"):
        (tensor,) = (t for t in turned.graph.initializer if t.name == name)
        values = onnx.numpy_helper.to_array(tensor).swapaxes(0, 1).copy()
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))
    del turned.graph.input[0].type.tensor_type.shape.dim[:]
    for size in (2, 4, 3):
        turned.graph.input[0].type.tensor_type.shape.dim.add().dim_value = size
    x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype("f")
    want = relax.evaluate(from_onnx(plain), [x])
    got = relax.evaluate(from_onnx(turned), [x.swapaxes(0, 1).copy()])
    np.testing.assert_allclose(got[0], want[0].transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    for g, w in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(g, w.swapaxes(0, 1), rtol=1e-5, atol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(ImportModelError, match="activation Erf is not supported"):
        from_onnx(layer("RNN", activations=["Erf"]))
    with pytest.raises(ImportModelError, match="more than 4096 steps"):
        from_onnx(layer("RNN", steps=5000))


OPEN = [
    ("RNN", "forward", {}), ("RNN", "reverse", {"activations": ["Relu"]}), ("GRU", "forward", {}),
    ("GRU", "bidirectional", {"linear_before_reset": 1}), ("LSTM", "forward", {"state": True}),
    ("LSTM", "bidirectional", {"bias": False}),
    ("LSTM", "forward",
     {"activations": ["HardSigmoid", "Softsign", "Elu"], "activation_alpha": [0.3, 0.7], "clip": 1.0}),
    ("GRU", "reverse",
     {"activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.2, 0.7], "activation_beta": [0.5, 0.4]}),
    ("RNN", "bidirectional", {"activations": ["ThresholdedRelu", "LeakyRelu"], "activation_alpha": [0.2, 0.3]}),
]  # fmt: skip


@spread(3, "op, direction, given", OPEN)
def test_any_number_of_steps_by_one_build(op: str, direction: str, given: dict[str, Any]) -> None:
    hidden = 5 if op == "RNN" else 37  # more states of such weights would double each rounding at every step
    model = layer(op, 2 if direction == "bidirectional" else 1, direction=direction, hidden=hidden, **given)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param = "steps"
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    built = autosched.build(model)
    assert isinstance(built, DynamicExecutable), built.reason
    assert all(k.trace for name, k in built.kernels.items() if name.startswith(op.lower()))  # its nests are scheduled
    session = onnxruntime.InferenceSession(model.SerializeToString())
    before = counters.COMPILES.value
    for steps in (1, 2, 9, 40):
        x = np.random.default_rng(steps).standard_normal((steps, 2, 3)).astype("f")
        for got, want in zip(built(x), session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-3, atol=1e-4)
    assert counters.COMPILES.value == before


def test_what_one_build_does_not_compute_says_so() -> None:
    model = layer("LSTM", peepholes=True)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    with pytest.raises(ImportModelError, match="'steps' steps, and lengths, peepholes"):
        from_onnx(model)
