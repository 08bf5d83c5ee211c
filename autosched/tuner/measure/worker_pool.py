"""A pool of worker processes of one role, with a warm spare for the one that dies."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import connection
from typing import Literal

from autosched.errors import AutoschedError
from autosched.task import Status
from autosched.tuner.measure.nursery import Nursery
from autosched.tuner.measure.process import Job, WorkerProcess
from autosched.tuner.measure.worker import Reply, Setup


class WorkerPool:
    """`size` workers and a spare; they start with the constructor and live until `close`.

    late                       so many of them start with `complete` alone: what is needed first is there sooner
    spare                      "at once" where a new process is cheap; "after a loss": the first one that dies is
                               missed, the others are not
    timeout_s, timeout_status  a job that takes longer ends with that status, and its worker is replaced
    most_jobs                  a worker that has done so many is replaced at the next `refresh`
    nursery                    what the workers are forks of; None: they are new processes
    """

    def __init__(
        self,
        setup: Setup,
        size: int,
        timeout_s: float,
        timeout_status: Status,
        *,
        spare: Literal["at once", "after a loss"] = "at once",
        most_jobs: int = 1000,
        late: int = 0,
        nursery: Nursery | None = None,
    ):
        self._nursery = nursery
        self._setup, self._timeout_s, self._timeout_status = setup, timeout_s, timeout_status
        self._most_jobs, self._wants_spare = most_jobs, spare == "at once"
        self._spares: list[WorkerProcess] = []
        self._workers: list[WorkerProcess] = []
        self._busy: dict[int, tuple[Job, float]] = {}  # number of the worker -> its job, deadline
        self._early: deque[Job] = deque()  # jobs of a list to come, that wait for a worker with nothing else to do
        self._found: list[tuple[Job, Reply]] = []  # replies to such jobs
        self._is_running = False
        self._limit_s: dict[int, float] = {}  # number of the worker -> time that its job may take
        self._is_closed = False
        self._size = size
        try:
            self._start(size - late)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Jobs that are done at the same time."""
        return self._size

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """The workers and spares that there are."""
        return (*self._workers, *self._spares)

    def refresh(self) -> None:
        """Start a spare if there is to be one, and let it take the place of a worker that has done its share of jobs.

        Workers grow: loaded machine code stays (50 KB a kernel), and Numba keeps what it has compiled.
        """
        assert not self._is_closed, "the pool has been closed"
        old = next((i for i, worker in enumerate(self._workers) if worker.n_jobs >= self._most_jobs), None)
        if old is not None and old not in self._busy:
            self._replace(old)
        if not self._spares and self._wants_spare:
            self._spares.append(WorkerProcess(self._setup, self._nursery))

    def wait_ready(self) -> None:
        """Wait until every worker that was started can serve jobs. Raises AutoschedError if one cannot start."""
        for worker in self.workers:
            worker.wait_ready()

    def teach(self, needs: Mapping[str, object]) -> None:
        """Let workers and spares learn something before a job needs it; nobody waits until they have."""
        for worker in self.workers:
            with contextlib.suppress(OSError):  # a dead one is replaced when it is given a job
                worker.teach(needs)

    def complete(self) -> None:
        """Start the workers that were to be late; jobs do not wait for them."""
        self._start(self._size)

    def _start(self, n: int) -> None:
        while len(self._workers) < n:
            self._workers.append(WorkerProcess(self._setup, self._nursery))

    def run(
        self,
        jobs: Sequence[Job],
        meanwhile: Callable[[], object] | None = None,
        ahead: Callable[[], Sequence[Job] | None] | None = None,
    ) -> Iterator[tuple[int, Reply]]:
        """Do jobs on all workers and give (position of the job, reply) as the replies come.

        meanwhile  called when the first jobs have begun, before their replies are awaited
        ahead      called when no job waits for a worker any more, again after each reply until it does not give None:
                   gives jobs of the list that will probably come next. They are begun by workers that have nothing
                   else to do, and what became of them is there when a list with these very objects comes; what the
                   next list does not have is forgotten
        raises     AutoschedError if a worker cannot start
        Workers go on with the next jobs while the caller looks at a reply. Leaving the iteration early ends the workers
        that are busy.
        """
        assert not self._is_closed and not self._is_running, "a pool does one list of jobs at a time"
        self._is_running = True
        left = {id(job): position for position, job in enumerate(jobs)}
        begun = {id(job) for job, _ in [*self._busy.values(), *self._found]}
        waiting = deque(job for job in jobs if id(job) not in begun)
        again: set[int] = set()  # jobs whose worker died before they began: each is sent a second time
        ready, self._found = [pair for pair in self._found if id(pair[0]) in left], []
        self._early.clear()
        try:
            self._send(waiting)
            if meanwhile is not None:
                meanwhile()
            while left:
                self._send(waiting)
                if ahead is not None and not waiting and (coming := ahead()) is not None:
                    self._early.extend(coming)
                    ahead = None
                self._send(waiting or self._early)
                for number, reply in self._wait() if not ready else ():
                    job, _ = self._busy.pop(number)
                    if reply.status is Status.LOST and id(job) not in again:
                        again.add(id(job))
                        (waiting if id(job) in left else self._early).appendleft(job)
                    else:
                        (ready if id(job) in left else self._found).append((job, reply))
                self._send(waiting)
                done, ready = ready, []
                yield from [(left.pop(id(job)), reply) for job, reply in done]
        except BaseException:
            self._drop()
            raise
        finally:
            self._is_running = False

    def rest(self) -> None:
        """Wait until no worker is busy with what was to be done ahead, and forget that."""
        assert not self._is_running, "a list of jobs is being done"
        self._early.clear()
        while self._busy:
            for number, _ in self._wait():
                del self._busy[number]
        self._found.clear()

    @contextlib.contextmanager
    def paused(self, *, spares_only: bool = False) -> Iterator[None]:
        """Stop the workers, also those that are starting, for as long as something is timed.

        Their deadlines move by that time. Should we be killed meanwhile, the system wakes them (SIGHUP and SIGCONT to
        an orphaned process group with stopped members), and they end.
        """
        start = time.monotonic()
        stopped = [worker for worker in (self._spares if spares_only else self.workers) if worker.pause()]
        try:
            yield
        finally:
            for worker in stopped:
                worker.resume()
            late = time.monotonic() - start
            if not spares_only:
                self._busy.update({n: (job, deadline + late) for n, (job, deadline) in self._busy.items()})

    def close(self) -> None:
        """End all workers."""
        self._is_closed = True
        for worker in self.workers:
            worker.kill()

    def _drop(self) -> None:
        """End the workers that are busy, and forget what was done ahead."""
        for number in self._busy:
            self._workers[number].kill()
        self._busy.clear()
        self._early.clear()
        self._found.clear()

    def _send(self, waiting: deque[Job]) -> None:
        """Send jobs to the workers that have none; one that is still starting is waited for if nobody else works."""
        for number in range(len(self._workers)):
            if not waiting or number in self._busy or not (self._workers[number].is_ready or self._is_needed(number)):
                continue
            self._make_ready(number)
            job = waiting.popleft()
            self._limit_s[number] = self._timeout_s * job.share
            self._busy[number] = job, time.monotonic() + self._limit_s[number]
            with contextlib.suppress(OSError):  # it has just died, which shows when its reply is awaited
                self._workers[number].start(job)

    def _is_needed(self, number: int) -> bool:
        """Whether a worker that is not ready, or has died, is to be waited for; a dead one is replaced."""
        if not self._workers[number].is_alive:
            self._replace(number)
        return not self._busy and not any(worker.is_ready for worker in self._workers)

    def _make_ready(self, number: int) -> None:
        """Wait until a worker is ready; one that died while it was idle is replaced, and so is a spare that did."""
        for is_last in (False, True):
            if not self._workers[number].is_alive:
                self._replace(number)
            try:
                return self._workers[number].wait_ready()
            except AutoschedError:
                if is_last:
                    raise

    def _wait(self) -> list[tuple[int, Reply]]:
        """Wait for replies, deaths and deadlines of busy workers; gives (number of the worker, reply)."""
        numbers = {self._workers[number].replies: number for number in self._busy}
        next_deadline = min(deadline for _, deadline in self._busy.values())
        ready = connection.wait(list(numbers), max(0.0, next_deadline - time.monotonic()))
        replies: dict[int, Reply] = {}
        for pipe in ready:
            number = numbers[pipe]  # type: ignore[index]
            worker = self._workers[number]
            while (reply := worker.receive()) is None and worker.replies.poll():
                pass  # that it had begun: the reply behind may have waited for us
            if reply is None:
                continue
            if not worker.is_alive:
                self._replace(number)
            replies[number] = reply
        now = time.monotonic()
        for number, (_, deadline) in self._busy.items():
            if number not in replies and now >= deadline:
                text = f"not finished after {self._limit_s[number]:g} s; the worker process was ended"
                where = self._workers[number].end_hanging()
                self._replace(number)
                replies[number] = Reply(-1, status=self._timeout_status, error=f"{text}\n{where}".rstrip())
        return list(replies.items())

    def _replace(self, number: int) -> None:
        self._wants_spare = True
        self._workers[number].kill()
        if self._spares:
            self._workers[number] = self._spares.pop()
            self._workers[number].resume()  # it may have been paused as a spare
        else:
            self._workers[number] = WorkerProcess(self._setup, self._nursery)
