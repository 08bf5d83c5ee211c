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
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

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
    return pickle.loads(read_bytes(stream))


def read_bytes(stream: IO[bytes]) -> bytes:
    """Receive one value's pickle. Raises EOFError where the other side has ended."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError("the other process has ended")
    size = int.from_bytes(head, "little")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other process has ended within a message")
    return data


class SharedWork(Generic[K, T, R]):
    """Items that this process and helpers do, each taking the next one; helpers begin while items are still added.

    What a helper cannot be sent, or fails to answer, is done in this process. A helper has its next item before it is
    done with one: this process, which is busy, would take some milliseconds to answer it.

    here     does an item in this process; `message` makes of an item what a helper is sent
    finished called after each item
    kin      items of equal kin cost less after each other, so one process does them where it can
    """

    def __init__(
        self,
        here: Callable[[T], R],
        message: Callable[[T], object],
        finished: Callable[[], object] = int,
        kin: Callable[[T], Hashable] = id,
    ) -> None:
        self._here, self._message, self._finished, self._kin = here, message, finished, kin
        self._todo: list[tuple[K, T, Hashable]] = []  # with their kin
        self._left: list[tuple[K, T, Hashable]] = []  # what helpers could not do
        self._begun: dict[object, Hashable] = {}  # by who did it: the kin of the item begun last
        self._results: dict[K, R | Exception] = {}
        self._changed = threading.Condition()
        self._is_open = True
        self._threads: list[threading.Thread] = []

    @property
    def helpers(self) -> int:
        """Processes that help."""
        return len(self._threads)

    def add(self, key: K, item: T) -> None:
        """One item more."""
        with self._changed:
            self._todo.append((key, item, self._kin(item)))
            self._changed.notify()

    def start_helper(self) -> None:
        """One process more; that it ends before its time costs nothing but its share of the work."""
        thread = threading.Thread(target=self._drive, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Nothing is added any more; what nobody has begun is given up."""
        with self._changed:
            self._todo.clear()
            self._is_open = False
            self._changed.notify_all()

    def finish(self) -> dict[K, R | Exception]:
        """Do what is left; the result, or the exception, of each item."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        self._work(self._todo)
        for thread in self._threads:
            thread.join()
        self._work(self._left)
        return self._results

    def _work(self, items: list[tuple[K, T, Hashable]]) -> None:
        while True:
            with self._changed:
                if not items:
                    return
                key, item, _ = self._take(items)
            self._results[key] = _attempt(self._here, item)
            self._finished()

    def _next(self) -> tuple[K, T, Hashable] | None:
        with self._changed:
            while not self._todo and self._is_open:
                self._changed.wait()
            return self._take(self._todo) if self._todo else None

    def _ahead(self) -> tuple[K, T, Hashable] | None:
        """An item for a helper that has one to do, where enough are left for all others."""
        with self._changed:
            return self._take(self._todo) if len(self._todo) > self.helpers + 1 else None

    def _take(self, items: list[tuple[K, T, Hashable]]) -> tuple[K, T, Hashable]:
        """The first item of the kin that this thread's last one had; else of a kin that no other is at; else any."""
        me = threading.get_ident()
        mine, others = self._begun.get(me), {kin for who, kin in self._begun.items() if who != me}
        kins = [kin for _, _, kin in items]
        at = kins.index(mine) if mine in kins else next((i for i, kin in enumerate(kins) if kin not in others), 0)
        self._begun[me] = kins[at]
        return items.pop(at)

    def _drive(self) -> None:
        """Give items to a process of our own until none are left; with one that fails, whatever the reason, end."""
        try:
            helper = take_spare() or Helper()
        except Exception as error:  # noqa: BLE001  (this process does the work)
            _log.debug("no helper: %s", error)
            return
        given: deque[tuple[K, T, Hashable]] = deque()
        with contextlib.closing(helper):
            while (item := self._ahead() if given else self._next()) is not None or given:
                try:
                    if item is not None:
                        given.append(item)
                        helper.ask(self._message(item[1]))
                        if len(given) < 2:
                            continue
                    answer = helper.answer()
                except Exception as error:  # noqa: BLE001  (an item that cannot be pickled, an answer that cannot be read, …)
                    _log.debug("a helper failed: %r", error)
                    self._left += given
                    return
                done = given.popleft()
                if isinstance(answer, NotDone):
                    self._left.append(done)
                    continue
                self._results[done[0]] = answer
                self._finished()


def _attempt(here: Callable[[T], R], item: T) -> R | Exception:
    try:
        return here(item)
    except Exception as error:  # noqa: BLE001  (the caller raises it)
        return error


class Helper:
    """A process that compiles for this one, with `module` imported. Raises OSError where none can be started."""

    def __init__(self, module: str = "") -> None:
        self._process = _start(module)
        self._owed = 0

    def ask(self, message: object) -> None:
        """Send it something to do. Raises OSError where it has ended."""
        assert self._process.stdin is not None, "it is a pipe"
        write_frame(self._process.stdin, message)
        self._owed += 1

    def answer(self) -> Any:
        """Wait for the first answer that it owes. Raises EOFError where it has ended before."""
        assert self._process.stdout is not None, "it is a pipe"
        self._owed -= 1
        return read_frame(self._process.stdout)

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


def start_spare(module: str = "") -> None:
    """Start a helper that the next compilation takes over, and let it import the module whose requests it will get."""
    with contextlib.suppress(OSError):
        _spares.append(Helper(module))


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


def _start(module: str) -> subprocess.Popen[bytes]:
    """A helper."""
    return start_process("autosched.codegen.worker", *filter(None, [module]))


def start_process(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A Python process that runs a module, with pipes, and finds the package where this process found it."""
    environment = child_environment()
    paths = [
        str(Path(__file__).parents[2]),
        *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
