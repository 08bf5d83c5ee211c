"""Modules are timed in a worker process: what crashes, hangs or cannot be built there costs itself alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from autosched import te, tir
from autosched.driver.module_timer import ModuleTimer
from autosched.task import Status
from autosched.tir import PrimFunc


def plus_one() -> PrimFunc:
    a = te.placeholder((64,), name="A")
    return te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="B")])


@pytest.fixture(scope="module")
def timer() -> Iterator[ModuleTimer]:
    with ModuleTimer(60.0, number=3, repeat=3) as made:
        yield made


@pytest.mark.slow
def test_times_a_schedule(timer: ModuleTimer) -> None:
    sch = tir.Schedule(plus_one())
    sch.vectorize(sch.split(sch.get_loops("B")[0], [None, 8])[1])
    found = timer.time((sch.mod["main"], "llvm"))
    assert found.is_ok and len(found.times_s) == 3
    assert 0 < min(found.times_s) < 0.1


@pytest.mark.slow
def test_what_cannot_be_built_is_a_failed_candidate(timer: ModuleTimer) -> None:
    sch = tir.Schedule(plus_one())
    sch.bind(sch.get_loops("B")[0], "threadIdx.x")
    found = timer.time((sch.mod["main"].with_attr("tir.is_scheduled", True), "llvm"))
    assert found.status is Status.BUILD_ERROR and found.error


@pytest.mark.slow
def test_the_end_of_the_worker_costs_one_candidate(monkeypatch: pytest.MonkeyPatch, timer: ModuleTimer) -> None:
    assert timer.time((plus_one(), "llvm")).is_ok and timer.pool is not None
    (worker,) = timer.pool.workers
    start = worker.start

    def start_and_die(job: object) -> None:
        start(job)  # type: ignore[arg-type]
        os.kill(worker.pid, signal.SIGSEGV)

    monkeypatch.setattr(worker, "start", start_and_die)
    found = timer.time((plus_one(), "llvm"))
    assert found.is_ok or "SIGSEGV" in found.error  # a job that had not begun is done by the next worker
    (other,) = timer.pool.workers
    assert other is not worker
    assert len(timer.time((plus_one(), "llvm")).times_s) == 3


@pytest.mark.slow
def test_a_candidate_that_takes_too_long_is_ended() -> None:
    with ModuleTimer(1e-3) as timer:
        found = timer.time((plus_one(), "llvm"))
        assert found.status is Status.TIMEOUT and "not finished" in found.error
