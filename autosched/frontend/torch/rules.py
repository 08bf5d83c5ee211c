"""PyTorch's rules that take operators apart, and those that are written anew where they differ from its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


def all_rules() -> dict[object, Callable[..., object]]:
    """For each operator that can be taken apart how it is."""
    import torch
    from torch._decomp import decomposition_table

    return {**decomposition_table, torch.ops.aten.grid_sampler_2d.default: _grid_sampler_2d}


def _grid_sampler_2d(
    a: torch.Tensor, grid: torch.Tensor, interpolation_mode: int = 0, padding_mode: int = 0, align_corners: bool = False
) -> torch.Tensor:
    """As PyTorch's rule, whose results at positions that are not finite are zeros.

    Its kernels take such a position for the first row or column where images are reflected (where there is a border,
    NaN alone), and give NaN where nothing is outside and elements are weighted.
    """
    import torch
    from torch._decomp import decomposition_table

    rule = decomposition_table[torch.ops.aten.grid_sampler_2d.default]
    is_lost = torch.isnan(grid) if padding_mode == _BORDER else ~torch.isfinite(grid)
    if interpolation_mode in (_BILINEAR, _NEAREST) and padding_mode != _ZEROS:
        grid = torch.where(is_lost, -1.0, grid)
    found: torch.Tensor = rule(a, grid, interpolation_mode, padding_mode, align_corners)
    if interpolation_mode == _BILINEAR and padding_mode == _ZEROS:
        found = torch.where(is_lost.any(-1).unsqueeze(1), float("nan"), found)
    return found
