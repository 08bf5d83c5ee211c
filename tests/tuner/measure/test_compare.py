from __future__ import annotations

import random

import pytest

from autosched.task import Measurement, Status
from autosched.tuner.measure.compare import failed, judge
from tests.tuner.measure.kernels import config

HOW = {"threads": 1}


def noisy(factor: float, seed: int, drift: list[float]) -> list[float]:
    rng = random.Random(seed)
    return [d * factor * (1 + abs(rng.gauss(0, 0.02))) for d in drift]


def test_a_common_drift_does_not_hide_a_difference() -> None:
    drift = [1e-3 * (1 + i / 20) for i in range(40)]  # the machine becomes three times slower meanwhile
    times = [noisy(1.0, 1, drift), noisy(0.96, 2, drift), noisy(1.0, 3, drift)]
    base, faster, same = judge([config("a"), config("b"), config("c")], times, times[0], [HOW] * 3)
    assert base.ratio == 1 and not base.is_faster
    assert faster.is_faster and faster.ratio == pytest.approx(0.96, abs=0.01)
    assert not same.is_faster and same.low <= 1 <= same.high
    assert faster.measurement.how == {"threads": 1, "interleaved": 3, "baseline_s": base.measurement.median_s}
    assert faster.trial.config == config("b") and faster.trial.median_s == faster.measurement.median_s


def test_a_failure_is_never_faster() -> None:
    found = failed(config("a"), Measurement(Status.CRASH, error="SIGSEGV"))
    assert not found.is_faster and found.ratio == float("inf")
