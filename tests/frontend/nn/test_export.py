from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from autosched import cpu, relax
from autosched.frontend import nn
from autosched.frontend.nn import op, spec
from autosched.ir import assert_structural_equal
from autosched.relax import evaluate
from autosched.script import from_source


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 6)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def lines(module) -> list[str]:
    return [line.strip() for line in module.script().splitlines()]


def test_parameters_have_dotted_names_in_the_order_of_declaration():
    module, params = Small().export_tvm({"forward": {"x": spec.Tensor((1, 8), "float32")}})
    assert [name for name, _ in params] == ["fc1.weight", "fc1.bias", "fc2.weight"]
    assert [p.name for p in module["forward"].params] == ["x", "fc1.weight", "fc1.bias", "fc2.weight"]
    assert module["forward"].attrs["num_input"] == 1


def test_names_follow_the_operators():
    module, _ = Small().export_tvm({"forward": {"x": spec.Tensor((1, 8), "float32")}})
    text = lines(module)
    assert 'permute_dims: R.Tensor((8, 6), dtype="float32") = R.permute_dims(fc1_weight, axes=None)' in text
    assert 'matmul: R.Tensor((1, 6), dtype="float32") = R.matmul(x, permute_dims, out_dtype="void")' in text
    assert 'relu: R.Tensor((1, 6), dtype="float32") = R.nn.relu(add)' in text
    assert any(line.startswith("permute_dims1: ") for line in text)


def test_a_dimension_may_be_a_symbol():
    module, _ = Small().export_tvm({"forward": {"x": spec.Tensor(("n", 8), "float32")}})
    assert "R.Tensor((n, 3)" in module.script()


def test_several_methods_and_integers():
    class Two(nn.Module):
        def __init__(self) -> None:
            self.table = nn.Embedding(10, 4)

        def look(self, i):
            return self.table(i)

        def double(self, x):
            return x + x, x * 2.0

    module, _ = Two().export_tvm(
        {"look": {"i": spec.Tensor((3,), "int64")}, "double": {"x": spec.Tensor((2,), "float32")}}
    )
    assert [gv.name for gv in module.get_global_vars()] == ["double", "look"]
    table = np.arange(40, dtype="float32").reshape(10, 4)
    result = evaluate(module, [np.array([9, 0, 3]), table], function="look")
    np.testing.assert_array_equal(result, table[[9, 0, 3]])


def test_state_dict_round_trip():
    model = Small()
    values = {name: np.random.default_rng(0).random(p.shape, "float32") for name, p in model.named_parameters()}
    assert model.load_state_dict(values) == ([], [])
    np.testing.assert_array_equal(model.fc1.weight.data.numpy(), values["fc1.weight"])
    with pytest.raises(KeyError, match=r"missing keys: \['fc2.weight'\]"):
        model.load_state_dict({k: v for k, v in values.items() if k != "fc2.weight"})
    with pytest.raises(ValueError, match="shape"):
        model.load_state_dict({**values, "fc1.bias": np.zeros(5, "float32")})


def test_jit_runs_the_model():
    model = Small()
    rng = np.random.default_rng(1)
    values = {name: rng.standard_normal(p.shape).astype("float32") for name, p in model.named_parameters()}
    with pytest.raises(ValueError, match="without data"):
        model.jit({"forward": {"x": spec.Tensor((1, 8), "float32")}})
    model.load_state_dict(values)
    x = torch.from_numpy(rng.standard_normal((1, 8)).astype("float32"))
    result = model.jit({"forward": {"x": spec.Tensor((1, 8), "float32")}})["forward"](x)
    hidden = np.maximum(x.numpy() @ values["fc1.weight"].T + values["fc1.bias"], 0)
    np.testing.assert_allclose(result.numpy(), hidden @ values["fc2.weight"].T, rtol=1e-4, atol=1e-5)


class Called(nn.Module):
    """A function of tensors as a model."""

    def __init__(self, function):
        self.function = function

    def forward(self, **tensors):
        return self.function(*tensors.values())


OPERATORS = {
    "arithmetic": (lambda x: (1.0 - x) / (x * x + 1.0), lambda x: (1 - x) / (x * x + 1), (3, 4)),
    "softmax": (op.softmax, lambda x: torch.softmax(x, -1), (3, 4)),
    "layer norm": (lambda x: op.layer_norm(x, 4), lambda x: torch.layer_norm(x, (4,)), (3, 4)),
    "group norm": (lambda x: op.group_norm(x, 2, None, None), lambda x: F.group_norm(x, 2), (2, 4, 5)),
    "gelu": (lambda x: op.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh"), (3, 4)),
    "split": (
        lambda x: op.concat(list(op.split(x, 2, 1))[::-1], 1),
        lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
        (3, 4),
    ),
    "repeat": (lambda x: op.repeat(x, 2, 1), lambda x: x.repeat_interleave(2, 1), (3, 4)),
    "pad": (lambda x: op.pad(x, [1, 2], value=0.5), lambda x: F.pad(x, (1, 2), value=0.5), (3, 4)),
    "triu": (lambda x: op.triu(x, 1), lambda x: torch.triu(x, 1), (4, 4)),
    "softplus": (op.softplus, F.softplus, (3, 4)),
    "views": (
        lambda x: op.squeeze(op.unsqueeze(x, 0), 0).reshape(2, 6).permute_dims(1, 0),
        lambda x: x.reshape(2, 6).T,
        (3, 4),
    ),
    "sums": (
        lambda x: op.sum(x, 1) + op.mean(x, axis=1) - op.max(x, 1),
        lambda x: x.sum(1) + x.mean(1) - x.amax(1),
        (3, 4),
    ),
    "attention": (
        lambda x: op.scaled_dot_product_attention(x, x, x, is_causal=True),
        lambda x: F.scaled_dot_product_attention(
            x.transpose(1, 2), x.transpose(1, 2), x.transpose(1, 2), is_causal=True
        ).transpose(1, 2),
        (2, 5, 3, 4),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    function, expected, shape = OPERATORS[name]
    x = np.random.default_rng(2).standard_normal(shape).astype("float32")
    module, _ = Called(function).export_tvm({"forward": {"x": spec.Tensor(shape, "float32")}})
    result = evaluate(module, [x], function="forward")
    np.testing.assert_allclose(result, expected(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-5)


def test_a_size_for_interpolate_is_needed():
    with pytest.raises(ValueError, match=r"interpolate takes size or scale_factor; such as size=\(32, 32\)"):
        Called(lambda x: op.interpolate(x)).export_tvm({"forward": {"x": spec.Tensor((1, 2, 4, 4), "float32")}})


def test_wrong_uses():
    with pytest.raises(ValueError, match="no method 'backward'"):
        Small().export_tvm({"backward": {}})
    with pytest.raises(TypeError, match=r"forward\.x"):
        Small().export_tvm({"forward": {"x": 3.5}})
    with pytest.raises(Exception, match="outside of a method"):
        op.relu(nn.Tensor.placeholder((2,), "float32"))


class Decoder(nn.Module):
    def __init__(self) -> None:
        self.cache = nn.KVCache(2, [4])

    def forward(self, x, n):
        self.cache.append(x)
        op.print_(x)
        return self.cache.view(n)


def test_states_are_inputs_and_results(capsys):
    module, _ = Decoder().export_tvm({"forward": {"x": spec.Tensor((2, 4), "float32"), "n": int}}, debug=True)
    assert [p.name for p in module["forward"].params] == ["x", "n", ".io", "cache"]
    assert module["forward"].attrs["num_input"] == 4
    assert_structural_equal(from_source(module.script()), module)
    vm = relax.VirtualMachine(relax.build(module, "llvm"), cpu())
    x = np.arange(8, dtype="float32").reshape(2, 4)
    rows, states = vm["forward"](x, 2, *vm["_initialize_effect"]())
    rows, states = vm["forward"](x + 8, 4, *states)
    np.testing.assert_array_equal(rows.numpy(), np.arange(16, dtype="float32").reshape(4, 4))
    assert "test_export.py" in capsys.readouterr().out
    with pytest.raises(ValueError, match="not \\(5, 4\\)"):
        vm["forward"](x, 5, *states)


def test_printing_takes_debug():
    with pytest.raises(ValueError, match="debug mode"):
        Decoder().export_tvm({"forward": {"x": spec.Tensor((2, 4), "float32"), "n": int}})


class Part(nn.Module):
    define_subroutine = True

    def __init__(self, size: int) -> None:
        self.fc = nn.Linear(size, 4)

    def forward(self, x):
        return op.relu(self.fc(x))


def test_a_subroutine_is_one_function():
    class Whole(nn.Module):
        def __init__(self) -> None:
            self.a, self.b, self.c = Part(8), Part(4), Part(4)

        def forward(self, x):
            return self.c(self.b(self.a(x)))

    whole = Whole()
    module, params = whole.export_tvm({"forward": {"x": spec.Tensor((1, 8), "float32")}})
    assert sorted(gv.name for gv in module.get_global_vars()) == ["forward", "part", "part1"]
    values = [np.random.default_rng(0).normal(size=p.shape).astype("float32") for _, p in params]
    x = np.ones((1, 8), "float32")
    vm = relax.VirtualMachine(relax.build(module, "llvm"), cpu())
    y = x
    for weight, bias in zip(values[::2], values[1::2], strict=True):
        y = np.maximum(y @ weight.T + bias, 0)
    np.testing.assert_allclose(vm["forward"](x, *values).numpy(), y, rtol=1e-5, atol=1e-5)


def test_a_mutator_exchanges_parts():
    class Wide(nn.Mutator):
        def visit_module(self, name, node):
            assert name in ("fc1", "relu", "fc2")
            return nn.Linear(8, 16) if name == "fc1" else self.visit(name, node)

        def visit_param(self, name, node):
            return nn.Parameter((3, 16)) if name == "fc2.weight" else node

    module = Wide().visit("", Small())
    assert [(name, p.shape) for name, p in module.named_parameters()][0] == ("fc1.weight", [16, 8])
    assert dict(module.named_parameters())["fc2.weight"].shape == [3, 16]
