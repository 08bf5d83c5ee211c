"""Models of bfloat16: computed in float32 between inputs and outputs, which have PyTorch's dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import autosched
from autosched.frontend.torch import from_exported_program
from autosched.frontend.torch.graph import array_of
from autosched.records import FallbackContext

pytest.importorskip("ml_dtypes")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(37, 23), nn.LayerNorm(23)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(self.linear(x))
        return y.softmax(-1), (x + 1.5).sum(1), x.to(torch.float32), x > 0, y.argmax(1)


def test_a_model_builds_runs_and_is_saved(tmp_path):
    torch.manual_seed(0)
    model, x = Model().eval().bfloat16(), torch.randn(5, 37).bfloat16()
    module = from_exported_program(torch.export.export(model, (x,)))
    executable = autosched.build(module, target="cpu", records=FallbackContext())
    executable.save(tmp_path / "model.asx")
    wanted = [array_of(y, "y") for y in model(x)]
    for program in (executable, autosched.load(tmp_path / "model.asx")):
        for ours, theirs in zip(program(array_of(x, "x")), wanted, strict=True):
            assert np.asarray(ours).dtype == theirs.dtype
            rtol = 0.01 if theirs.dtype == "bfloat16" else 0
            np.testing.assert_allclose(np.asarray(ours, np.float64), theirs.astype(np.float64), rtol=rtol, atol=rtol)


def test_rounding_is_to_the_nearest_even():
    class Cast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.bfloat16)

    x = torch.tensor([1.0, 1.00390625, 1.01171875, -1.00390625, float("inf"), float("nan"), 3.4e38, 1e-40])
    module = from_exported_program(torch.export.export(Cast(), (x,)), unwrap_unit_return_tuple=True)
    result = autosched.build(module, target="cpu", records=FallbackContext())(x.numpy())
    np.testing.assert_array_equal(np.asarray(result, np.float32), x.bfloat16().float().numpy())
