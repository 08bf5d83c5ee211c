"""What `tune` shows where nobody has asked for more: one line that fits a terminal."""

from __future__ import annotations

import io

import pytest

from autosched.driver.tune import progress_line
from autosched.driver.tune.progress_line import ProgressLine, line_of, where_it_is_seen
from autosched.driver.tune.report import TaskReport, TuneReport


def report(elapsed_s: float, n_tasks: int = 2, reason: str = "") -> TuneReport:
    tasks = [TaskReport(f"k{i}", 1, default_s=2e-3, best_s=1e-3 if not i else None) for i in range(n_tasks)]
    return TuneReport(
        tasks, elapsed_s=elapsed_s, left_s=60 - elapsed_s, budget_s=60.0, n_trials=34, n_failed=1, reason=reason
    )


def test_a_bar_for_the_budget_and_what_was_reached() -> None:
    assert line_of(report(30.0)) == "tuning  [######......]  0:30 of 1:00  34 trials, 1 failed  1 of 2 kernels"
    assert line_of(report(30.0, n_tasks=1)).endswith("best 2.00 × the default")
    assert line_of(TuneReport([TaskReport("k", 1)], elapsed_s=65.0)) == "tuning  1:05  0 trials"
    assert len(line_of(report(59.0))) < 80


def test_a_shorter_line_leaves_nothing_of_the_one_before() -> None:
    out = io.StringIO()
    line = ProgressLine(out)
    line(report(10.0))
    line(report(20.0))  # too soon after the first one to be written
    line(TuneReport([], reason="done"))
    line.close()
    first, second = out.getvalue().strip("\n").split("\r")[1:]
    assert "0:10" in first and "0:00" in second and len(second) == len(first)
    assert out.getvalue().endswith("\n")


def test_only_a_terminal_or_a_notebook_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert where_it_is_seen() is None
    monkeypatch.setitem(progress_line.sys.modules, "ipykernel", progress_line)
    assert where_it_is_seen() is not None
