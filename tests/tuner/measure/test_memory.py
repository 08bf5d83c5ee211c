from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy then knows bfloat16)
import numpy as np
import pytest

from autosched.tuner.measure.memory import GuardedArray, choose_memory_limit, machine_memory


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 5), "float32"), ((7,), "int8"), ((2, 2), "float64"), ((3,), "bool"), ((5,), "bfloat16")]
)
def test_arrays_are_aligned_and_hold_their_values(shape: tuple[int, ...], dtype: str) -> None:
    values = np.ones(shape, dtype)
    array = GuardedArray(shape, dtype, values)
    assert array.array.ctypes.data % 64 == 0 and array.array.dtype == dtype
    assert np.array_equal(array.array, values) and array.guards_hold() and array.is_unchanged()


def test_writing_beside_is_noticed_once() -> None:
    array = GuardedArray((10,), "float32")
    beside = np.lib.stride_tricks.as_strided(array.array, (11,))
    beside[10] = 1
    assert not array.guards_hold()
    assert array.guards_hold(), "the guards have been mended"
    before = np.lib.stride_tricks.as_strided(array._block[252:].view(np.float32), (1,))
    before[0] = 0
    assert not array.guards_hold()


def test_writing_into_it_is_noticed() -> None:
    array = GuardedArray((10,), "float32", np.zeros(10))
    array.array[3] = 1e-30
    assert not array.is_unchanged()


def test_poison_is_nan() -> None:
    array = GuardedArray((10,), "float32", np.zeros(10))
    array.poison()
    assert np.isnan(array.array).all() and array.guards_hold()
    whole = GuardedArray((4,), "int32")
    whole.poison()
    assert (whole.array == -1515870811).all()


def test_an_array_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MemoryError):
        GuardedArray((1 << 60,), "uint8")


def test_limits() -> None:
    assert choose_memory_limit(123) == 123
    assert choose_memory_limit() == machine_memory() // 2 > 1 << 28
