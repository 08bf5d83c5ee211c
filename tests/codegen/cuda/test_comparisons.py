"""Comparing arrays on a device: every place counts, and what is not finite too. On the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.cuda.comparisons import KINDS, WORD, Comparisons
from autosched.runtime.cuda.driver import Driver, Memory
from autosched.target import Target
from tests.spread import cover

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

FLOATS = KINDS[1:]
INF, NAN = np.inf, np.nan


@pytest.fixture(scope="module")
def kernel() -> Any:
    from autosched.codegen.cuda.comparisons import compile_comparisons

    return compile_comparisons(Target("nvidia/nvidia-h200"))


@pytest.fixture
def comparisons(kernel: Any) -> Comparisons:
    from autosched.codegen.cuda.emulate import EmulatorDriver

    return Comparisons(EmulatorDriver(), kernel)


def placed(driver: Driver, values: np.ndarray) -> Memory:
    memory = driver.allocate(values.nbytes)
    driver.copy_in(memory.address, values)
    return memory


def n_wrong(at: Comparisons, dtype: str, found: Any, expected: Any, bound: float = 0.5, is_part: bool = False) -> int:
    know_dtype(dtype)
    x = placed(at.driver, np.asarray(found, np.float64).astype(dtype))
    y = placed(at.driver, np.asarray(expected, np.float64))
    return at.n_wrong(dtype, x.address, y.address, len(expected), bound, is_part=is_part)


def test_machine_code_is_as_plain_as_it_looks(kernel: Any) -> None:
    assert kernel.resources.registers <= 64 and kernel.images["sm_90a"].startswith(b"\x7fELF")
    assert "call" not in kernel.ptx and "local" not in kernel.ptx


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_wrong_value_is_found_wherever_it_is(comparisons: Comparisons, dtype: str) -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=300)
    right = expected + 0.4 * rng.choice([-1, 1], size=300)
    assert n_wrong(comparisons, dtype, right, expected) == 0
    for place in (0, 1, 31, 255, 256, 299):
        found = right.copy()
        found[place] = expected[place] + 0.75
        assert n_wrong(comparisons, dtype, found, expected) == 1


@cover(
    ("dtype", FLOATS),
    (
        "found, expected, is_right",
        [
            (NAN, 1.0, False), (INF, 1.0, False), (-INF, 1.0, False), (1.0, INF, False), (INF, INF, True),
            (-INF, INF, False), (-INF, -INF, True), (NAN, INF, False), (NAN, NAN, True), (1.0, NAN, False),
            (INF, NAN, False), (0.0, -0.0, True), (6e-8, 0.0, True),
        ],
    ),
    together=1,
)  # fmt: skip
def test_what_is_not_finite_has_to_be_the_same(
    comparisons: Comparisons, dtype: str, found: float, expected: float, is_right: bool
) -> None:
    assert n_wrong(comparisons, dtype, [2.0, found], [2.0, expected]) == (not is_right)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_not_known_has_to_be_finite(comparisons: Comparisons, dtype: str) -> None:
    found, expected = [7.0, NAN, INF, -INF, 3.0], [NAN, NAN, NAN, NAN, 3.0]
    assert n_wrong(comparisons, dtype, found, expected, is_part=True) == 3
    assert n_wrong(comparisons, dtype, found, [*expected[:4], 4.0], is_part=True) == 4


def test_words_differ_by_a_bit(comparisons: Comparisons) -> None:
    words = np.random.default_rng(1).integers(0, 1 << 32, 70_000, np.uint32)
    other = words.copy()
    x, y = placed(comparisons.driver, words), placed(comparisons.driver, other)
    assert comparisons.n_different(x.address, y.address, len(words)) == 0
    for place in (0, 65_535, 65_536, 69_999):
        other[place] ^= np.uint32(1 << 31)
    comparisons.driver.copy_in(y.address, other)
    assert comparisons.n_different(x.address, y.address, len(words)) == 4
    assert comparisons.n_different(x.address, y.address, 65_536) == 2


def test_sizes_that_are_counted() -> None:
    assert KINDS[0] == WORD and [Comparisons.can_count(n) for n in (0, 1, 1 << 30)] == [False, True, False]
