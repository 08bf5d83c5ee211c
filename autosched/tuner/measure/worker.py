"""The life of a worker process: it serves jobs from a pipe until its parent is gone.

A worker is a new Python process, started as `python -c "… main()"`, or a fork of one (`nursery`), never of the caller,
so that nothing of its main module runs again. Frames are pickles over the pipes that were its standard input and
output; whatever prints goes to standard error, a file of the parent's that is read when the worker dies. A thread
receives the jobs, so the end of the parent, which closes the pipe, ends the worker even in the middle of an endless
kernel.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

from autosched.task import Status
from autosched.tuner.measure.base import CandidateError

_PARENT_CHECK_S = 2.0


@dataclass(frozen=True, slots=True)
class Setup:
    """The first frame: what a worker is to be.

    role                "module:class" of the Role
    options             what the role is made with
    memory_limit_bytes  added to the size of the process when it is ready; None: no limit
    parent              process id
    folder              temporary files of the parent's, removed when it dies without doing so
    """

    role: str
    options: Mapping[str, Any]
    memory_limit_bytes: int | None
    parent: int
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Learn:
    """A frame: something that later jobs refer to by its key."""

    key: str
    value: object


@dataclass(frozen=True, slots=True)
class Do:
    """A frame: one job."""

    number: int
    message: object


@dataclass(frozen=True, slots=True)
class Reply:
    """A frame back: the job's result, or the status and text of its failure.

    number  of the job; -1: the worker is ready
    begun   the job begins now: if the worker dies from here on, the job is to blame
    """

    number: int
    value: Any = None
    status: Status = Status.OK
    error: str = ""
    begun: bool = False


class Role(Protocol):
    """What a worker does; made with the setup's options as keywords."""

    failure: Status  # status of an exception that says nothing better

    def learn(self, key: str, value: object) -> None: ...
    def do(self, message: object) -> object: ...


@dataclass(slots=True)
class _Pipes:
    jobs: Connection
    replies: Connection
    queue: queue.SimpleQueue[Learn | Do] = field(default_factory=queue.SimpleQueue)

    def reply(self, reply: Reply) -> None:
        self.replies.send_bytes(pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))


def main(parent: int | None = None) -> None:
    """Run a worker; returns never.

    parent  the process whose child it is, if that is not the one that gives it jobs
    """
    pipes = _take_over_pipes()
    faulthandler.enable()
    with contextlib.suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    setup: Setup = pickle.loads(pipes.jobs.recv_bytes())
    if parent is not None:
        setup = replace(setup, parent=parent)
    threading.Thread(target=_receive, args=(pipes, setup), daemon=True).start()
    module, _, name = setup.role.partition(":")
    role: Role = getattr(importlib.import_module(module), name)(**setup.options)
    limit_memory(setup.memory_limit_bytes)
    pipes.reply(Reply(-1))
    while True:
        frame = pipes.queue.get()
        if isinstance(frame, Learn):
            role.learn(frame.key, frame.value)
        else:
            pipes.reply(Reply(frame.number, begun=True))
            reply, is_spoilt = serve(role, frame)
            pipes.reply(reply)
            if is_spoilt:  # the next job starts in a new process
                os._exit(1)


def serve(role: Role, job: Do) -> tuple[Reply, bool]:
    """Do one job; tells also whether the process cannot go on after it.

    This is the boundary where a candidate's exceptions, SystemExit included, become values.
    """
    try:
        return Reply(job.number, role.do(job.message)), False
    except CandidateError as error:
        return Reply(job.number, status=error.status, error=error.text), False
    except MemoryError:
        return Reply(job.number, status=Status.OUT_OF_MEMORY, error=traceback.format_exc()), False
    except BaseException as error:
        is_spoilt = getattr(role, "is_spoilt_by", lambda _: False)(error)
        return Reply(job.number, status=role.failure, error=traceback.format_exc()), is_spoilt


def _take_over_pipes() -> _Pipes:
    """Keep the two pipes for frames alone: what prints goes to standard error, and nothing waits for input."""
    pipes = _Pipes(Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return pipes


def _receive(pipes: _Pipes, setup: Setup) -> None:
    """Hand frames to the main thread; leave at once when the parent is gone.

    The pipe's end shows that, except where a forked child of the parent's still holds it: so we look at times.
    """
    try:
        while True:
            while not pipes.jobs.poll(_PARENT_CHECK_S):
                if os.getppid() != setup.parent:
                    raise EOFError
            pipes.queue.put(pickle.loads(pipes.jobs.recv_bytes()))
    except (EOFError, OSError):
        if setup.folder:  # a living parent kills its workers before it closes their pipes
            shutil.rmtree(setup.folder, ignore_errors=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def limit_memory(extra_bytes: int | None) -> None:
    """Refuse allocations beyond the present size of the process plus `extra_bytes`; write no core files."""
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = address_space_bytes()
    if extra_bytes is not None and size is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = size + extra_bytes
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def address_space_bytes() -> int | None:
    """Give the size of this process's address space; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
