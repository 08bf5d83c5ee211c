"""Says what goes on in a step of more than two seconds: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import IO

from autosched.cli.output import clock
from autosched.printable import printable


class Waiting:
    """Shows a step from its third second on; use it in a `with` block.

    what    the step, such as "building model.onnx"
    detail  asked each time for what has been reached, such as "7 of 20 kernels compiled"
    """

    def __init__(
        self,
        what: str,
        *,
        quiet: bool = False,
        detail: Callable[[], str] = str,
        out: IO[str] | None = None,
        after_s: float = 2.0,
        every_s: float = 10.0,
    ):
        self.what, self.quiet, self.detail = what, quiet, detail
        self.out = out or sys.stderr
        self.after_s, self.every_s = after_s, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Waiting:
        if not self.quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _show(self) -> None:
        start = time.monotonic()
        if self._ended.wait(self.after_s):
            return
        is_terminal = self.out.isatty()
        while True:
            detail = self.detail()
            text = printable(f"[{clock(time.monotonic() - start)}] {self.what}{': ' if detail else ''}{detail}")
            print(
                f"\r\x1b[2K{text}" if is_terminal else text, end="" if is_terminal else "\n", file=self.out, flush=True
            )
            if self._ended.wait(0.25 if is_terminal else self.every_s):
                break
        if is_terminal:
            print("\r\x1b[2K", end="", file=self.out, flush=True)


def compiling(what: str, *, quiet: bool = False) -> Waiting:
    """Wait for a build, and say how many of its kernels have been compiled."""
    from autosched.codegen import counters

    asked, done = counters.ASKED.value, counters.FINISHED.value

    def detail() -> str:
        total, compiled = counters.ASKED.value - asked, counters.FINISHED.value - done
        if not total:
            return "preparing the graph"
        return f"{compiled} of {total} kernels compiled{', finishing' if compiled >= total else ''}"

    return Waiting(what, quiet=quiet, detail=detail)
