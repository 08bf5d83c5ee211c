"""PyTorch's rules that take operators apart, and those that are written anew where they differ from its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autosched.frontend.torch.backward_rules import backward_rules
from autosched.frontend.torch.foreach_rules import foreach_rules

if TYPE_CHECKING:
    import torch

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


def all_rules() -> dict[object, Callable[..., object]]:
    """For each operator that can be taken apart how it is."""
    import torch
    from torch._decomp import decomposition_table

    aten = torch.ops.aten
    return {
        **decomposition_table, aten.grid_sampler_2d.default: _grid_sampler_2d,
        aten.grid_sampler_3d.default: _grid_sampler_3d, **backward_rules(), **foreach_rules(),
    }  # fmt: skip


def core_rules() -> dict[Any, Callable[..., object]]:
    """PyTorch's rules that bring programs down to its core operators, those of operators registered by now."""
    import torch

    return dict(_core_rules(len(torch._C._dispatch_get_all_op_names())))


@functools.lru_cache(1)
def _core_rules(n_operators: int) -> dict[Any, Callable[..., object]]:
    """Kept until there are more operators: PyTorch asks each of them, which takes as long as a small model's export."""
    import torch

    return dict(torch.export.default_decompositions().items())


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


def _grid_sampler_3d(
    a: torch.Tensor, grid: torch.Tensor, interpolation_mode: int = 0, padding_mode: int = 0, align_corners: bool = False
) -> torch.Tensor:
    """Volumes [N, C, D, H, W] at places [N, *wanted, 3]; positions that are not finite are outside."""
    import torch

    spatial, wanted = a.shape[2:], grid.shape[1:4]
    volume, places = a.flatten(2), torch.where(torch.isfinite(grid), grid, -3.0).flatten(1, 3)
    at = [
        _pixels(places[..., 2 - d], n, padding_mode, align_corners) for d, n in enumerate(spatial)
    ]  # by dimension of the volume: a place begins with the last one
    is_nearest = interpolation_mode == _NEAREST
    first = [x.round() if is_nearest else x.floor() for x in at]
    parts: list[torch.Tensor] = []
    for corner in range(1 if is_nearest else 8):
        index = torch.zeros_like(at[0], dtype=torch.int64)
        weight = torch.ones_like(at[0])
        for d, (x, low, n) in enumerate(zip(at, first, spatial)):
            step = corner >> d & 1
            place = low + step
            if not is_nearest:
                weight = weight * (x - low if step else 1 - (x - low))
            weight = torch.where((place >= 0) & (place < n), weight, 0.0)
            index = index * n + place.clamp(0, n - 1).to(torch.int64)
        taken = volume.gather(2, index.unsqueeze(1).expand(-1, a.shape[1], -1))
        parts.append(taken * weight.unsqueeze(1))
    return sum(parts[1:], parts[0]).unflatten(2, wanted)


def _pixels(x: torch.Tensor, size: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    """The position in pixels of a place from -1 to 1, inside of the image where nothing is outside."""
    found = (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2
    if padding_mode == _ZEROS:
        return found
    if padding_mode != _BORDER:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        distance = (found - low).abs() % (2 * max(span, 1))
        found = distance.minimum(2 * span - distance) + low
    return found.clamp(0, size - 1)
