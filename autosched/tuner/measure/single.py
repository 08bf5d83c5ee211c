"""One worker process that does one job after the other; what a job breaks costs that job alone."""

from __future__ import annotations

import os
import weakref
from typing import Any

from autosched.task import Status
from autosched.tuner.measure.process import Job, WorkerProcess
from autosched.tuner.measure.worker import Reply, Setup


class SingleWorker:
    """Starts its worker with the first job, and a new one after a job that crashed or hung.

    role       "module:class" of the worker's Role
    timeout_s  for one job
    """

    def __init__(self, role: str, timeout_s: float):
        self.role, self.timeout_s = role, timeout_s
        self._worker: WorkerProcess | None = None
        self._last: weakref.finalize[..., SingleWorker] | None = None  # ends the worker with us

    def do(self, message: Any) -> Reply:
        """The reply to a message; its status says whether the job failed, crashed or took too long."""
        worker = self._ready()
        worker.start(Job(message))
        while worker.replies.poll(self.timeout_s):
            reply = worker.receive()
            if reply is None:
                continue
            if not worker.is_alive:
                self._worker = None
            return reply
        text = f"no result within {self.timeout_s} s\n{worker.end_hanging()}"
        self._worker = None
        return Reply(0, None, Status.TIMEOUT, text)

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _ready(self) -> WorkerProcess:
        if self._worker is None or not self._worker.is_alive:
            self._worker = WorkerProcess(Setup(self.role, {}, None, os.getpid()))
            self._worker.wait_ready()
            if self._last is not None:
                self._last.detach()
            self._last = weakref.finalize(self, self._worker.kill)
        return self._worker
