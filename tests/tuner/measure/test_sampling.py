from __future__ import annotations

import random
import statistics
from types import SimpleNamespace

import pytest

from autosched.task import Measurement, Status
from autosched.tuner.measure import sampling
from autosched.tuner.measure.base import Compared, MeasureOptions
from autosched.tuner.measure.sampling import (
    LEAST_ROUNDS,
    Sample,
    calls_per_repeat,
    judge,
    median_interval,
    sample,
    take_turns,
)
from tests.tuner.measure.kernels import config

HOW = {"threads": 1}


class Machine:
    """A clock that advances by each call's time."""

    def __init__(self, call_s: float, noise: float = 0.0):
        self.call_s, self.noise, self.now, self.calls = call_s, noise, 0.0, 0
        self._rng = random.Random(0)

    def run(self, number: int) -> None:
        self.calls += number
        self.now += number * self.call_s * (1 + abs(self._rng.gauss(0, self.noise)))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> type[Machine]:
    def make(*args: float) -> Machine:
        made = Machine(*args)
        monkeypatch.setattr(sampling, "time", SimpleNamespace(perf_counter=lambda: made.now))
        return made

    return make  # type: ignore[return-value]


@pytest.mark.parametrize("call_s", [1e-7, 3e-6, 1e-4, 1.4e-3])
def test_a_repeat_is_long_enough(machine: type[Machine], call_s: float) -> None:
    number = calls_per_repeat(machine(call_s).run, 1.5e-3)
    assert 1.2e-3 <= number * call_s <= 2.2e-3


def test_long_kernels_are_called_once(machine: type[Machine]) -> None:
    assert calls_per_repeat(machine(0.2).run, 1.5e-3) == 1


def test_a_steady_kernel_needs_the_fewest_repeats(machine: type[Machine]) -> None:
    found = sample(machine(1e-5).run, MeasureOptions())
    assert len(found.times_s) == MeasureOptions().min_repeats and not found.was_cut
    assert statistics.median(found.times_s) == pytest.approx(1e-5)


def test_noise_needs_more_repeats_and_ends_with_the_budget(machine: type[Machine]) -> None:
    some = sample(machine(1e-5, 0.04).run, MeasureOptions())
    assert len(some.times_s) > MeasureOptions().min_repeats and some.interval <= MeasureOptions().interval
    noisy = machine(1e-5, 0.5)
    found = sample(noisy.run, MeasureOptions())
    budget_s = MeasureOptions().budget_s
    assert found.interval > MeasureOptions().interval and budget_s < noisy.now < 1.5 * budget_s


def test_what_is_worse_than_the_best_is_cut_short(machine: type[Machine]) -> None:
    assert sample(machine(1e-5).run, MeasureOptions(), best_s=8e-6).was_cut
    assert len(sample(machine(1e-5).run, MeasureOptions(), best_s=8e-6).times_s) == 3
    assert len(sample(machine(1e-5).run, MeasureOptions(), best_s=9e-6).times_s) == 6
    assert not sample(machine(1e-5).run, MeasureOptions(), best_s=9.8e-6).was_cut


def test_a_slow_kernel_is_timed_three_times(machine: type[Machine]) -> None:
    assert len(sample(machine(0.5).run, MeasureOptions()).times_s) == 3


def test_the_interval_holds_the_median_19_times_of_20() -> None:
    rng = random.Random(1)
    for n in (LEAST_ROUNDS, 8, 11, 20, 60, 200):
        found = [median_interval([rng.expovariate(1.0) for _ in range(n)]) for _ in range(4000)]
        assert sum(low <= 0.6931 <= high for low, high in found) / len(found) > 0.94, n
    assert median_interval(range(6)) == (0, 5)
    assert median_interval(range(9)) == (1, 7)
    assert median_interval([3.0]) == (3, 3)


def test_all_take_turns_in_a_new_order_each_round() -> None:
    log: list[int] = []
    take_turns(4, log.append, lambda: len(log) == 80, random.Random(0))
    rounds = [tuple(log[i : i + 4]) for i in range(0, 80, 4)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in rounds) and len(set(rounds)) > 10


def test_an_interval_is_half_its_width() -> None:
    assert Sample((1.0, 1.1, 0.9), 1, False).interval == pytest.approx(0.1)


def test_one_long_repeat_that_is_far_too_slow_is_enough(machine: type[Machine]) -> None:
    long = machine(0.3)
    assert len(sample(long.run, MeasureOptions(), 0.1).times_s) == 1 and long.calls == 2  # one to see how long it takes
    assert len(sample(machine(0.2).run, MeasureOptions(), 0.1).times_s) == 3
    assert len(sample(machine(3e-4).run, MeasureOptions(), 1e-4).times_s) == 3  # a moment's disturbance can do that


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


def test_fewer_rounds_are_compared_with_the_same_of_the_baseline() -> None:
    base, short = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0], [1.2] * 6
    _, found = judge([config("a"), config("b")], [base, short], base, [HOW] * 2)
    assert found.ratio == found.low == found.high == 1.2


def test_a_failure_is_never_faster() -> None:
    found = Compared(config("a"), Measurement(Status.CRASH, error="SIGSEGV"))
    assert not found.is_faster and found.ratio == float("inf")
