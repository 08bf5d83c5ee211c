"""Ctrl-C while something long runs: once to end in good order, twice to end at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Within its `with` block the first Ctrl-C only sets `is_asked`; the second raises KeyboardInterrupt.

    Handlers that somebody else has set, and threads other than the main one, which get no signals, are left alone.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._old: Any = None

    def __enter__(self) -> Interruption:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._old = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
