"""Instances of a program that run while another one of it is timed, as on a machine that serves on all its cores."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def running(others: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Let functions run again and again, each in a thread of its own, from the first line of the block to the last.

    They keep no other thread from running where they spend their time outside of Python, as models do.
    Raises  what one of them has raised.
    """
    ended, begun = threading.Event(), threading.Semaphore(0)
    failures: list[BaseException] = []

    def loop(run: Callable[[], object]) -> None:
        try:
            run()
            begun.release()
            while not ended.is_set():
                run()
        except BaseException as error:  # it belongs to the thread that waits
            failures.append(error)
            begun.release()

    threads = [threading.Thread(target=loop, args=(run,), daemon=True) for run in others]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            begun.acquire()
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
