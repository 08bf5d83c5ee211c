"""How much memory a worker may take, and arrays that notice when a kernel writes beside them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.memory import empty_block

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_ASSUMED_BYTES = 4 << 30
_GUARD = 256  # bytes on each side; a multiple of every vector's size
_NAN_BYTE, _INT_BYTE = 0xFF, 0xA5


def choose_memory_limit(wanted: int | None = None) -> int:
    """Give the bytes that a worker may take: what is wanted, else half of what the machine or container has."""
    return wanted if wanted is not None else machine_memory() // 2


def machine_memory() -> int:
    """Give the bytes of memory that the machine has and the container may use."""
    found = []
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        found.append(_ASSUMED_BYTES)
    for path in _CGROUP_LIMITS:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):  # "max", or no such file
            continue
    return min(found)


class GuardedArray:
    """An array between two guards of a known pattern, which is NaN for floats: a kernel that reads there is found too.

    Raises MemoryError if there is not so much memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str | np.dtype[np.generic], values: np.ndarray | None = None):
        know_dtype(str(dtype))
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self._pattern = _NAN_BYTE if kind.kind in "fc" else _INT_BYTE
        self._block = empty_block(size + 2 * _GUARD)[: size + 2 * _GUARD]
        self._guards = self._block[:_GUARD], self._block[_GUARD + size :]
        self.array = self._block[_GUARD : _GUARD + size].view(kind).reshape(shape)
        self._mend()
        if values is not None:
            self.array[...] = values
        self._sum = self._checksum()

    def poison(self) -> None:
        """Fill the array with NaN, or with a number that no result is likely to be."""
        self._block[:] = self._pattern

    def guards_hold(self) -> bool:
        """Tell whether the guards are as they were made; they are mended where not."""
        intact = all(bool((guard == self._pattern).all()) for guard in self._guards)
        if not intact:
            self._mend()
        return intact

    def is_unchanged(self) -> bool:
        """Tell whether the array and its guards are as they were made."""
        return self._checksum() == self._sum

    def _mend(self) -> None:
        for guard in self._guards:
            guard[:] = self._pattern

    def _checksum(self) -> int:
        words = self._block[: len(self._block) // 8 * 8].view(np.uint64)
        return int(words.sum(dtype=np.uint64)) + int(self._block[len(self._block) // 8 * 8 :].sum())
