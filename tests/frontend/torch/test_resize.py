"""Images resized by kernels that are as wide as what becomes one pixel, compared with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import autosched
from autosched.driver.build.torch_programs import LateProgram
from tests.spread import cover

SIZES = ({"size": (16, 20)}, {"size": (16, 80)}, {"size": (37, 7)}, {"size": (1, 90)}, {"scale_factor": 0.37},
         {"scale_factor": (0.5, 1.7)}, {"scale_factor": 0.3, "recompute_scale_factor": True})  # fmt: skip


class Resized(nn.Module):
    def __init__(self, **options: object):
        super().__init__()
        self.options = {"antialias": True, **options}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **self.options)


def check(model: nn.Module, x: torch.Tensor, rtol: float) -> None:
    executable = autosched.build(torch.export.export(model, (x,)), target="cpu", records=[], threads=1)
    assert not isinstance(executable, LateProgram)
    found, wanted = executable(x.numpy()), model(x)
    assert found.shape == tuple(wanted.shape) and found.dtype == str(wanted.dtype).removeprefix("torch.")
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=rtol)


@cover(("options", SIZES), ("align_corners", [False, True]), ("mode", ["bilinear", "bicubic"]))
def test_sizes(mode, align_corners, options):
    x = torch.rand(2, 3, 37, 53, generator=torch.Generator().manual_seed(0))
    check(Resized(mode=mode, align_corners=align_corners, **options), x, 1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_dtypes(mode):
    x = torch.rand(1, 2, 19, 11, generator=torch.Generator().manual_seed(1))
    model = Resized(mode=mode, size=(8, 23))
    check(model, x.double(), 1e-14)
    program = torch.export.export(model.requires_grad_(False), (x.half(),))
    found = autosched.build(program, target="cpu", threads=1)(x.half().numpy())
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, model(x.half().float()).numpy(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("antialias", [True, False])
def test_bytes_are_resized_by_pytorch(antialias):
    x = torch.randint(0, 256, (1, 3, 37, 53), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    model = Resized(mode="bilinear", size=(16, 20), antialias=antialias)
    executable = autosched.build(torch.export.export(model, (x,)), target="cpu")
    np.testing.assert_array_equal(executable(x.numpy()), model(x))


def test_embeddings_of_positions_are_resized_when_a_model_is_built():
    """As image transformers do for images of another size than they were trained on."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Parameter(torch.rand(1, 8, 9, 9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + F.interpolate(self.positions, (4, 6), mode="bicubic", antialias=True).flatten(2).mT

    model = Model().requires_grad_(False)
    executable = autosched.build(torch.export.export(model, (torch.zeros(2, 24, 8),)), target="cpu")
    assert len(executable.kernels) == 1
    x = torch.rand(2, 24, 8)
    np.testing.assert_allclose(executable(x.numpy()), model(x).numpy(), rtol=0, atol=1e-6)
