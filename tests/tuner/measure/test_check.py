from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy then knows bfloat16)
import numpy as np
import pytest

from autosched.task import Status
from autosched.tuner.measure.check import check_output

EXPECTED = np.linspace(-3, 4, 12).reshape(3, 4)


def changed(value: float, dtype: str = "float32") -> np.ndarray:
    found = EXPECTED.astype(dtype)
    found[1, 2] = value
    return found


def test_rounding_is_allowed() -> None:
    assert check_output("C", EXPECTED.astype("float32"), EXPECTED, 1e-6).status is Status.OK


@pytest.mark.parametrize(
    ("value", "status", "text"),
    [
        (EXPECTED[1, 2] + 0.01, Status.WRONG_RESULT, "C[1, 2] is 0.82"),
        (np.inf, Status.NON_FINITE, "C[1, 2] is inf"),
        (np.nan, Status.NON_FINITE, "C[1, 2] is nan"),
    ],
)
def test_a_wrong_value_is_named(value: float, status: Status, text: str) -> None:
    verdict = check_output("C", changed(value), EXPECTED, 1e-4)
    assert verdict.status is status and text in verdict.text and "1 of 12 values" in verdict.text


def test_the_error_is_measured_by_the_largest_value() -> None:
    assert check_output("C", changed(EXPECTED[1, 2] + 0.003), EXPECTED, 1e-3).status is Status.OK
    assert check_output("C", changed(EXPECTED[1, 2] + 0.005), EXPECTED, 1e-3).status is Status.WRONG_RESULT


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_memory_that_was_not_written_is_a_wrong_result(dtype: str) -> None:
    found = EXPECTED.astype(dtype)
    found.view(np.uint8)[2] = 0xFF
    verdict = check_output("C", found, EXPECTED, 1e-2)
    assert verdict.status is Status.WRONG_RESULT and "4 of 12" in verdict.text and "not written" in verdict.text


def test_values_that_should_not_be_finite() -> None:
    expected = EXPECTED.copy()
    expected[0, 0], expected[0, 1] = np.inf, np.nan
    found = expected.astype("float32")
    assert check_output("C", found, expected, 1e-6).status is Status.OK
    found[0, 0] = -np.inf
    assert "C[0, 0] is -inf where inf" in check_output("C", found, expected, 1e-6).text
    found[0, 0] = 7
    assert check_output("C", found, expected, 1e-6).status is Status.WRONG_RESULT


def test_integers_and_booleans_are_equal_or_wrong() -> None:
    whole = np.arange(6, dtype=np.int32)
    assert check_output("C", whole, whole.astype(np.int64), 0.5).status is Status.OK
    assert check_output("C", whole, np.array([0, 1, 2, 3, 4, 6]), 0.5).status is Status.WRONG_RESULT
    truth = np.array([True, False])
    assert check_output("C", truth, truth, 0).status is Status.OK
    poisoned = np.full(2, 0xA5, np.uint8).view(bool)
    assert check_output("C", poisoned, truth, 0).status is Status.WRONG_RESULT


def test_zeros_are_compared() -> None:
    zero = np.zeros(3)
    assert check_output("C", zero.astype("float32"), zero, 1e-5).status is Status.OK
    assert check_output("C", np.float32([0, 1e-20, 0]), zero, 1e-5).status is Status.WRONG_RESULT


def test_few_bytes_that_are_made_of_floats_may_be_the_neighbour() -> None:
    expected = np.arange(10_000).reshape(100, 100).astype("uint8")
    found = expected.copy()
    found[3, 4] += 1
    assert check_output("C", found, expected, 1.0).status is Status.OK
    assert check_output("C", found, expected, 0.0).status is Status.WRONG_RESULT, "sums of integers are exact"
    found[5, 6] -= 2
    assert "C[5, 6] is 248" in check_output("C", found, expected, 1.0).text
    found = expected.copy()
    found[:, 7] ^= 1
    assert "100 of 10000 values" in check_output("C", found, expected, 1.0).text, "one of 100 is no accident"


def test_bfloat16_is_compared_as_floats() -> None:
    expected = EXPECTED.astype("bfloat16")
    found = expected.copy()
    assert check_output("C", found, expected, 0.0).status is Status.OK
    found[1, 2] = expected[1, 2] * (1 + 2.0**-7)
    assert check_output("C", found, expected, 2.0**-7).status is Status.OK
    assert check_output("C", found, expected, 2.0**-12).status is Status.WRONG_RESULT
    found[1, 2] = np.nan
    assert check_output("C", found, expected, 1.0).status is Status.NON_FINITE
