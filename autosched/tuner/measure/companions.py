"""Other instances of a kernel that run while candidates are timed, as on a machine that serves on all its cores."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from autosched.errors import AutoschedError
from autosched.tuner.measure.base import MeasureOptions
from autosched.tuner.measure.process import Job, WorkerProcess
from autosched.tuner.measure.run_role import Entry, Loop
from autosched.tuner.measure.worker import Setup

_START_S = 60.0  # until all of them run a new kernel


class Companions:
    """Processes that call one kernel of the present task in a loop; stopped (SIGSTOP) while nothing is timed.

    setup   of workers that serve `Loop`;  folder  for the files that stop them
    They start with the first kernel that is timed, and end with `close` or with this process.
    """

    def __init__(self, setup: Setup, options: MeasureOptions, folder: Path):
        self._setup, self._options, self._folder = setup, options, folder
        self._number = options.companions or 0
        self._workers: list[WorkerProcess] = []
        self._key = ""  # the task that they are at, as its reference is called
        self._flag = folder / "none"

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of those that run or are stopped."""
        return tuple(worker.pid for worker in self._workers if worker.is_alive)

    def are_new_to(self, key: str) -> bool:
        """Whether they have to begin with a kernel of the task."""
        return self._number > 0 and (key != self._key or len(self.process_ids) < self._number)

    @contextlib.contextmanager
    def beside(self, entry: Entry, key: str, needs: Mapping[str, object]) -> Iterator[None]:
        """Let them run meanwhile.

        entry  of the first kernel of a task that works, its default, which they run until another task comes
        Raises AutoschedError where they do not come to run it.
        """
        if not self._number:
            yield
            return
        for worker in self._workers:
            worker.resume()
        if self.are_new_to(key):
            self._begin(entry, key, needs)
        try:
            yield
        finally:
            for worker in self._workers:
                worker.pause()

    def _begin(self, entry: Entry, key: str, needs: Mapping[str, object]) -> None:
        self._end_loop()
        self._workers = [worker for worker in self._workers if worker.is_alive]
        while len(self._workers) < self._number:
            self._workers.append(WorkerProcess(self._setup))
        self._key, self._flag = key, self._folder / f"companions_{uuid.uuid4().hex[:8]}"
        self._flag.touch()
        for worker in self._workers:
            worker.wait_ready()
            worker.start(Job(Loop(entry, key, self._options, str(self._flag)), needs))
        deadline = time.monotonic() + _START_S
        while self._n_begun() < len(self._workers):
            if time.monotonic() > deadline or not all(worker.is_alive for worker in self._workers):
                text = "; ".join(w.describe_death().error for w in self._workers if not w.is_alive)
                self.close()
                raise AutoschedError(f"the instances beside the one that is measured do not run: {text or 'too slow'}")
            time.sleep(0.005)

    def _n_begun(self) -> int:
        return len(list(self._folder.glob(f"{self._flag.name}.*")))

    def _end_loop(self) -> None:
        """Let them come back from what they run; those that do not are ended."""
        if not self._workers:
            return
        for file in (self._flag, *self._folder.glob(f"{self._flag.name}.*")):
            file.unlink(missing_ok=True)
        for worker in self._workers:
            while worker.is_alive and worker.replies.poll(2.0):
                if worker.receive() is not None:
                    break
            else:
                worker.kill()

    def close(self) -> None:
        """End all of them; safe to call twice."""
        for worker in self._workers:
            worker.kill()
        self._workers = []
