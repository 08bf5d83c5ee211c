from pathlib import Path

import numpy as np
import pytest

from autosched.errors import OutOfMemoryError
from autosched.runtime.memory import (
    ALIGNMENT,
    as_aligned,
    empty_aligned,
    empty_block,
    gathered,
    lasting_arrays,
    machine_bytes,
)

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1 << 20, 2)])
def test_arrays_begin_at_cache_lines(shape):
    made = empty_aligned(shape, "float32")
    assert (made.shape, made.dtype) == (shape, np.float32)
    assert made.ctypes.data % 64 == 0
    assert made.flags.writeable


def test_large_blocks_begin_at_huge_pages():
    assert empty_block(5 << 20).ctypes.data % (2 << 20) == 0
    assert empty_block(0).ctypes.data % 64 == 0


def test_small_arrays_share_huge_pages():
    rng = np.random.default_rng(0)
    shapes = [(700, 1000), (3,), (), (0, 4), (900, 1000), (8, 512, 1024)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays += [arrays[0], np.arange(5, dtype=np.int8), np.array(["a"], object)]
    together = gathered(arrays)
    for a, b in zip(arrays, together, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_array_equal(a, b)
    moved = [b for a, b in zip(arrays, together, strict=True) if a is not b]
    assert len(moved) == 7 and together[6] is together[0]
    large = together[5]  # has a block of its own, once
    assert large.ctypes.data % (2 << 20) == 0 and gathered([large])[0] is large
    places = [b.ctypes.data for b in moved if b is not large]
    assert min(places) % (2 << 20) == 0 and all(p % ALIGNMENT == 0 for p in places)
    assert max(places) - min(places) < sum(b.nbytes for b in moved if b is not large)
    assert gathered(arrays[1:4]) == tuple(arrays[1:4])  # too few bytes for a huge page
    again = gathered([*together, *arrays[1:4]])  # nothing is moved twice
    assert all(a is b for a, b in zip(again, together, strict=False))


def test_lasting_arrays_share_a_block() -> None:
    forms = [
        ((700, 1000), "float32"),
        ((3,), "int8"),
        ((0, 4), "float32"),
        ((8, 512, 1024), "float32"),
        ((900,), "<i2"),
    ]
    made = lasting_arrays(forms)
    for (shape, dtype), array in zip(forms, made, strict=True):
        array[...] = 7
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype)) and array.ctypes.data % ALIGNMENT == 0
    assert all((array == 7).all() for array in made)
    assert lasting_arrays([]) == ()


def test_a_block_is_not_kept_for_a_small_part_of_it() -> None:
    forms = [((1 << 20,), "float32")] * 8
    block = lasting_arrays(forms)
    for n, array in enumerate(block):
        array[:] = n
    kept = gathered(block[:7])
    assert all(a is b for a, b in zip(kept, block, strict=False))
    moved = gathered(block[:2])
    assert not any(np.shares_memory(a, b) for a, b in zip(moved, block, strict=False))
    for a, b in zip(moved, block, strict=False):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(), reason="no huge pages here")
def test_a_large_block_is_of_huge_pages_where_freed_memory_had_small_ones() -> None:
    """The C library gives freed memory again, which keeps the pages that it was filled with."""
    whole = np.empty(31 << 20, np.uint8)  # from now on it takes blocks of this size from its heap
    del whole
    filled = [np.ones(3 << 20, np.uint8) for _ in range(16)]
    del filled
    for size in (5 << 20, 9 << 20):
        block = empty_block(size)
        block[:] = 1
        assert huge_bytes(block.ctypes.data) >= size // (2 << 20) * (2 << 20)


def huge_bytes(address: int) -> int:
    """Those in huge pages of the mapping that holds an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            low, high = (int(part, 16) for part in first.split("-"))
            inside = low <= address < high
        elif inside and first == "AnonHugePages:":
            return int(line.split()[1]) * 1024
    return 0


def test_more_than_the_machine_has_is_refused():
    """The system would give it, and end the process that fills it."""
    with pytest.raises(OutOfMemoryError, match=rf"{machine_bytes() + 1} bytes of memory are needed"):
        empty_block(machine_bytes() + 1)
    with pytest.raises(MemoryError):
        empty_aligned((1 << 40, 1 << 40), "float32")


def test_only_what_is_not_aligned_is_copied():
    made = empty_aligned((4, 8), "float32")
    made[:] = np.arange(32).reshape(4, 8)
    assert as_aligned(made) is made
    for other in (made.T, made.reshape(-1)[1:]):
        copy = as_aligned(other)
        np.testing.assert_array_equal(copy, other)
        assert copy.ctypes.data % 64 == 0
        assert copy.flags.c_contiguous
