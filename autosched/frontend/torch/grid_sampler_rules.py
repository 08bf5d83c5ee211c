"""Images and volumes read at places of a grid, and the gradients of that, as operators that have converters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_CUBIC = -0.75  # of the convolution of Keys 1981, as PyTorch has it
_ZEROS, _BORDER = 0, 1


def grid_sampler_rules() -> dict[object, Callable[..., object]]:
    """For each such operator how it is taken apart."""
    import torch

    aten = torch.ops.aten
    return {
        aten.grid_sampler_2d.default: _grid_sampler_2d,
        aten.grid_sampler_3d.default: _grid_sampler_3d,
        aten.grid_sampler_2d_backward.default: functools.partial(_backward, 2),
        aten.grid_sampler_3d_backward.default: functools.partial(_backward, 3),
    }


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
    parts: list[torch.Tensor] = []
    for index, inside, near in _corners(at, spatial, interpolation_mode == _NEAREST):
        weight = torch.where(inside, functools.reduce(torch.mul, near, torch.ones_like(at[0])), 0.0)
        taken = volume.gather(2, index.unsqueeze(1).expand(-1, a.shape[1], -1))
        parts.append(taken * weight.unsqueeze(1))
    return sum(parts[1:], parts[0]).unflatten(2, wanted)


def _corners(
    at: Sequence[torch.Tensor], sizes: Sequence[int], is_nearest: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]]:
    """The elements around positions in pixels: (index in the flat image, whether it exists, nearness by dimension)."""
    import torch

    for corner in range(1 if is_nearest else 1 << len(at)):
        index = torch.zeros_like(at[0], dtype=torch.int64)
        inside, near = torch.ones_like(at[0], dtype=torch.bool), list[torch.Tensor]()
        for d, (x, n) in enumerate(zip(at, sizes)):
            place = x.round() if is_nearest else x.floor() + (corner >> d & 1)
            near += [] if is_nearest else [1 - (x - place).abs()]
            inside = inside & (place >= 0) & (place < n)
            index = index * n + place.clamp(0, n - 1).to(torch.int64)
        yield index, inside, near


def _backward(
    dims: int, grad_output: torch.Tensor, input: torch.Tensor, grid: torch.Tensor, interpolation_mode: int,
    padding_mode: int, align_corners: bool, output_mask: Sequence[bool],
) -> object:  # fmt: skip
    """Of the image, where elements get their weights' part, and of the grid, by how weights change with places."""
    import torch

    is_nearest = interpolation_mode == _NEAREST
    if interpolation_mode == _BICUBIC:
        return _cubic_backward(grad_output, input, grid, padding_mode, align_corners, output_mask)
    spatial, image, grad = input.shape[2:], input.flatten(2), grad_output.flatten(2)
    places = torch.where(torch.isfinite(grid), grid, -3.0).flatten(1, -2)
    axes = [places[..., dims - 1 - d] for d in range(dims)]
    at = [_pixels(x, n, padding_mode, align_corners) for x, n in zip(axes, spatial)]
    of_image, of_places = torch.zeros_like(image), [torch.zeros_like(x) for x in axes]
    for number, (index, inside, near) in enumerate(_corners(at, spatial, is_nearest)):
        index = index.unsqueeze(1).expand(-1, input.shape[1], -1)
        weight = torch.where(inside, functools.reduce(torch.mul, near, torch.ones_like(at[0])), 0.0)
        if output_mask[0]:
            of_image = of_image.scatter_add(2, index, grad * weight.unsqueeze(1))
        if output_mask[1] and not is_nearest:
            moved = torch.where(inside, (image.gather(2, index) * grad).sum(1), 0.0)
            for d in range(dims):
                others = functools.reduce(torch.mul, near[:d] + near[d + 1 :], moved)
                of_places[d] = of_places[d] + (others if number >> d & 1 else -others)
    rates = [_rate(x, n, padding_mode, align_corners) for x, n in zip(axes, spatial)]
    of_grid = torch.stack([x * rate for x, rate in zip(of_places[::-1], rates[::-1])], -1).view(grid.shape)
    return of_image.view(input.shape) if output_mask[0] else None, of_grid if output_mask[1] else None


def _cubic_backward(
    grad_output: torch.Tensor, input: torch.Tensor, grid: torch.Tensor, padding_mode: int, align_corners: bool,
    output_mask: Sequence[bool],
) -> object:  # fmt: skip
    """The same for images whose 4 x 4 elements around a place are weighted, each moved into the image by itself."""
    import torch

    image, grad = input.flatten(2), grad_output.flatten(2)
    places = torch.where(torch.isfinite(grid), grid, -3.0).flatten(1, 2)
    sizes = input.shape[2:]
    at = [_pixels(places[..., 1 - d], n, _ZEROS, align_corners) for d, n in enumerate(sizes)]
    weights = [_cubic_weights(x - x.floor()) for x in at]
    of_image, of_places = torch.zeros_like(image), [torch.zeros_like(x) for x in at]
    for number in range(16):
        taps = number // 4, number % 4
        index, inside = torch.zeros_like(at[0], dtype=torch.int64), torch.ones_like(at[0], dtype=torch.bool)
        for x, n, tap in zip(at, sizes, taps):
            place = _inside(x.floor() + (tap - 1), n, padding_mode, align_corners)
            inside = inside & (place >= 0) & (place < n)
            index = index * n + place.clamp(0, n - 1).to(torch.int64)
        index = index.unsqueeze(1).expand(-1, input.shape[1], -1)
        (y, of_y), (x, of_x) = (w[tap] for w, tap in zip(weights, taps))
        if output_mask[0]:
            of_image = of_image.scatter_add(2, index, grad * torch.where(inside, y * x, 0.0).unsqueeze(1))
        if output_mask[1]:
            moved = torch.where(inside, (image.gather(2, index) * grad).sum(1), 0.0)
            of_places = [of_places[0] + moved * of_y * x, of_places[1] + moved * y * of_x]
    rates = [(n - 1) / 2 if align_corners else n / 2 for n in sizes]
    of_grid = torch.stack([x * rate for x, rate in zip(of_places[::-1], rates[::-1])], -1).view(grid.shape)
    return of_image.view(input.shape) if output_mask[0] else None, of_grid if output_mask[1] else None


def _cubic_weights(t: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of the four elements around a position `t` behind the second one: (weight, how it changes with `t`)."""
    a = _CUBIC

    def near(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ((a + 2) * x - (a + 3)) * x * x + 1, (3 * (a + 2) * x - 2 * (a + 3)) * x

    def far(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a * (((x - 5) * x + 8) * x - 4), a * ((3 * x - 10) * x + 8)

    behind = [near(1 - t), far(2 - t)]  # whose distances fall as the position grows
    return [far(t + 1), near(t), *((weight, -slope) for weight, slope in behind)]


def _rate(x: torch.Tensor, size: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    """How the position in pixels changes with the place; not at all where it is moved to the border."""
    import torch

    factor = (size - 1) / 2 if align_corners else size / 2
    found = (x + 1) * factor if align_corners else ((x + 1) * size - 1) / 2
    rate = torch.full_like(x, factor)
    if padding_mode == _ZEROS:
        return rate
    if padding_mode != _BORDER:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        turns = ((found - low).abs() / max(span, 1)).floor()
        is_turned = (turns % 2 == 1) != (found < low)
        rate = torch.where(is_turned, -rate, rate)
        found = _reflected(found, low, span)
    return torch.where((found > 0) & (found < size - 1), rate, 0.0)


def _pixels(x: torch.Tensor, size: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    """The position in pixels of a place from -1 to 1, inside of the image where nothing is outside."""
    found = (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2
    return _inside(found, size, padding_mode, align_corners)


def _inside(x: torch.Tensor, size: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    """Positions in pixels, moved into the image where nothing is outside."""
    if padding_mode == _ZEROS:
        return x
    if padding_mode != _BORDER:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        x = _reflected(x, low, span)
    return x.clamp(0, size - 1)


def _reflected(x: torch.Tensor, low: float, span: float) -> torch.Tensor:
    """Positions between `low` and `low + span`."""
    distance = (x - low).abs() % (2 * max(span, 1))
    return distance.minimum(2 * span - distance) + low
