"""Where values that live at different times lie in one arena."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from autosched.runtime.memory import ALIGNMENT


@dataclass(frozen=True)
class Lifetime:
    """A value of `size_bytes` that is written by step `first` and last read by step `last`."""

    size_bytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def align(size_bytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def plan_memory(values: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """(offset of each value, size of the arena): values alive at the same step do not overlap.

    Large values are placed first, each into the smallest gap that holds it: best fit.
    """
    offsets = [0] * len(values)
    placed: list[int] = []
    end = 0
    for i in sorted(range(len(values)), key=lambda i: (-values[i].size_bytes, values[i].first)):
        taken = sorted(
            (offsets[j], offsets[j] + align(values[j].size_bytes)) for j in placed if values[i].overlaps(values[j])
        )
        offsets[i] = _best_gap(taken, align(values[i].size_bytes))
        placed.append(i)
        end = max(end, offsets[i] + align(values[i].size_bytes))
    return tuple(offsets), end


def plan_by_maker(values: Sequence[Lifetime], makers: Sequence[Hashable]) -> tuple[tuple[int, ...], int]:
    """As `plan_memory`, but a value shares its place with others of its maker alone.

    A kernel divides its work among threads alike in each layer: each of them then writes lines that it wrote before.
    """
    offsets, end = [0] * len(values), 0
    places: dict[tuple[Hashable, int], dict[int, int]] = {}  # by maker and size: offset -> the last step it is taken
    for i in sorted(range(len(values)), key=lambda i: values[i].first):
        value, size = values[i], align(values[i].size_bytes)
        mine = places.setdefault((makers[i], size), {})
        offset = next((start for start, last in mine.items() if last < value.first), end)
        end = max(end, offset + size)
        offsets[i], mine[offset] = offset, value.last
    return tuple(offsets), end


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap of at least `size` bytes between the taken ranges, or their end."""
    best: tuple[int, int] | None = None
    position = 0
    for start, stop in taken:
        gap = start - position
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, position)
        position = max(position, stop)
    return best[1] if best else position
