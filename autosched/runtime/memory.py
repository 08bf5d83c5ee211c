"""Memory for tensors: aligned to cache lines, large blocks to huge pages."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from autosched.errors import OutOfMemoryError

ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
LONE_BYTES = 4 * _HUGE_PAGE  # an array of so many has a block of its own
_LARGE = 1 << 30  # bytes from which the machine is asked what it has


def empty_aligned(shape: Sequence[int], dtype: str | np.dtype[np.generic]) -> np.ndarray:
    """Make a row-major array that begins at a multiple of 64 bytes; its contents are undefined."""
    kind = np.dtype(dtype)
    block, start = _block(math.prod(shape) * kind.itemsize)
    return np.ndarray(shape, kind, block, start)


def empty_block(size_bytes: int) -> np.ndarray:
    """Make a block for long use of at least `size_bytes` bytes, aligned to 64 bytes, or to a huge page if it fills one.

    A large block is of pages that nothing had before: they can be huge. What is freed and given again keeps the small
    pages that it has.
    """
    block, start = _block(size_bytes, _new_pages if size_bytes >= 2 * _HUGE_PAGE else _any_bytes)
    return block[start : start + max(size_bytes, 1)]


def _any_bytes(size_bytes: int) -> np.ndarray:
    return np.empty(size_bytes, np.uint8)


def _new_pages(size_bytes: int) -> np.ndarray:
    """Pages of the system, huge ones where it has them."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return _any_bytes(size_bytes)
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def _block(size_bytes: int, made: Callable[[int], np.ndarray] = _any_bytes) -> tuple[np.ndarray, int]:
    """A larger block, and where in it the aligned one begins.

    Raises OutOfMemoryError, for more than this machine has too: the system would give it, and end who writes to it.
    """
    alignment = _HUGE_PAGE if size_bytes >= 2 * _HUGE_PAGE else ALIGNMENT
    try:
        if size_bytes >= _LARGE and size_bytes > machine_bytes():
            raise MemoryError
        block = made(size_bytes + alignment)
    except (MemoryError, ValueError, OverflowError, OSError):  # by where it comes from
        raise OutOfMemoryError(f"{size_bytes} bytes of memory are needed, which this machine has not") from None
    return block, -address_of(block) % alignment


def machine_bytes() -> int:
    """The memory of this machine; larger than any where that is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def address_of(data: np.ndarray) -> int:
    """Where an array's first element lies; a third of the time of `data.ctypes.data`."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))  # type: ignore[arg-type]  # NumPy's stubs: no Buffer
    except (TypeError, ValueError):  # read-only, strided, empty, or of a type that is not Python's
        address: int = data.__array_interface__["data"][0]
        return address


def aligned_copy(data: np.ndarray) -> np.ndarray:
    """Give a row-major copy that begins at a multiple of 64 bytes."""
    result = empty_aligned(data.shape, data.dtype)
    np.copyto(result, data)
    return result


def lasting_arrays(forms: Sequence[tuple[Sequence[int], str]]) -> tuple[np.ndarray, ...]:
    """Arrays for long use of these shapes and dtypes; their contents are undefined.

    Those of up to some huge pages are together in one block, each larger one has its own. Weights that are read once a
    run come up to three times as fast from huge pages: the CPU's prefetchers go on at the ends of pages only where
    those are huge.
    """
    kinds = [np.dtype(dtype) for _, dtype in forms]
    sizes = [math.prod(shape) * kind.itemsize for (shape, _), kind in zip(forms, kinds, strict=True)]
    ends = [*accumulate(size + -size % ALIGNMENT if size < LONE_BYTES else 0 for size in sizes)]
    block = empty_block(ends[-1] if ends else 0)
    places = [
        (block, end - size - -size % ALIGNMENT) if size < LONE_BYTES else (empty_block(size), 0)
        for size, end in zip(sizes, ends, strict=True)
    ]
    return tuple(
        np.ndarray(shape, kind, own.data, start)
        for (shape, _), kind, (own, start) in zip(forms, kinds, places, strict=True)
    )


def gathered(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The arrays as `lasting_arrays` are, where that gives any of them a huge page; most of them may be so already.

    A block of which the arrays need a quarter less is not kept for them.
    """
    plain = {id(a): a for a in arrays if a.nbytes and not a.dtype.hasobject}
    blocks = {key: _block_of(a) for key, a in plain.items()}
    used: dict[int, int] = {}
    for key, array in plain.items():
        used[id(blocks[key])] = used.get(id(blocks[key]), 0) + array.nbytes
    left = {
        key: array
        for key, array in plain.items()
        if (block := blocks[key]) is None or 4 * used[id(block)] < 3 * (len(block) - _HUGE_PAGE)
    }
    if sum(a.nbytes + -a.nbytes % ALIGNMENT for a in left.values()) < 2 * _HUGE_PAGE:
        return tuple(arrays)
    moved = dict(zip(left, lasting_arrays([(a.shape, a.dtype.str) for a in left.values()]), strict=True))
    for key, place in moved.items():
        np.copyto(place, left[key])
    return tuple(moved.get(id(a), a) for a in arrays)


def _block_of(array: np.ndarray) -> mmap.mmap | None:
    """The pages of `empty_block` that an array lies in."""
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else None


def as_aligned(data: np.ndarray) -> np.ndarray:
    """Give the same values row-major at a multiple of 64 bytes; a copy only where the array is not so already.

    NumPy's own large arrays begin 16 bytes after a page: every other vector of them would cross a cache line.
    """
    if data.flags.c_contiguous and address_of(data) % ALIGNMENT == 0:
        return data
    return aligned_copy(data)


def is_readable(data: np.ndarray) -> bool:
    """Whether kernels can read an array where it lies: row-major, and each element where its type may lie.

    A quarter of a cache line more or less costs them less than a copy, even of matrices that they read many times.
    """
    flags = data.flags
    return flags.c_contiguous and flags.aligned


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype) -> str:
    """The name of a type; NumPy takes 2 us to put it together each time."""
    return str(dtype)
