"""One worker for one job after the other: a crash or a hang costs that job, and a new worker does the next."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from autosched.task import Status
from autosched.tuner.measure.single import SingleWorker


class Fragile:
    """A role that does what it is told: die, sleep, fail or answer."""

    failure = Status.RUN_ERROR

    def learn(self, key: str, value: object) -> None: ...

    def do(self, message: object) -> object:
        if message == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if message == "sleep":
            time.sleep(60)
        if message == "fail":
            raise ValueError("told to")
        return message, os.getpid()


@pytest.fixture
def worker() -> Iterator[SingleWorker]:
    made = SingleWorker(f"{__name__}:Fragile", 20.0)
    yield made
    made.close()


def test_a_job_costs_itself_alone(worker: SingleWorker) -> None:
    answer, pid = worker.do("first").value
    assert answer == "first" and pid != os.getpid()
    failed = worker.do("fail")
    assert failed.status is Status.RUN_ERROR and "told to" in failed.error
    assert worker.do("second").value == ("second", pid)  # an exception leaves the worker as it is
    assert worker.do("die").status is Status.CRASH
    answer, other = worker.do("third").value
    assert answer == "third" and other != pid


@pytest.mark.slow
def test_a_job_that_takes_too_long_is_ended(worker: SingleWorker) -> None:
    pid = worker.do("first").value[1]
    worker.timeout_s = 0.5
    late = worker.do("sleep")
    assert late.status is Status.TIMEOUT and "0.5 s" in late.error
    worker.timeout_s = 20.0
    assert worker.do("next").value[1] != pid
