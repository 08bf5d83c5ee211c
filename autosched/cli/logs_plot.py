"""`autosched logs plot`: convergence and knob importance, drawn in the terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import open_database, with_filter
from autosched.cli.output import Column, Table, percent, show
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.records import Record, RecordFilter

COLUMNS = (
    Column("kind", "chart"),
    Column("x", "trial or knob"),
    Column("y", "ms or share"),
)


@make_command("plot", example='autosched logs plot --db tuned.db\nautosched logs plot "conv2d 1x64" --where "threads=2"')
@click.argument("task", required=False)
@with_filter
def plot(common: Common, chosen: RecordFilter, task: str | None) -> None:
    """Draw how the best time fell, and which knobs decide it, for one task: the one with the most trials.

    TASK is a part of a workload's text as `autosched logs list` shows it. Other forms than a table give the numbers.
    """
    from autosched.records.importance import HOW, knob_importance
    from autosched.records.report.document import _steps

    with open_database(common) as store:
        tasks = [t for t in store.tasks(chosen) if task is None or task in _text(t.workload) or task in t.workload]
        if not tasks:
            raise UsageError("no such task", where=store.origin, hint="see `autosched logs list`")
        most = max(tasks, key=lambda t: t.n_trials)
        records = [r for r in store.trials_of(most) if _is_chosen(r, chosen)]
    steps, importance = _steps(records), knob_importance(records)
    if common.format != "table":
        rows = [{"kind": "convergence", "x": n, "y": time_ms} for n, time_ms in steps]
        rows += [{"kind": "importance", "x": knob, "y": share} for knob, share in importance]
        show(Table(COLUMNS, rows), common.format)
        return
    print(_convergence(f"{_text(most.workload)}, {most.threads} threads", steps, len(records)))
    for knob, share in importance[:10]:
        print(f"{knob:>20} {'█' * round(40 * share):<40} {percent(share)}")
    print(f"knob importance: {HOW}" if importance else "too few trials for knob importance")
