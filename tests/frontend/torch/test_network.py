from __future__ import annotations

import numpy as np
import pytest
import torch

from autosched.errors import UsageError
from autosched.frontend.onnx import from_onnx
from autosched.frontend.torch import from_exported_program
from autosched.frontend.torch.network import TorchNetwork
from autosched.relax import evaluate
from benchmarks.models import get_model, make_inputs
from benchmarks.torch_models import EncoderLayer


def test_a_transformer_layer_comes_back():
    model = EncoderLayer(32, 4).eval()
    x = torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(1))
    module = from_exported_program(torch.export.export(model, (x,)), unwrap_unit_return_tuple=True)
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(TorchNetwork(module)(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["mlp", pytest.param("shufflenet", marks=pytest.mark.slow)])
def test_onnx_models_run(name):
    model = get_model(name, softmax=False)
    module = from_onnx(model)
    inputs = list(make_inputs(model, seed=1).values())
    result = TorchNetwork(module)(*(torch.from_numpy(x) for x in inputs)).numpy()
    np.testing.assert_allclose(result, evaluate(module, inputs), rtol=1e-3, atol=1e-4)


def test_missing_rules_are_listed():
    from autosched.relax import BlockBuilder, TensorStructInfo, Var, op

    x = Var("x", TensorStructInfo((1, 8, 4, 4), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.layout_transform(x, "NCHW", "NCHW4c"))
        builder.emit_func_output(out)
    with pytest.raises(UsageError, match="layout_transform"):
        TorchNetwork(builder.get())
