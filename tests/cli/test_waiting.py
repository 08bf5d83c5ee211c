"""A short step says nothing; a long one says what it does, and on a terminal leaves nothing behind."""

from __future__ import annotations

import io
import time

from autosched.cli.waiting import Waiting, compiling
from autosched.codegen import counters


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_short_step_says_nothing() -> None:
    out = io.StringIO()
    with Waiting("blinking", out=out, after_s=60):
        pass
    assert not out.getvalue()


def test_plain_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with Waiting("building", out=out, after_s=0, every_s=0.02, detail=lambda: "1 of 3"):
        time.sleep(0.1)
    lines = out.getvalue().splitlines()
    assert len(lines) > 1
    assert set(lines) == {"[0:00] building: 1 of 3"}


def test_a_line_that_is_wiped_on_a_terminal() -> None:
    out = Terminal()
    with Waiting("building", out=out, after_s=0):
        time.sleep(0.02)
    assert out.getvalue() == "\r\x1b[2K[0:00] building\r\x1b[2K"


def test_quiet() -> None:
    out = io.StringIO()
    with Waiting("building", out=out, after_s=0, quiet=True):
        time.sleep(0.02)
    assert not out.getvalue()


def test_a_build_counts_its_kernels() -> None:
    waiting = compiling("building m.onnx")
    assert waiting.detail() == "preparing the graph"
    counters.ASKED.add(3)
    counters.FINISHED.add(2)
    assert waiting.detail() == "2 of 3 kernels compiled"
    counters.FINISHED.add()
    assert waiting.detail() == "3 of 3 kernels compiled, finishing"
