"""Compiles many kernels at once: in this process and in some others, each taking the next one when it is free.

Other processes are started by name and not by multiprocessing's spawn, which would run the caller's main script again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from autosched.codegen.worker import read_frame, write_frame
from autosched.env import child_environment

K = TypeVar("K", bound=Hashable)


def map_in_processes(
    work: Mapping[K, Any],
    here: Callable[[Any], Any],
    message: Callable[[Any], Any],
    helpers: int,
    finished: Callable[[], object] = int,
) -> dict[K, Any]:
    """The result, or the exception, for each item of `work`.

    here     does an item in this process; `message` makes of an item what a helper is sent
    helpers  further processes; one that ends before its time costs nothing but its share of the work
    finished called after each item
    """
    todo: deque[tuple[K, Any]] = deque(work.items())
    results: dict[K, Any] = {}
    threads = [
        threading.Thread(target=_drive, args=(todo, results, message, finished), daemon=True) for _ in range(helpers)
    ]
    for thread in threads:
        thread.start()
    while True:
        while (item := _next(todo)) is not None:
            results[item[0]] = _attempt(here, item[1])
            finished()
        for thread in threads:
            thread.join()
        if not todo:  # a helper that failed has put its item back
            return results


def _next(todo: deque[tuple[K, Any]]) -> tuple[K, Any] | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def _attempt(here: Callable[[Any], Any], item: Any) -> Any:
    try:
        return here(item)
    except Exception as error:  # noqa: BLE001  (the caller raises it)
        return error


def _drive(
    todo: deque[tuple[K, Any]],
    results: dict[K, Any],
    message: Callable[[Any], Any],
    finished: Callable[[], object],
) -> None:
    """Give items to a process of our own until none are left."""
    try:
        process = _start()
    except OSError:
        return
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    with process:
        while (item := _next(todo)) is not None:
            try:
                write_frame(process.stdin, message(item[1]))
                results[item[0]] = read_frame(process.stdout)
                finished()
            except (OSError, EOFError):
                todo.append(item)
                break
        with contextlib.suppress(OSError):
            process.stdin.close()


def _start() -> subprocess.Popen[bytes]:
    """A helper that finds the package where this process found it."""
    environment = child_environment()
    paths = [
        str(Path(__file__).parents[2]),
        *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    command = [sys.executable, "-m", "autosched.codegen.worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
