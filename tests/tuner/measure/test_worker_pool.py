"""A pool of real processes: jobs of the list to come are done while a worker has nothing else to do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from autosched.task import Status
from autosched.tuner.measure.process import Job
from autosched.tuner.measure.worker import Setup
from autosched.tuner.measure.worker_pool import WorkerPool

pytestmark = pytest.mark.alone  # who begins when, to tenths of a second


class Sleeper:
    """A role: sleeps for so many seconds and gives the time at which it began; dies of a negative number."""

    failure = Status.RUN_ERROR

    def learn(self, key: str, value: object) -> None:
        """Nothing is learnt."""

    def do(self, message: float) -> float:
        """Serve one message."""
        begun = time.time()
        if message < 0:
            os._exit(7)
        time.sleep(message)
        return begun


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    setup = Setup(f"{__name__}:{Sleeper.__name__}", {}, None, os.getpid())
    pool = WorkerPool(setup, 2, 30.0, Status.TIMEOUT, spare="after a loss")
    pool.wait_ready()
    yield pool
    pool.close()


def test_an_idle_worker_begins_with_the_next_list(pool: WorkerPool) -> None:
    asked, coming = list[float](), [Job(0.01), Job(0.02)]

    def ahead() -> list[Job]:
        asked.append(time.time())
        return coming

    first = dict(pool.run([Job(0.01), Job(0.6)], ahead=ahead))
    over = time.time()
    second = dict(pool.run([Job(0.0), *coming]))
    assert len(asked) == 1 and sorted(first) == [0, 1] and sorted(second) == [0, 1, 2]
    assert second[1].value < over and second[2].value < over < second[0].value


def test_who_does_not_know_yet_what_comes_next_is_asked_again(pool: WorkerPool) -> None:
    coming, answers = Job(0.01), list[list[Job] | None]([None, None])
    seen: list[int] = []

    def ahead() -> list[Job] | None:
        seen.append(len(answers))
        return answers.pop() if answers else [coming]

    jobs = [Job(0.01), Job(0.05), Job(0.3), Job(0.4), Job(0.5)]
    for _ in pool.run(jobs, ahead=ahead):
        seen.append(-1)
    assert seen[:2] == [-1, -1]  # not before the last job has a worker
    assert [n for n in seen if n >= 0] == [2, 1, 0]
    over = time.time()
    ((_, reply),) = pool.run([coming])
    assert reply.value < over


def test_what_the_next_list_does_not_have_is_forgotten(pool: WorkerPool) -> None:
    coming = Job(0.01)
    list(pool.run([Job(0.3)], ahead=lambda: [coming, Job(0.01)]))
    assert len(list(pool.run([Job(0.01), Job(0.01), Job(0.01)]))) == 3
    now = time.time()
    ((_, reply),) = pool.run([coming])
    assert reply.value >= now


def test_a_job_that_goes_on_over_the_end_of_the_list_is_waited_for(pool: WorkerPool) -> None:
    coming = Job(0.5)
    list(pool.run([Job(0.1)], ahead=lambda: [coming]))
    over = time.time()
    ((_, reply),) = pool.run([coming])
    assert reply.value < over and time.time() - reply.value >= 0.5


def test_a_worker_that_dies_ahead_costs_its_job_alone(pool: WorkerPool) -> None:
    coming = [Job(-1.0), Job(0.01)]
    assert [reply.status for _, reply in pool.run([Job(0.4)], ahead=lambda: coming)] == [Status.OK]
    replies = dict(pool.run(coming))
    assert replies[0].status is Status.CRASH and replies[1].status is Status.OK


def test_a_job_that_waited_for_us_is_not_late(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_timeout_s", 0.4)
    coming = Job(0.05)
    list(pool.run([Job(0.1)], ahead=lambda: [coming]))
    time.sleep(0.5)  # the caller times something
    ((_, reply),) = pool.run([coming])
    assert reply.status is Status.OK


def test_rest_ends_when_nothing_is_done_ahead(pool: WorkerPool) -> None:
    coming = [Job(0.3), Job(0.2), Job(0.1)]
    list(pool.run([Job(0.01)], ahead=lambda: coming))
    pool.rest()
    assert not pool._busy
    now = time.time()
    assert all(reply.value >= now for _, reply in pool.run(coming))


def test_leaving_early_ends_what_was_begun_ahead(pool: WorkerPool) -> None:
    replies = pool.run([Job(0.05), Job(20.0)], ahead=lambda: [Job(20.0)])
    next(replies)
    replies.close()  # type: ignore[attr-defined]
    start = time.time()
    assert not pool._busy and [reply.value < start + 15 for _, reply in pool.run([Job(0.0), Job(0.0)])] == [True, True]


def test_a_worker_that_is_busy_ahead_is_not_replaced(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_most_jobs", 1)
    pool.wait_ready()
    coming = Job(0.4)
    list(pool.run([Job(0.05)], ahead=lambda: [coming]))
    busy = [pool.workers[number] for number in pool._busy]
    pool.refresh()
    assert len(busy) == 1 and busy[0].is_alive
    ((_, reply),) = pool.run([coming])
    assert reply.status is Status.OK


def test_jobs_do_not_wait_for_workers_that_come_late() -> None:
    setup = Setup(f"{__name__}:{Sleeper.__name__}", {}, None, os.getpid())
    late = WorkerPool(setup, 2, 30.0, Status.TIMEOUT, spare="after a loss", late=1)
    late.wait_ready()
    assert len(late.workers) == 1 and late.size == 2
    late.complete()
    _, second = late.workers
    second.pause()  # it never comes to be ready
    assert len(list(late.run([Job(0.0), Job(0.0), Job(0.0)]))) == 3
    second.resume()
    second.wait_ready()
    assert len(list(late.run([Job(0.3), Job(0.3)]))) == 2 and second.n_jobs == 1
    late.close()
