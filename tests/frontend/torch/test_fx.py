from __future__ import annotations

import pytest
import torch
from torch import nn

from autosched.errors import ImportModelError
from autosched.frontend.torch import from_fx
from autosched.relax.frontend import detach_params


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 6)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.fc1(x))


def traced() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(Small().eval())


def test_parameters_are_inputs_sorted_by_name():
    module, params = detach_params(from_fx(traced(), [((1, 8), "float32")], keep_params_as_input=True))
    assert [p.name for p in module["main"].params] == ["inp_0", "fc1_bias", "fc1_weight"]
    assert [a.shape for a in params["main"]] == [(6,), (6, 8)]
    assert module["main"].attrs["num_input"] == 1


def test_the_printed_form_is_tvms():
    module, _ = detach_params(from_fx(traced(), [((1, 8), "float32")], keep_params_as_input=True))
    lines = [line.strip() for line in module.script().splitlines()]
    assert 'lv: R.Tensor((8, 6), dtype="float32") = R.permute_dims(fc1_weight, axes=None)' in lines
    assert 'lv1: R.Tensor((1, 6), dtype="float32") = R.matmul(inp_0, lv, out_dtype="float32")' in lines
    assert 'lv2: R.Tensor((1, 6), dtype="float32") = R.add(lv1, fc1_bias)' in lines


def test_shapes_read_in_the_program_are_known():
    class Reads(nn.Module):
        def forward(self, x):
            return x.view(x.shape[0] * x.size(1), -1)

    module = from_fx(torch.fx.symbolic_trace(Reads()), [((2, 3, 4), "float32")])
    assert module["main"].ret_struct_info.static_shape == (6, 4)


def test_unsupported_operators_are_listed_at_once():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x) + torch.fft.rfft(x).real

    with pytest.raises(ImportModelError, match=r"fft_rfft \(fft_rfft\).*linalg_inv \(linalg_inv\)"):
        from_fx(torch.fx.symbolic_trace(Odd()), [((4, 4), "float32")])


def test_custom_converters_come_first():
    from autosched.relax import op

    module = from_fx(traced(), [((1, 8), "float32")], custom_convert_map={nn.ReLU: lambda node, t: op.tanh(_last(t))})
    assert "R.tanh" in module.script() and "relu" not in module.script()


def _last(t):
    """The variable bound last."""
    return t.builder._scope.bindings[-1].var


def test_wrong_uses():
    with pytest.raises(TypeError, match="GraphModule"):
        from_fx(Small(), [((1, 8), "float32")])
    with pytest.raises(ValueError, match="takes 1 inputs, input_info has 2"):
        from_fx(traced(), [((1, 8), "float32")] * 2)
