"""The memory that copies of weights rotate over."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autosched.tuner.measure.workbench import ColdMemory, Copies


def read(copies: Copies, position: int, number: int, like: np.ndarray) -> np.ndarray:
    """A copy's values, from the address that a kernel is given."""
    start, step = copies.places[position]
    address = start + number * step
    blocks = [(block.ctypes.data, block.ctypes.data + block.nbytes) for block in copies.memory]
    assert any(low <= address and address + like.nbytes <= high for low, high in blocks)
    values = (ctypes.c_char * like.nbytes).from_address(address)
    return np.frombuffer(values, like.dtype).reshape(like.shape)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_share_memory_that_is_written_once(dtype: str) -> None:
    cold = ColdMemory()
    first = cold.copies({1: np.zeros((64, 64), dtype), 2: np.zeros(5, dtype)}, 7, at_least=1 << 20)
    marked = read(first, 1, 3, np.zeros((64, 64), dtype))
    assert np.isfinite(marked).all() and 0.5 < np.abs(marked.astype(np.float64)).mean() < 1.1
    assert read(first, 2, 6, np.zeros(5, dtype)).any()
    first.memory[0][:] = 0x11
    second = cold.copies({0: np.zeros((16, 8), dtype)}, 50, at_least=1 << 20)
    assert second.places[0][0] == first.places[1][0]
    assert (second.memory[0] == 0x11).all()


def test_memory_grows_where_it_has_to() -> None:
    cold = ColdMemory()
    cold.copies({0: np.zeros(64, np.float32)}, 2)
    larger = np.zeros(1 << 18, np.float32)
    copies = cold.copies({0: larger}, 9)
    assert read(copies, 0, 8, larger).any()


def test_other_types_are_copied() -> None:
    cold, index, weight = ColdMemory(), np.arange(12, dtype=np.int32).reshape(3, 4), np.ones(33, np.int8)
    for turn in range(2):
        copies = cold.copies({0: index + turn, 3: weight - turn}, 5)
        for number in range(5):
            assert (read(copies, 0, number, index) == index + turn).all()
            assert (read(copies, 3, number, weight) == weight - turn).all()


def test_a_kernel_goes_on_where_the_one_before_stopped() -> None:
    cold = ColdMemory()
    assert cold.next_of(7) == 0
    for n_sets in (2, 3, 7, 98, 4096):
        for number in range(n_sets):
            cold.stop_at(number, n_sets)
            assert cold.next_of(n_sets) == number
    cold.stop_at(10, 100)
    assert cold.next_of(3) == 1  # the first third was used just now
    cold.stop_at(99, 100)
    assert cold.next_of(3) == 0
