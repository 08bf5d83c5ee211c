"""Relay's importers: (module, parameters), built and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched import relay
from autosched.contrib import graph_executor
from autosched.errors import ImportModelError

X = np.random.default_rng(0).random((1, 3, 6, 6), dtype=np.float32)


class Net(torch.nn.Module):
    """A convolution and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(torch.relu(self.conv(x)).flatten(1))
        return y


def run(mod: Any, params: Any, **inputs: np.ndarray) -> np.ndarray:
    module = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](autosched.cpu()))
    module.run(**inputs)
    return module.get_output(0).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("traced", [False, True])
def test_pytorch(traced: bool) -> None:
    net = Net().eval()
    model = torch.jit.trace(net, torch.tensor(X)) if traced else net
    mod, params = relay.frontend.from_pytorch(model, [("input0", (1, 3, 6, 6))])
    assert sorted(params) == ["conv.bias", "conv.weight", "fc.bias", "fc.weight"]
    assert mod["main"].params[0].name_hint == "input0"
    np.testing.assert_allclose(run(mod, params, input0=X), net(torch.tensor(X)).detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_onnx(frozen: bool) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    sides = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 4]), ("y", ["n", 3]))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", sides[:1], sides[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    mod, params = relay.frontend.from_onnx(model, shape={"x": (2, 4)}, freeze_params=frozen)
    assert list(params) == ([] if frozen else ["w"])
    np.testing.assert_allclose(run(mod, params, x=np.ones((2, 4))), np.ones((2, 4)) @ weight, rtol=1e-5)


def test_wrong_models() -> None:
    with pytest.raises(TypeError, match="torch module"):
        relay.frontend.from_pytorch("model", [("x", (1,))])
    with pytest.raises(TypeError, match="input_infos"):
        relay.frontend.from_pytorch(Net(), [3])
    with pytest.raises(ImportModelError):
        relay.frontend.from_onnx(onnx.ModelProto())
