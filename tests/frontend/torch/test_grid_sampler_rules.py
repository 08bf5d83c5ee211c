"""Gradients of images read at places of a grid, compared with PyTorch's."""

import itertools

import pytest
import torch

from autosched.frontend.torch.grid_sampler_rules import grid_sampler_rules


@pytest.mark.parametrize(
    ("dims", "mode", "padding"), [*itertools.product((2, 3), (0, 1), (0, 1, 2)), *((2, 2, p) for p in (0, 1, 2))]
)
def test_gradients(dims, mode, padding):
    torch.manual_seed(0)
    x, grid = torch.randn(2, 3, *(5, 6, 4)[:dims]), torch.rand(2, *(3, 4, 5)[:dims], dims) * 3.4 - 1.7
    forward, backward = (getattr(torch.ops.aten, f"grid_sampler_{dims}d{end}").default for end in ("", "_backward"))
    for align_corners in (False, True):
        given = x, grid, mode, padding, align_corners
        grad = torch.randn_like(forward(*given))
        ours, theirs = (f(grad, *given, [True, True]) for f in (grid_sampler_rules()[backward], backward))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
