"""Interleaved measuring and the verdicts on it, with programs and times that are made up."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from autosched.driver.bench.programs import Program, start
from autosched.driver.bench.rounds import Timing, compare, measure, repeat, running
from autosched.tuner.measure.sampling import LEAST_ROUNDS


def timing(name: str, medians: list[float], noise: float = 0.0) -> Timing:
    return Timing(Program(name, 1, lambda: None), tuple(np.array([m, m + noise, m - noise]) for m in medians))


def sleeper(name: str, seconds: float, log: list[str]) -> Program:
    def run() -> None:
        log.append(name)
        time.sleep(seconds)

    return Program(name, 1, run)


def test_programs_take_turns_and_get_their_time() -> None:
    log: list[str] = []
    slow, fast = measure([sleeper("slow", 0.004, log), sleeper("fast", 0.001, log)], 0.15, warmup_s=0.01)
    assert len(slow.rounds) == len(fast.rounds) >= LEAST_ROUNDS
    assert slow.times_s.sum() >= 0.1
    assert slow.median_s > 0.003
    turns = sum(a != b for a, b in zip(log, log[1:]))
    assert turns > LEAST_ROUNDS
    assert slow.cpu_s < 0.5 * slow.median_s  # it sleeps


@pytest.mark.alone
def test_a_program_waits_until_the_threads_of_the_one_before_sleep() -> None:
    spinning = threading.Event()

    def spin() -> None:  # as other runtimes' threads do for a while after their work
        end = time.perf_counter() + 0.08
        while time.perf_counter() < end:
            sum(range(1000))
        spinning.clear()

    def leave_a_thread() -> None:
        spinning.set()
        threading.Thread(target=spin).start()

    met: list[bool] = []
    programs = [Program("spins", 2, leave_a_thread), Program("quiet", 2, lambda: met.append(spinning.is_set()))]
    measure(programs, 100.0, runs=LEAST_ROUNDS, warmup_s=0.0)
    assert len(met) >= LEAST_ROUNDS
    assert sum(met[-LEAST_ROUNDS:]) <= 1  # a tick of the system may hide one


def test_nothing_is_waited_for_where_all_threads_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autosched.driver.bench.rounds.SETTLE_S", 60.0)
    begin = time.perf_counter()
    ours = [Program(name, 2, lambda: time.sleep(0.001), sleeps=True) for name in "ab"]
    measure([*ours, Program("on one thread", 1, lambda: None)], 100.0, runs=LEAST_ROUNDS, warmup_s=0.0)
    assert time.perf_counter() - begin < 30


def test_a_number_of_runs_is_kept() -> None:
    log: list[str] = []
    (one,) = measure([sleeper("a", 0.0005, log)], 100.0, runs=17, warmup_s=0.001)
    assert len(one.times_s) == 17


def test_a_long_program_is_timed_from_its_first_run() -> None:
    log: list[str] = []
    assert len(repeat(sleeper("a", 0.03, log), 0.02)) == len(log) == 1


def test_verdict_names_the_faster_one_and_its_interval() -> None:
    clear = compare(timing("a", [1.0] * 9), timing("b", [1.3, 1.31, 1.32] * 3))
    assert clear.text == "a is 1.31 ± 0.01 times faster than b"
    other = compare(timing("a", [1.3, 1.31, 1.32] * 3), timing("b", [1.0] * 9))
    assert other.text == "b is 1.31 ± 0.01 times faster than a"


def test_verdict_says_how_large_a_difference_may_have_been_missed() -> None:
    medians = [1 + 0.008 * (-1) ** i for i in range(40)]
    text = compare(timing("a", [1.0] * 40), timing("b", medians)).text
    assert text == "a and b: no difference found at ± 0.8 %"


def test_drift_of_both_cancels_out() -> None:
    rising = [1 + 0.05 * i for i in range(20)]
    found = compare(timing("a", rising), timing("b", [1.02 * x for x in rising]))
    assert found.is_clear
    assert found.ratio == pytest.approx(1.02)
    assert timing("a", rising).drift > 0.3


def test_outliers_are_a_share() -> None:
    times = np.array([1.0] * 18 + [9.0] * 2)
    assert Timing(Program("a", 1, lambda: None), (times,)).outliers == pytest.approx(0.1)


def test_start_tells_load_from_first_run() -> None:
    def make() -> Program:
        time.sleep(0.01)
        return Program("a", 1, lambda: time.sleep(0.2))

    made = start(make)
    assert made.load_s is not None and made.first_run_s is not None
    assert 0.009 < made.load_s < made.first_run_s
    assert start(make, memory=False).memory_bytes is None


def test_the_others_run_from_the_first_line_of_the_block_to_the_last() -> None:
    counts, seen = [0, 0], set()

    def run(i: int) -> None:
        counts[i] += 1
        seen.add(threading.get_ident())
        time.sleep(0.001)

    with running([lambda: run(0), lambda: run(1)]):
        assert min(counts) >= 1
        while min(counts) <= 5:
            time.sleep(0.001)
    after = list(counts)
    assert min(after) > 5 and len(seen) == 2 and threading.get_ident() not in seen
    time.sleep(0.02)
    assert counts == after


def test_what_one_of_them_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"), running([fail]):
        pass


def test_a_program_has_company_in_its_turns_alone() -> None:
    beside: list[bool] = []
    active = threading.Event()

    def other() -> None:
        active.set()
        time.sleep(0.0005)
        active.clear()

    alone = Program("alone", 1, lambda: beside.append(active.is_set()))
    both = Program("both", 1, lambda: time.sleep(0.001)).beside([other])
    assert both.n_instances == 2
    timings = measure([both, alone], 10.0, runs=30, warmup_s=0.0)
    assert [len(t.times_s) for t in timings] == [30, 30] and not any(beside)
