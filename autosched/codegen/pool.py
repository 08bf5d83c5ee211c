"""Compiles many kernels at once: in this process and in some others, each taking the next one when it is free.

Other processes are started by name and not by multiprocessing's spawn, which would run the caller's main script again.
One may be started ahead, before it is known what there is to compile, so that it has imported what it needs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from autosched.env import child_environment

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("autosched.codegen")


# ---- frames between this process and its workers: 8 bytes of length and a pickle

_LENGTH = 8


class NotDone:
    """The answer to what a worker could not read, or whose answer cannot be sent: who asked does it himself."""


def write_frame(stream: IO[bytes], value: object) -> None:
    """Send one value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(_LENGTH, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Receive one value. Raises EOFError where the other side has ended."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError("the other process has ended")
    size = int.from_bytes(head, "little")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other process has ended within a message")
    return pickle.loads(data)


def map_in_processes(
    work: Mapping[K, T],
    here: Callable[[T], R],
    message: Callable[[T], object],
    helpers: int,
    finished: Callable[[], object] = int,
) -> dict[K, R | Exception]:
    """The result, or the exception, for each item of `work`.

    What a helper cannot be sent, or fails to answer, is done in this process.

    here     does an item in this process; `message` makes of an item what a helper is sent
    helpers  further processes; one that ends before its time costs nothing but its share of the work
    finished called after each item
    """
    todo: deque[tuple[K, T]] = deque(work.items())
    left: deque[tuple[K, T]] = deque()  # what helpers could not do
    results: dict[K, R | Exception] = {}
    threads = [
        threading.Thread(target=_drive, args=(todo, left, results, message, finished), daemon=True)
        for _ in range(helpers)
    ]
    for thread in threads:
        thread.start()
    while (item := _next(todo)) is not None:
        results[item[0]] = _attempt(here, item[1])
        finished()
    for thread in threads:
        thread.join()
    while (item := _next(left) or _next(todo)) is not None:
        results[item[0]] = _attempt(here, item[1])
        finished()
    return results


def _next(todo: deque[tuple[K, T]]) -> tuple[K, T] | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def _attempt(here: Callable[[T], R], item: T) -> R | Exception:
    try:
        return here(item)
    except Exception as error:  # noqa: BLE001  (the caller raises it)
        return error


def _drive(
    todo: deque[tuple[K, T]],
    left: deque[tuple[K, T]],
    results: dict[K, R | Exception],
    message: Callable[[T], object],
    finished: Callable[[], object],
) -> None:
    """Give items to a process of our own until none are left; with one that fails, whatever the reason, end."""
    try:
        helper = take_spare() or Helper()
    except Exception as error:  # noqa: BLE001  (this process does the work)
        _log.debug("no helper: %s", error)
        return
    with contextlib.closing(helper):
        while (item := _next(todo)) is not None:
            try:
                helper.ask(message(item[1]))
                answer = helper.answers()[-1]
            except Exception as error:  # noqa: BLE001  (an item that cannot be pickled, an answer that cannot be read, …)
                _log.debug("a helper failed: %r", error)
                left.append(item)
                return
            if isinstance(answer, NotDone):
                left.append(item)
                continue
            results[item[0]] = answer
            finished()


class Helper:
    """A process that compiles for this one. Raises OSError where none can be started."""

    def __init__(self) -> None:
        self._process = _start()
        self._owed = 0

    def ask(self, message: object) -> None:
        """Send it something to do. Raises OSError where it has ended."""
        assert self._process.stdin is not None, "it is a pipe"
        write_frame(self._process.stdin, message)
        self._owed += 1

    def answers(self) -> list[Any]:
        """Wait for what it was asked; in that order. Raises EOFError where it has ended before."""
        assert self._process.stdout is not None, "it is a pipe"
        found = []
        while self._owed:
            self._owed -= 1
            found.append(read_frame(self._process.stdout))
        return found

    def close(self) -> None:
        """Let it end, and wait until it has; what it is still doing is not waited for."""
        assert self._process.stdin is not None and self._process.stdout is not None, "both are pipes"
        if self._owed:
            self._process.terminate()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.wait()


_spares: list[Helper] = []


def start_spare() -> None:
    """Start a helper that the next compilation takes over."""
    with contextlib.suppress(OSError):
        _spares.append(Helper())


def take_spare() -> Helper | None:
    """A helper that was started ahead, if there is one; it is the caller's now."""
    try:
        return _spares.pop()
    except IndexError:
        return None


def close_spares() -> None:
    """End the helpers that were not taken."""
    while (helper := take_spare()) is not None:
        helper.close()


def _start() -> subprocess.Popen[bytes]:
    """A helper."""
    return start_process("autosched.codegen.worker")


def start_process(module: str) -> subprocess.Popen[bytes]:
    """A Python process that runs a module, with pipes, and finds the package where this process found it."""
    environment = child_environment()
    paths = [
        str(Path(__file__).parents[2]),
        *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
