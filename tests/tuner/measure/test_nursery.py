"""Workers that are forks of one process: they live and die as new processes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from autosched.task import Status
from autosched.tuner.measure.nursery import Nursery, has_nurseries
from autosched.tuner.measure.process import Job
from autosched.tuner.measure.worker import Setup
from autosched.tuner.measure.worker_pool import WorkerPool

pytestmark = pytest.mark.skipif(not has_nurseries(), reason="this system has no handles of processes")


class Odd:
    """A role: gives who it is and whose child; dies of a number, as the signal of that number ends a process."""

    failure = Status.RUN_ERROR

    def learn(self, key: str, value: object) -> None:
        """Nothing is learnt."""

    def do(self, message: object) -> object:
        """Serve one message."""
        if message == "sleep":
            time.sleep(60)
        if isinstance(message, int):
            print("last words", flush=True)
            os.kill(os.getpid(), message)
        return os.getpid(), os.getppid(), os.getpgrp(), READY


READY: list[int] = []


def preload() -> None:
    """What workers begin with."""
    READY.append(os.getpid())


def pool_of(nursery: Nursery, size: int = 2) -> WorkerPool:
    setup = Setup(f"{__name__}:Odd", {}, None, os.getpid())
    return WorkerPool(setup, size, 2.0, Status.TIMEOUT, spare="after a loss", nursery=nursery)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery(f"{__name__}:preload")
    yield made
    made.close()


def test_workers_are_forks_of_what_was_preloaded(nursery: Nursery) -> None:
    pool = pool_of(nursery)
    found = [reply.value for _, reply in pool.run([Job("who"), Job("who")])]
    assert {ready[0] for *_, ready in found} == {nursery._process.pid} == {parent for _, parent, _, _ in found}
    assert all(pid == group and not READY for pid, _, group, _ in found)
    assert {pid for pid, *_ in found} <= {worker.pid for worker in pool.workers}
    pool.close()
    assert not any(worker.is_alive for worker in pool.workers)


def test_a_death_costs_its_job_and_its_kind_is_known(nursery: Nursery) -> None:
    pool = pool_of(nursery)
    jobs = [Job(int(signal.SIGSEGV)), Job("who"), Job(int(signal.SIGILL)), Job("sleep"), Job("who")]
    replies = dict(pool.run(jobs))
    assert [replies[i].status for i in range(5)] == [
        Status.CRASH, Status.OK, Status.ILLEGAL_INSTRUCTION, Status.TIMEOUT, Status.OK
    ]  # fmt: skip
    assert "SIGSEGV" in replies[0].error and "last words" in replies[0].error
    pool.close()


def test_workers_are_stopped_while_something_is_timed(nursery: Nursery) -> None:
    pool = pool_of(nursery, 1)
    pool.wait_ready()
    (worker,) = pool.workers
    with pool.paused():
        while _state(worker.pid) != "T":  # a signal arrives when the worker has a core
            time.sleep(0.01)
        assert worker.is_alive
    assert [reply.status for _, reply in pool.run([Job("who")])] == [Status.OK]
    pool.close()


def test_a_nursery_that_is_gone_is_no_endless_wait() -> None:
    made = Nursery(f"{__name__}:preload")
    pool = pool_of(made, 1)
    made.kill()
    (worker,) = pool.workers
    with pytest.raises(Exception, match="a worker process"):
        worker.wait_ready()
    pool.close()
    made.close()


def test_all_end_with_the_process_that_began_them() -> None:
    code = f"""
import os, signal
from {__name__} import Job, Nursery, pool_of
pool = pool_of(Nursery("{__name__}:preload"))
print(*[reply.value[0] for _, reply in pool.run([Job("who"), Job("who")])], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    pids, end = [int(word) for word in found.stdout.split()], time.monotonic() + 30
    assert pids
    while any(_state(pid) not in ("", "Z") for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.1)


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
