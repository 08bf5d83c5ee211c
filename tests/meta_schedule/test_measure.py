"""Schedules of a user's own are measured in a worker process: what dies there is one candidate."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from autosched import te, tir
from autosched.meta_schedule.database import FAILED_S
from autosched.meta_schedule.measure import ScheduleTimer
from autosched.target import Target
from autosched.tir import PrimFunc


def plus_one() -> PrimFunc:
    a = te.placeholder((64,), name="A")
    return te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="B")])


@pytest.fixture(scope="module")
def timer() -> Iterator[ScheduleTimer]:
    with ScheduleTimer() as made:
        yield made


@pytest.mark.slow
def test_times_a_schedule(timer: ScheduleTimer) -> None:
    sch = tir.Schedule(plus_one())
    sch.vectorize(sch.split(sch.get_loops("B")[0], [None, 8])[1])
    seconds = timer.seconds(sch.mod["main"], Target("llvm"))
    assert len(seconds) == 3
    assert 0 < min(seconds) < 0.1
    assert timer.error == ""


@pytest.mark.slow
def test_what_cannot_be_built_is_a_failed_candidate(timer: ScheduleTimer) -> None:
    sch = tir.Schedule(plus_one())
    sch.bind(sch.get_loops("B")[0], "threadIdx.x")
    broken = sch.mod["main"].with_attr("tir.is_scheduled", True)
    assert timer.seconds(broken, Target("cuda")) == [FAILED_S]
    assert timer.error


@pytest.mark.slow
def test_the_end_of_the_worker_costs_one_candidate(monkeypatch: pytest.MonkeyPatch, timer: ScheduleTimer) -> None:
    func, target = plus_one(), Target("llvm")
    worker = timer._worker._ready()
    start = worker.start

    def start_and_die(job: object) -> None:
        start(job)  # type: ignore[arg-type]
        os.kill(worker.pid, signal.SIGSEGV)

    monkeypatch.setattr(worker, "start", start_and_die)
    assert list(timer.seconds(func, target)) == [FAILED_S]
    assert "SIGSEGV" in timer.error
    assert len(timer.seconds(func, target)) == 3


@pytest.mark.slow
def test_a_candidate_that_takes_too_long_is_ended() -> None:
    with ScheduleTimer(timeout_s=0.0) as timer:
        assert timer.seconds(plus_one(), Target("llvm")) == [FAILED_S]
        assert "no result" in timer.error
