import numpy as np
import pytest

from autosched.errors import InvalidValueError
from autosched.runtime import BenchmarkResult, measure


class Machine:
    """A clock that a call moves by a fixed time."""

    def __init__(self, per_call_s):
        self.per_call_s, self.now, self.calls, self.sleeps = per_call_s, 0.0, [], []

    def run(self, number):
        self.calls.append(number)
        self.now += number * self.per_call_s

    def measure(self, **options):
        return measure(self.run, clock=lambda: self.now, sleep=self.sleeps.append, **options)


def test_one_warm_up_then_repeats():
    machine = Machine(0.002)
    result = machine.measure(number=3, repeat=4)
    assert machine.calls == [1, 3, 3, 3, 3]
    assert result.results == pytest.approx((0.002,) * 4)


def test_number_grows_and_stays_for_later_repeats():
    machine = Machine(0.001)
    result = machine.measure(number=1, repeat=3, min_repeat_ms=10)
    assert machine.calls == [1, 1, 11, 11, 11]  # int(max(10 / 1 + 1, 1 * 1.618))
    assert result.results == pytest.approx((0.001,) * 3)


def test_number_grows_by_the_golden_ratio_at_least():
    machine = Machine(0.0099)
    machine.measure(number=10, repeat=1, min_repeat_ms=100)
    assert machine.calls == [1, 10, 16]


def test_zero_times_end():
    machine = Machine(0.0)
    result = machine.measure(number=1, repeat=1, min_repeat_ms=1, limit_zero_time_iterations=5)
    assert len(machine.calls) == 1 + 5
    assert result.results == (0.0,)


def test_cooldown():
    machine = Machine(0.001)
    machine.measure(number=1, repeat=5, cooldown_interval_ms=20, repeats_to_cooldown=2)
    assert machine.sleeps == [0.02, 0.02, 0.02]  # after repeats 0, 2 and 4


def test_prepare_runs_before_each_measurement_outside_its_time():
    machine, prepared = Machine(0.001), []

    def prepare():
        prepared.append(len(machine.calls))
        machine.now += 1

    assert machine.measure(number=2, repeat=2, prepare=prepare).max == pytest.approx(0.001)
    assert prepared == [1, 2]


def test_wrong_counts():
    with pytest.raises(InvalidValueError, match="number=0"):
        measure(print, number=0)


def test_result_statistics_and_text():
    result = BenchmarkResult([0.001, 0.002, 0.006])
    assert (result.mean, result.median, result.min, result.max) == pytest.approx((0.003, 0.002, 0.001, 0.006))
    assert result.std == pytest.approx(np.std(result.results))
    lines = str(result).splitlines()
    assert lines[1].split() == ["mean", "(ms)", "median", "(ms)", "max", "(ms)", "min", "(ms)", "std", "(ms)"]
    assert lines[2].split() == ["3.0000", "2.0000", "6.0000", "1.0000", "2.1602"]
    assert "results=(0.001, 0.002, 0.006)" in repr(result)
