"""The budget of a tuning that was killed: the next run spends what is left of it, and no clock confuses it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from autosched.driver import TuneOptions
from autosched.driver.tune.session import COMPLETE, SPENT, begin_session
from autosched.records import Record, make_record
from autosched.records.record import host_id
from autosched.target import Target
from autosched.task import Measurement, Status, Task, Trial, Workload

TASK = Task(Workload("matmul", ("float32",), ((8, 8),)), Target("cpu"))
TRIALS = TuneOptions(trials=10)


def gone() -> str:
    """A session whose process has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"abc.{host_id()}.{process.pid}"


def records(session: str, n: int, *, spent_s: float = 5.0, at: float | None = None, **how: object) -> list[Record]:
    from autosched.space import Config

    found = []
    for i in range(n):
        trial = Trial(Config("t", {"i": i}), Measurement(Status.OK, (1e-3,), how={SPENT: spent_s, **how}))
        record = make_record(TASK, trial, session=session)
        found.append(dataclasses.replace(record, time=(at or time.time() - 60) + i))
    return found


def test_a_new_database_begins_a_session() -> None:
    session = begin_session([[]], TRIALS)
    assert session.n_trials == 0 and session.spent_s == 0 and session.name.endswith(f".{os.getpid()}")
    before = time.time()
    assert before - 1 < session.now() < time.time() + 1 and not session.clock_note


def test_a_killed_session_goes_on_with_the_rest() -> None:
    name = gone()
    found = begin_session([records(name, 4), records(name, 3, spent_s=7.0)], TRIALS)
    assert (found.name, found.n_trials, found.spent_s) == (name, 7, 7.0)
    assert 7 <= found.total_s < 8
    fresh = begin_session([records(name, 4)], dataclasses.replace(TRIALS, fresh=True))
    assert fresh.name != name and fresh.n_trials == 0


def test_comparisons_at_the_end_are_no_trials() -> None:
    name = gone()
    assert begin_session([records(name, 4), records(name, 2, interleaved=3)], TRIALS).n_trials == 4


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TuneOptions(), "without a budget there is no rest"),
        (TuneOptions(trials=4), "all of it was spent"),
        (TuneOptions(budget=5.5), "all of it was spent"),
    ],
)
def test_nothing_is_left(options: TuneOptions, why: str) -> None:
    assert begin_session([records(gone(), 4)], options).n_trials == 0, why


def test_a_tuning_that_ended_by_itself_is_over() -> None:
    name = gone()
    assert begin_session([[*records(name, 4), *records(name, 1, **{COMPLETE: True})]], TRIALS).n_trials == 0


def test_a_session_of_a_process_that_runs_is_its_own() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert begin_session([records(f"abc.{host_id()}.{other.pid}", 4)], TRIALS).n_trials == 0
        other.kill()
    assert begin_session([records("abc.another.17", 4)], TRIALS).n_trials == 0
    assert begin_session([records(f"abc.{host_id()}.{os.getpid()}", 4)], TRIALS).n_trials == 4  # an earlier call


def test_new_records_are_younger_than_all_others_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = time.time() + 3600
    session = begin_session([records("abc", 2, at=ahead)], TRIALS)
    assert session.now() > ahead + 1 and "set back" in session.clock_note and "60 min" in session.clock_note
    first = session.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)  # while it runs
    assert session.now() >= first and session.elapsed_s < 5
