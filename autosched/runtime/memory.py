"""Memory for tensors: aligned to cache lines, large blocks to huge pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ALIGNMENT = 64
_HUGE_PAGE = 2 << 20


def empty_aligned(shape: Sequence[int], dtype: str | np.dtype[np.generic]) -> np.ndarray:
    """Make a row-major array that begins at a multiple of 64 bytes; its contents are undefined."""
    kind = np.dtype(dtype)
    size_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return empty_block(size_bytes)[:size_bytes].view(kind).reshape(tuple(shape))


def empty_block(size_bytes: int) -> np.ndarray:
    """Make a block of at least `size_bytes` bytes, aligned to 64 bytes, or to a huge page where it fills one.

    NumPy asks the kernel for huge pages for large blocks; the alignment lets the first one begin at once.
    """
    alignment = _HUGE_PAGE if size_bytes >= 2 * _HUGE_PAGE else ALIGNMENT
    block = np.empty(size_bytes + alignment, np.uint8)
    start = -block.ctypes.data % alignment
    return block[start : start + max(size_bytes, 1)]


def as_aligned(data: np.ndarray) -> np.ndarray:
    """Give the same values row-major at a multiple of 64 bytes; a copy only where the array is not so already.

    NumPy's own large arrays begin 16 bytes after a page: every other vector of them would cross a cache line.
    """
    if data.flags.c_contiguous and data.ctypes.data % ALIGNMENT == 0:
        return data
    aligned = empty_aligned(data.shape, data.dtype)
    np.copyto(aligned, data)
    return aligned
