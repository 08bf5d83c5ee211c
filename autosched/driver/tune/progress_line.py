"""How far a tuning is, in one line that is kept up to date; for programs that call `tune` themselves."""

from __future__ import annotations

import sys
import time
from typing import IO

from autosched.driver.tune.report import TuneReport

EVERY_S = 0.2
_BAR = 12


class ProgressLine:
    """Writes a report over the line before; call it with each report, and `close` it.

    out  a terminal, or what a notebook shows below its cell
    """

    def __init__(self, out: IO[str]):
        self.out = out
        self._next_s, self._length = 0.0, 0

    def __call__(self, report: TuneReport) -> None:
        now = time.monotonic()
        if now >= self._next_s or report.reason:
            self._next_s = now + EVERY_S
            self._write(line_of(report))

    def _write(self, text: str) -> None:
        self.out.write(f"\r{text:{self._length}}")
        self.out.flush()
        self._length = len(text)

    def close(self) -> None:
        """Leave the last line as it is."""
        if self._length:
            self.out.write("\n")
            self.out.flush()


def line_of(report: TuneReport) -> str:
    """A bar where there is a budget of time, and how far the tasks are, in at most 79 columns."""
    parts = ["tuning"]
    if report.budget_s is not None and report.left_s is not None:
        share = 1.0 if report.reason else min(1.0, 1 - report.left_s / report.budget_s)
        parts.append(f"[{'#' * round(_BAR * share):.<{_BAR}}]")
    parts.append(_clock(report.elapsed_s) + (f" of {_clock(report.budget_s)}" if report.budget_s is not None else ""))
    parts.append(f"{report.n_trials} trials" + (f", {report.n_failed} failed" if report.n_failed else ""))
    if len(report.tasks) == 1:
        if (gain := report.tasks[0].gain) is not None:
            parts.append(f"best {gain:.2f} × the default")
    else:
        parts.append(f"{sum(task.best_s is not None for task in report.tasks)} of {len(report.tasks)} kernels")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def where_it_is_seen() -> ProgressLine | None:
    """A line on stderr where that is a terminal or a notebook; None elsewhere."""
    if "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()):
        return ProgressLine(sys.stderr)
    return None
