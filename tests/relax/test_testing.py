"""TVM's helpers of tests of the graph level."""

from __future__ import annotations

import numpy as np

from autosched import cpu, get_global_func, relax
from autosched.relax.testing import nn
from autosched.relax.testing.vm import check_saved_func


def test_a_model_of_layers() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main"):
        model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3, bias=False), nn.LogSoftmax())
        data = nn.Placeholder((2, 8), name="data")
        builder.emit_func_output(model(data), [data, *model.parameters()])
    module = builder.get()
    assert [p.name for p in module["main"].params] == ["data", "linear_weight", "linear_bias", "linear_weight1"]
    values = nn.init_params(module)
    assert [v.shape for v in values] == [(8, 4), (4,), (4, 3)]
    vm = relax.VirtualMachine(relax.build(module, "llvm"), cpu())
    x = np.ones((2, 8), "float32")
    result = check_saved_func(vm, "main", x, *values).numpy()
    w, b, v = (value.numpy() for value in values)
    y = np.maximum(x @ w + b, 0) @ v
    np.testing.assert_allclose(result, y - np.log(np.exp(y).sum(1, keepdims=True)), rtol=1e-4, atol=1e-5)


def test_registered_functions() -> None:
    found = get_global_func("test.vm.add_scalar")
    assert found is not None and found(2, 3) == 5
