"""The parent's side of one worker process."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from autosched.env import child_environment
from autosched.errors import AutoschedError
from autosched.task import Status
from autosched.tuner.measure.nursery import WORKER_ENVIRONMENT, Fork, Nursery, python_command
from autosched.tuner.measure.worker import Do, Learn, Reply, Setup

if TYPE_CHECKING:
    from autosched.json_types import Json

_START_TIMEOUT_S = 120.0
_LAST_WORDS_S = 0.5
_MOST_ERROR_BYTES = 64 * 1024
_ALIVE: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()
# What the C++ library and LLVM print before they abort for want of memory.
_MEMORY_TEXTS = ("bad_alloc", "out of memory", "Cannot allocate memory", "MemoryError")


@dataclass(frozen=True, slots=True)
class Job:
    """A message for a worker, and what the worker must have learnt before, by key.

    share  how many times the pool's time it may take
    """

    message: object
    needs: Mapping[str, Json] = field(default_factory=dict)
    share: int = 1


class Numbering:
    """Gives each object a key of its own; holds the objects, so that no other gets the same identity."""

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._keys: dict[int, tuple[str, object]] = {}

    def key(self, thing: object) -> str:
        """Give the key of an object."""
        if id(thing) not in self._keys:
            self._keys[id(thing)] = f"{self._prefix}{len(self._keys)}", thing
        return self._keys[id(thing)][0]


class WorkerProcess:
    """A process that serves one job at a time.

    The constructor returns at once; `wait_ready` waits until the worker has imported what it needs.
    nursery  what it is a fork of; None: it is a new process
    """

    def __init__(self, setup: Setup, nursery: Nursery | None = None):
        self._setup = setup
        self._known: set[str] = set()
        self._number = 0
        self._is_ready = False
        self._has_begun = False
        self._killed = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `kill`)
        self._errors_from = 0
        (jobs, our_jobs), (our_replies, replies) = os.pipe(), os.pipe()
        try:
            if nursery is not None:
                self._process: Fork | subprocess.Popen[bytes] = nursery.fork(jobs, replies, self._errors.fileno())
            else:
                self._process = subprocess.Popen(
                    python_command("from autosched.tuner.measure.worker import main; main()"),
                    stdin=jobs,
                    stdout=replies,
                    stderr=self._errors,
                    env=child_environment(WORKER_ENVIRONMENT),
                    process_group=0,  # Ctrl-C in the terminal reaches the parent alone
                )
        finally:
            os.close(jobs)
            os.close(replies)
        _ALIVE.add(self)
        self._jobs = Connection(our_jobs, readable=False)
        self.replies = Connection(our_replies, writable=False)
        with contextlib.suppress(OSError):  # already dead: `wait_ready` tells why
            self._send(setup)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def n_jobs(self) -> int:
        """Jobs that were sent so far."""
        return self._number

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self._killed and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it runs and can serve jobs."""
        if self.is_alive and not self._is_ready and self.replies.poll():
            self.wait_ready()
        return self._is_ready and self.is_alive

    def wait_ready(self) -> None:
        """Wait until the worker can serve jobs.

        Raises AutoschedError with the worker's own words if it cannot start: no candidate is to blame for that.
        """
        if self._is_ready:
            return
        try:
            if self.replies.poll(_START_TIMEOUT_S):
                self._receive()
                self._is_ready = True
                return
            reason = f"is not ready after {_START_TIMEOUT_S:.0f} s"
        except (EOFError, OSError):
            self._process.wait(10)
            reason = self._end()
        text = self._error_text()
        self.kill()
        raise AutoschedError(f"a worker process for measurements {reason}: {text}", where=self._setup.role)

    def start(self, job: Job) -> None:
        """Send a job. Raises OSError (BrokenPipeError) if the process is dead."""
        self._errors_from = self._errors.seek(0, os.SEEK_END)
        self.teach(job.needs)
        self._number += 1
        self._has_begun = False
        self._send(Do(self._number, job.message))

    def teach(self, needs: Mapping[str, Any]) -> None:
        """Send what the worker has not learnt yet. Raises OSError (BrokenPipeError) if the process is dead."""
        for key, value in needs.items():
            if key not in self._known:
                self._send(Learn(key, value))
                self._known.add(key)

    def receive(self) -> Reply | None:
        """Receive a frame; gives the reply to the job, None for any other frame.

        The death of the worker is a reply too: with status LOST if the job had not begun.
        """
        try:
            reply = self._receive()
        except (EOFError, OSError, pickle.UnpicklingError):
            death = self.describe_death()
            self.kill()
            return death
        if reply.begun and reply.number == self._number:
            self._has_begun = True
        return reply if reply.number == self._number and not reply.begun else None

    def describe_death(self) -> Reply:
        """Say of what the worker died, with all that it wrote to standard error during the job."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        code, text = self._process.poll(), self._error_text()
        status = Status.CRASH
        if not self._has_begun:
            status = Status.LOST
        elif code == -signal.SIGILL:
            status = Status.ILLEGAL_INSTRUCTION
        elif any(words in text for words in _MEMORY_TEXTS) or (code == -signal.SIGKILL and not self._killed):
            status = Status.OUT_OF_MEMORY  # SIGKILL that is not ours comes from the system when memory runs out
        return Reply(self._number, status=status, error=f"the worker process {self._end()}\n{text}".rstrip())

    def end_hanging(self) -> str:
        """End a process that takes too long; gives where it was, in its own words, if it can still say so."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks of all threads
            self._process.wait(_LAST_WORDS_S)
        text = self._error_text()
        self.kill()
        return text

    def pause(self) -> bool:
        """Stop the process until `resume`; tells whether it is stopped, which not every system can do."""
        if not hasattr(signal, "SIGSTOP") or not self.is_alive:
            return False
        self._process.send_signal(signal.SIGSTOP)
        return True

    def resume(self) -> None:
        """Let a stopped process go on."""
        if self.is_alive:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process and free what it holds; safe to call twice and from any thread."""
        if self._killed:
            return
        self._killed = True
        _ALIVE.discard(self)
        with contextlib.suppress(OSError):
            if self._process.poll() is None:
                self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for closable in (self._jobs, self.replies, self._errors):
            with contextlib.suppress(OSError):
                closable.close()

    def _send(self, frame: Setup | Learn | Do) -> None:
        self._jobs.send_bytes(pickle.dumps(frame, pickle.HIGHEST_PROTOCOL))

    def _receive(self) -> Reply:
        reply = pickle.loads(self.replies.recv_bytes())
        assert isinstance(reply, Reply), "workers send replies alone"
        return reply

    def _end(self) -> str:
        code = self._process.poll()
        if code is None:
            return "closed its pipe"
        if code < 0:
            try:
                return f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"was ended by signal {-code}"
        return f"exited with code {code}"

    def _error_text(self) -> str:
        if self._errors.closed:
            return ""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(self._errors_from, end - _MOST_ERROR_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("Extension modules:")).strip()


def kill_all() -> None:
    """End every worker of this process; runs by itself at exit."""
    for worker in list(_ALIVE):
        worker.kill()


def _after_fork() -> None:
    """A forked child has no workers: they are its parent's."""
    for worker in list(_ALIVE):
        worker._killed = True
        for closable in (worker._jobs, worker.replies):
            with contextlib.suppress(OSError):
                closable.close()
    _ALIVE.clear()


atexit.register(kill_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
