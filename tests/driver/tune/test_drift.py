"""Drift of the machine: seen by defaults measured again, noted with trials, taken out of their times."""

from __future__ import annotations

import pytest

from autosched.driver.tune.drift import EVERY_S, Drift, corrected
from autosched.space import Config
from autosched.task import Measurement, Status, Trial


def trial(time_s: float, **how: object) -> Trial:
    return Trial(Config("t", {"n": 1}), Measurement(Status.OK, (time_s,), how=how))


def test_a_slower_machine_is_seen_and_taken_out() -> None:
    now = [0.0]
    drift = Drift(clock=lambda: now[0])
    assert not drift.is_due(0)  # nothing to compare with yet
    drift.see(0, 1e-3)
    assert drift.factor == 1.0 and not drift.is_due(0)
    now[0] += EVERY_S
    assert drift.is_due(0)
    drift.see(0, 1.1e-3)
    assert drift.factor == pytest.approx(1.1) and drift.worst == pytest.approx(0.1)
    stamped = drift.stamp(trial(2.2e-3))
    assert stamped.median_s == 2.2e-3 and stamped.measurement.how["drift"] == 1.1  # evidence is kept as it was
    assert corrected(stamped).median_s == pytest.approx(2e-3)
    drift.see(1, 3.3e-3)  # another task's first default: its mark is made without the drift
    drift.see(1, 3.0e-3)
    assert drift.factor == 1.0 and drift.worst == pytest.approx(0.1)


def test_noise_is_no_drift() -> None:
    drift = Drift()
    drift.see(0, 1e-3)
    drift.see(0, 1.004e-3)
    assert drift.factor == 1.0 and drift.stamp(trial(1.0)) == trial(1.0)


def test_an_earlier_run_s_default_is_measured_again_at_once() -> None:
    drift = Drift()
    drift.mark(0, 2e-3)
    assert drift.is_due(0)
    drift.see(0, 1e-3)
    assert drift.factor == pytest.approx(0.5) and not drift.is_due(0)


def test_trials_without_drift_and_failures_stay() -> None:
    failure = Trial(Config("t"), Measurement(Status.CRASH, how={"drift": 2.0}))
    assert corrected(failure) is failure
    plain = trial(1.0)
    assert corrected(plain) is plain and corrected(trial(1.0, drift="fast")).median_s == 1.0
