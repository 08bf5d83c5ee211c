"""Shapes of which some sizes are ranges, and the few that stand for all of them.

A range is Python's own: `{"x": (range(1, 513), 784)}` are all shapes from 1x784 to 512x784.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from autosched.errors import UsageError

Ranges: TypeAlias = Mapping[str, tuple[int | range, ...]]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

MOST_SHAPES = 8


def has_ranges(shapes: Ranges | None) -> bool:
    """Whether any size is a range."""
    return any(isinstance(size, range) for shape in (shapes or {}).values() for size in shape)


def representatives(ranges: Ranges, also: Shapes | None = None) -> tuple[dict[str, tuple[int, ...]], ...]:
    """The shapes to tune for: the ends, and powers of two between them, so that no size is more than twice away.

    also  one shape more, which is wanted most
    Several ranges grow together, as they do where they are one size of the model. Raises UsageError for an empty range.
    """
    sizes = {dim: _sizes(dim) for shape in ranges.values() for dim in shape if isinstance(dim, range)}
    n = min(max((len(found) for found in sizes.values()), default=1), MOST_SHAPES)

    def at(dim: int | range, k: int) -> int:
        if not isinstance(dim, range):
            return dim
        found = sizes[dim]
        return found[round(k * (len(found) - 1) / (n - 1))] if n > 1 else found[0]

    points = [{name: tuple(at(dim, k) for dim in shape) for name, shape in ranges.items()} for k in range(n)]
    if also is not None and dict(also) not in points:
        points.append(dict(also))
    return tuple(sorted(points, key=lambda point: list(point.values())))


def _sizes(dim: range) -> tuple[int, ...]:
    """The ends of a range and every second power of two between them."""
    if not dim or dim.step != 1 or dim.start < 1:
        raise UsageError(f"sizes {dim} are no range of sizes", hint="write range(1, 513) for 1 to 512")
    low, high = dim.start, dim[-1]
    powers = (1 << k for k in range(0, high.bit_length(), 2))
    return tuple(sorted({low, high, *(size for size in powers if low < size < high)}))


def between(least: Shapes, most: Shapes) -> dict[str, tuple[int | range, ...]]:
    """The ranges from one shape of each input to another. Raises UsageError where they do not belong together."""
    if least.keys() != most.keys():
        raise UsageError("least and largest shapes are of different inputs", hint="give both for the same ones")
    found: dict[str, tuple[int | range, ...]] = {}
    for name, low in least.items():
        high = most[name]
        if len(low) != len(high) or any(a > b for a, b in zip(low, high, strict=True)):
            raise UsageError(f"shapes of '{name}' from {low} to {high} are no range")
        found[name] = tuple(a if a == b else range(a, b + 1) for a, b in zip(low, high, strict=True))
    return found


def lies_in(shape: Shapes, ranges: Ranges) -> bool:
    """Whether a shape of each input is one of those that ranges allow."""
    return shape.keys() == ranges.keys() and all(
        len(sizes) == len(ranges[name])
        and all(
            size in dim if isinstance(dim, range) else size == dim
            for size, dim in zip(sizes, ranges[name], strict=True)
        )
        for name, sizes in shape.items()
    )
