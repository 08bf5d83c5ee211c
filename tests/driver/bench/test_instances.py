"""Instances that run beside the one that is timed."""

from __future__ import annotations

import threading
import time

import pytest

from autosched.driver.bench.instances import running
from autosched.driver.bench.programs import Program
from autosched.driver.bench.rounds import measure


def test_the_others_run_from_the_first_line_of_the_block_to_the_last() -> None:
    counts, seen = [0, 0], set()

    def run(i: int) -> None:
        counts[i] += 1
        seen.add(threading.get_ident())
        time.sleep(0.001)

    with running([lambda: run(0), lambda: run(1)]):
        assert min(counts) >= 1
        time.sleep(0.05)
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
