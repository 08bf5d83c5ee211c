"""A crew of worker processes of one role, with a warm spare for the one that dies."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import connection

from autosched.task import Status
from autosched.tuner.measure.process import Job, WorkerProcess
from autosched.tuner.measure.worker import Reply, Setup


class Crew:
    """`size` workers and a spare; they start with the constructor and live until `close`.

    timeout_s, timeout_status  a job that takes longer ends with that status, and its worker is replaced
    most_jobs                  a worker that has done so many is replaced at the next `refresh`
    """

    def __init__(self, setup: Setup, size: int, timeout_s: float, timeout_status: Status, most_jobs: int = 1000):
        self._setup, self._timeout_s, self._timeout_status = setup, timeout_s, timeout_status
        self._most_jobs = most_jobs
        self._spares: list[WorkerProcess] = []
        self._workers: list[WorkerProcess] = []
        self._is_closed = False
        try:
            for _ in range(size):
                self._workers.append(WorkerProcess(setup))
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Jobs that are done at the same time."""
        return len(self._workers)

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """The workers and spares that there are."""
        return (*self._workers, *self._spares)

    def refresh(self) -> None:
        """Start a spare if there is none, and let it take the place of a worker that has done its share of jobs.

        Workers grow: loaded machine code stays (50 KB a kernel), and Numba keeps what it has compiled. New processes
        warm up while others work, so this is not to be called while something is timed.
        """
        assert not self._is_closed, "the crew has been closed"
        old = next((i for i, worker in enumerate(self._workers) if worker.n_jobs >= self._most_jobs), None)
        if old is not None:
            self._replace(old)
        if not self._spares:
            self._spares.append(WorkerProcess(self._setup))

    def wait_ready(self) -> None:
        """Wait until every worker can serve jobs. Raises AutoschedError if one cannot start."""
        for worker in self.workers:
            worker.wait_ready()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Reply]]:
        """Do jobs on all workers and give (position of the job, reply) as the replies come.

        Leaving the iteration early ends the workers that are busy. Raises AutoschedError if a worker cannot start.
        """
        assert not self._is_closed, "the crew has been closed"
        waiting = deque(enumerate(jobs))
        again: set[int] = set()  # jobs whose worker died before they began: each is sent a second time
        busy: dict[int, tuple[int, float]] = {}  # number of the worker -> position of the job, deadline
        try:
            while waiting or busy:
                for number in range(len(self._workers)):
                    if waiting and number not in busy:
                        position, job = waiting.popleft()
                        busy[number] = position, 0.0
                        self._start(number, job)
                        busy[number] = position, time.monotonic() + self._timeout_s
                for number, reply in self._wait(busy):
                    position, _ = busy.pop(number)
                    if reply.status is Status.LOST and position not in again:
                        again.add(position)
                        waiting.appendleft((position, jobs[position]))
                    else:
                        yield position, reply
        finally:
            for number in busy:
                self._workers[number].kill()

    def close(self) -> None:
        """End all workers."""
        self._is_closed = True
        for worker in self.workers:
            worker.kill()

    def _start(self, number: int, job: Job) -> None:
        """Send a job to a worker; one that died while it was idle is replaced before."""
        if not self._workers[number].is_alive:
            self._replace(number)
        worker = self._workers[number]
        worker.wait_ready()
        with contextlib.suppress(OSError):  # it has just died, which shows when its reply is awaited
            worker.start(job)

    def _wait(self, busy: dict[int, tuple[int, float]]) -> list[tuple[int, Reply]]:
        """Wait for replies, deaths and deadlines of busy workers."""
        numbers = {self._workers[number].replies: number for number in busy}
        next_deadline = min(deadline for _, deadline in busy.values())
        ready = connection.wait(list(numbers), max(0.0, next_deadline - time.monotonic()))
        replies = []
        for pipe in ready:
            number = numbers[pipe]  # type: ignore[index]
            worker = self._workers[number]
            if (reply := worker.receive()) is None:
                continue
            if not worker.is_alive:
                self._replace(number)
            replies.append((number, reply))
        answered, now = {number for number, _ in replies}, time.monotonic()
        for number, (_, deadline) in busy.items():
            if number not in answered and now >= deadline:
                text = f"not finished after {self._timeout_s:g} s; the worker process was ended"
                self._replace(number)
                replies.append((number, Reply(-1, status=self._timeout_status, error=text)))
        return replies

    def _replace(self, number: int) -> None:
        self._workers[number].kill()
        self._workers[number] = self._spares.pop() if self._spares else WorkerProcess(self._setup)
