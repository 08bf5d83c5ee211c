"""A crew of real processes: jobs of the list to come are done while a worker has nothing else to do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from autosched.task import Status
from autosched.tuner.measure.crew import Crew
from autosched.tuner.measure.process import Job
from autosched.tuner.measure.worker import Setup

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
def crew() -> Iterator[Crew]:
    setup = Setup(f"{__name__}:{Sleeper.__name__}", {}, None, os.getpid())
    crew = Crew(setup, 2, 30.0, Status.TIMEOUT, spare="after a loss")
    crew.wait_ready()
    yield crew
    crew.close()


def test_an_idle_worker_begins_with_the_next_list(crew: Crew) -> None:
    asked, coming = list[float](), [Job(0.01), Job(0.02)]

    def ahead() -> list[Job]:
        asked.append(time.time())
        return coming

    first = dict(crew.run([Job(0.01), Job(0.6)], ahead=ahead))
    over = time.time()
    second = dict(crew.run([Job(0.0), *coming]))
    assert len(asked) == 1 and sorted(first) == [0, 1] and sorted(second) == [0, 1, 2]
    assert second[1].value < over and second[2].value < over < second[0].value


def test_what_the_next_list_does_not_have_is_forgotten(crew: Crew) -> None:
    coming = Job(0.01)
    list(crew.run([Job(0.3)], ahead=lambda: [coming, Job(0.01)]))
    assert len(list(crew.run([Job(0.01), Job(0.01), Job(0.01)]))) == 3
    now = time.time()
    ((_, reply),) = crew.run([coming])
    assert reply.value >= now


def test_a_job_that_goes_on_over_the_end_of_the_list_is_waited_for(crew: Crew) -> None:
    coming = Job(0.5)
    list(crew.run([Job(0.1)], ahead=lambda: [coming]))
    over = time.time()
    ((_, reply),) = crew.run([coming])
    assert reply.value < over and time.time() - reply.value >= 0.5


def test_a_worker_that_dies_ahead_costs_its_job_alone(crew: Crew) -> None:
    coming = [Job(-1.0), Job(0.01)]
    assert [reply.status for _, reply in crew.run([Job(0.4)], ahead=lambda: coming)] == [Status.OK]
    replies = dict(crew.run(coming))
    assert replies[0].status is Status.CRASH and replies[1].status is Status.OK


def test_a_job_that_waited_for_us_is_not_late(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_timeout_s", 0.4)
    coming = Job(0.05)
    list(crew.run([Job(0.1)], ahead=lambda: [coming]))
    time.sleep(0.5)  # the caller times something
    ((_, reply),) = crew.run([coming])
    assert reply.status is Status.OK


def test_rest_ends_when_nothing_is_done_ahead(crew: Crew) -> None:
    coming = [Job(0.3), Job(0.2), Job(0.1)]
    list(crew.run([Job(0.01)], ahead=lambda: coming))
    crew.rest()
    assert not crew._busy
    now = time.time()
    assert all(reply.value >= now for _, reply in crew.run(coming))


def test_leaving_early_ends_what_was_begun_ahead(crew: Crew) -> None:
    replies = crew.run([Job(0.05), Job(20.0)], ahead=lambda: [Job(20.0)])
    next(replies)
    replies.close()  # type: ignore[attr-defined]
    start = time.time()
    assert not crew._busy and [reply.value < start + 15 for _, reply in crew.run([Job(0.0), Job(0.0)])] == [True, True]


def test_a_worker_that_is_busy_ahead_is_not_replaced(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_most_jobs", 1)
    coming = Job(0.4)
    list(crew.run([Job(0.05)], ahead=lambda: [coming]))
    busy = [crew.workers[number] for number in crew._busy]
    crew.refresh()
    assert len(busy) == 1 and busy[0].is_alive
    ((_, reply),) = crew.run([coming])
    assert reply.status is Status.OK
