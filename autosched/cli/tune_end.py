"""What `autosched tune` says at its end: tables of tasks, why it stopped, and what the model takes now."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from autosched.cli.output import Column, Table, say
from autosched.cli.progress import COLUMNS, heaviest_first, status_line, task_row

if TYPE_CHECKING:
    from autosched.driver import TuneReport


def is_on_screen(form: str, *, quiet: bool) -> bool:
    """Whether the live display has left the same table where the result would be printed."""
    return form == "table" and not quiet and sys.stdout.isatty() and sys.stderr.isatty()


def say_end(report: TuneReport, *, quiet: bool, is_drawn: bool = False) -> None:
    """Say how it ended, what the model takes now, and which spaces may be too narrow.

    is_drawn  the live display has said how all stands
    """
    say(status_line(report), quiet=quiet or is_drawn)
    borders = Counter(text for task in report.tasks for text in task.border)
    for text, n in borders.most_common():
        tasks = f"{n} task{'s' if n != 1 else ''}"
        say(f"on the border of its space: {text} of {tasks}; a longer list may hold a better one", quiet=quiet)
    if len(report.tasks) == 1 and (shares := report.tasks[0].importance):
        text = ", ".join(f"{knob} {100 * share:.0f} %" for knob, share in shares)
        say(f"what explains the times: {text}", quiet=quiet)
    for name, before, after in report.tasks[0].metrics if len(report.tasks) == 1 else ():
        say(f"metric {name}: {before:.4g} → {after:.4g}", quiet=quiet)
    if report.peak is not None:
        say(f"{report.tasks[0].name} runs {report.peak.text}", quiet=quiet)
    if report.interrupted:
        say(f"interrupted; what was measured is in {report.database}", quiet=quiet)
        return
    checked = f"{report.model.text}; " if report.model is not None else ""
    if report.tasks and all(task.best_s is None for task in report.tasks) and not report.n_trials:
        say(f"done: {report.reason}; it ended before anything was measured", quiet=quiet)
        return
    say(f"done: {report.reason}; {checked}saved to {report.database}", quiet=quiet)


def report_table(report: TuneReport, form: str) -> Table:
    """The tasks of one model, with what is said of all of them; as text the heaviest come first."""
    is_text = form not in ("json", "csv")
    model = None if report.model is None else {**asdict(report.model), "text": report.model.text}
    summary = {
        "elapsed_s": report.elapsed_s,
        "n_trials": report.n_trials,
        "n_failed": report.n_failed,
        "failures": report.failures,
        "n_skipped": report.n_skipped,
        "reason": report.reason,
        "database": report.database,
        "interrupted": report.interrupted,
        "n_before": report.n_before,
        "noise": report.noise,
        "drift": report.drift,
        "notes": report.notes,
        "model": model,
        "peak": None if report.peak is None else {**asdict(report.peak), "text": report.peak.text},
    }
    more = (
        Column("config", "configuration"),
        Column("border", "border", "; ".join),
        Column("importance", "importance"),
    )
    rows = [
        {**task_row(task), "config": task.config, "border": task.border, "importance": dict(task.importance)}
        for task in (heaviest_first(report.tasks) if is_text else report.tasks)
    ]
    return Table(COLUMNS if is_text else (*COLUMNS, *more), rows, summary=summary)


def table_of_all(reports: Sequence[tuple[str, TuneReport]], form: str) -> Table:
    """The tasks of several models in one table; what is said of each model stands in a list of summaries."""
    tables = [(model, report_table(report, form)) for model, report in reports]
    rows = [{"model": model, **row} for model, table in tables for row in table.rows]
    columns = (Column("model", "model"), *tables[0][1].columns)
    return Table(columns, rows, summary={"models": [{"model": model, **table.summary} for model, table in tables]})
