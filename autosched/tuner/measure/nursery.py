"""Workers as forks of one process that has done what all of them begin with, which takes Numba two seconds of a core.

The nursery is a new Python process, so nothing of the caller's main module is in it, and it has one thread. It forks
when it is asked to, and tells with what code a worker has ended. Only Linux has what a process needs to end, stop and
wait for a grandchild safely (pidfds); elsewhere workers are new processes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping

from autosched.env import child_environment

WORKER_ENVIRONMENT: Mapping[str, str | None] = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONFAULTHANDLER": None,
}
_PARENT_CHECK_S = 2.0
_MOST_BYTES = 64  # of a message: a number


def has_nurseries() -> bool:
    """Whether this system has what they take."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return hasattr(socket, "send_fds") and hasattr(signal, "pidfd_send_signal")


def python_command(code: str) -> list[str]:
    """The command of a new Python process with the module path of this one."""
    path = [entry or os.getcwd() for entry in sys.path]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


class Nursery:
    """One nursery; it ends with `close`, or when this process does.

    preload  "module:function", called once before there is any worker
    """

    def __init__(self, preload: str):
        self._lock = threading.RLock()
        self._coming: deque[Fork] = deque()  # forks that were asked for and have no number yet
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"from autosched.tuner.measure.nursery import serve; serve({preload!r})"
        with theirs:
            self._process = subprocess.Popen(
                python_command(code),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=child_environment(WORKER_ENVIRONMENT),
                process_group=0,
            )

    def fork(self, jobs: int, replies: int, errors: int) -> Fork:
        """A worker with these files as its standard input, output and error output; returns at once."""
        made = Fork(self)
        with self._lock:
            self._coming.append(made)
            with contextlib.suppress(OSError):  # it is dead, which shows when the worker is asked for
                socket.send_fds(self._socket, [b"fork"], [jobs, replies, errors])
        return made

    def receive(self, fork: Fork, *, waits: bool) -> None:
        """Receive the number of a worker, and those of the ones before it; not at all if it is not there yet."""
        with self._lock:
            while fork in self._coming and (waits or select.select([self._socket], [], [], 0)[0]):
                number = self._read()
                self._coming.popleft().begin(number)

    def code_of(self, pid: int) -> int:
        """The code with which a worker has ended; its number is free from then on."""
        with self._lock:
            while self._coming:
                self.receive(self._coming[0], waits=True)
            with contextlib.suppress(OSError):
                self._socket.send(str(pid).encode())
            code = self._read()
            return -signal.SIGKILL if code is None else code

    def _read(self) -> int | None:
        """A number that the nursery sends; None once it has ended."""
        try:
            words = self._socket.recv(_MOST_BYTES)
        except OSError:
            return None
        return int(words) if words else None

    def kill(self) -> None:
        """End it; workers that it has not begun yet never will be."""
        self._process.kill()

    def close(self) -> None:
        """End it, after its workers were."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._socket.close()


class Fork:
    """A worker of a nursery, with the methods of `subprocess.Popen` that are needed."""

    def __init__(self, nursery: Nursery):
        self._nursery = nursery
        self._pid: int | None = None
        self._handle = -1
        self.returncode: int | None = None

    def begin(self, pid: int | None) -> None:
        """The nursery has begun it, or has ended without doing so."""
        self._pid = pid or 0
        if pid is None:
            self.returncode = -signal.SIGKILL
        else:
            self._handle = os.pidfd_open(pid)

    @property
    def pid(self) -> int:
        """The process id; 0 for a worker that was never begun."""
        self._nursery.receive(self, waits=True)
        return self._pid or 0

    def poll(self) -> int | None:
        """The code with which it has ended; None while it runs or has yet to begin."""
        self._nursery.receive(self, waits=False)
        if self.returncode is None and self._handle >= 0 and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._nursery.code_of(self.pid)
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The code with which it ends. Raises subprocess.TimeoutExpired."""
        if self.pid and self.returncode is None:
            select.select([self._handle], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("worker", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.pid and self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """End it; where it has yet to begin, with the nursery."""
        self._nursery.receive(self, waits=False)
        if self._pid is None:
            self._nursery.kill()
        self.send_signal(signal.SIGKILL)


def serve(preload: str) -> None:
    """Run a nursery; returns never. Its standard input is the socket."""
    parent = os.getppid()
    line = socket.socket(fileno=os.dup(0))
    line.settimeout(_PARENT_CHECK_S)
    module, _, name = preload.partition(":")
    getattr(importlib.import_module(module), name)()
    gc.collect()
    gc.freeze()  # what workers share with it they need not look at
    while os.getppid() == parent:
        try:
            words, files, _, _ = socket.recv_fds(line, _MOST_BYTES, 3)
        except TimeoutError:
            continue
        if not words:
            break
        if files:
            line.send(str(_fork(line, files)).encode())
            for file in files:
                os.close(file)
        else:
            _, status = os.waitpid(int(words), 0)
            line.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _fork(line: socket.socket, files: list[int]) -> int:
    parent = os.getpid()
    if (pid := os.fork()) != 0:
        return pid
    try:
        os.setpgid(0, 0)  # as a new process has: Ctrl-C reaches the caller alone, and it can be stopped
        line.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        from autosched.tuner.measure.worker import main

        main(parent)
    finally:
        os._exit(1)
