"""`autosched logs plot`: convergence and knob importance, drawn in the terminal or as a picture."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import open_database, with_filter, workload_text
from autosched.cli.output import Column, Table, count, percent, say, show
from autosched.cli.paths import check_output
from autosched.errors import UsageError
from autosched.printable import printable

if TYPE_CHECKING:
    from autosched.records import Record, RecordFilter

COLUMNS = (
    Column("kind", "chart"),
    Column("x", "trial or knob"),
    Column("y", "ms or share"),
)


@make_command(
    "plot",
    example='autosched logs plot --db tuned.db\nautosched logs plot "conv2d 1x64" --where "threads=2" -o conv.svg',
)
@click.argument("task", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Picture to write: a .png or .svg file.")
@with_filter
def plot(common: Common, chosen: RecordFilter, task: str | None, output: Path | None) -> None:
    """Draw how the best time fell, and which knobs decide it, for one task: the one with the most trials.

    TASK is a part of a workload's text as `autosched logs list` shows it. Other forms than a table give the numbers;
    with -o it is a picture instead of a drawing in the terminal.
    """
    from autosched.records.importance import HOW, knob_importance
    from autosched.records.report.document import improvements

    if output is not None:
        _check_picture(output, common)
    with open_database(common) as store:
        tasks = [t for t in store.tasks(chosen) if task is None or task in workload_text(t.workload)]
        if not tasks:
            what = "no trials that fit" if task is None else f"no task whose text holds '{task}'"
            raise UsageError(what, where=store.origin, hint="see `autosched logs list`")
        most = max(tasks, key=lambda t: t.n_trials)
        found = store.records(replace(chosen, workload=most.workload))
        records = [r for r in found if (r.device, r.threads) == (most.device, most.threads)]
    title = printable(f"{workload_text(most.workload)}, {count(most.threads, 'thread')}")
    if output is not None:
        _save(output, title, records)
        say(f"{count(len(records), 'trial')} of {title} in {output}", quiet=common.is_quiet)
    steps, importance = improvements(records), knob_importance(records)
    if common.format != "table":
        rows = [{"kind": "convergence", "x": n, "y": time_ms} for n, time_ms in steps]
        rows += [{"kind": "importance", "x": knob, "y": share} for knob, share in importance]
        show(Table(COLUMNS, rows), common.format)
    if output is not None or common.format != "table":
        return
    print(_convergence(title, steps))
    print()
    for knob, share in importance[:10]:
        print(f"{printable(knob)[:20]:>20} {'█' * round(30 * share):<30} {percent(share)}")
    say(f"knob importance: {HOW}" if importance else "too few trials for knob importance", quiet=common.is_quiet)


def _check_picture(path: Path, common: Common) -> None:
    """Refuse what cannot become a picture before anything is read. Raises UsageError."""
    from autosched.records.report.figure import FORMATS

    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} is neither a PNG nor an SVG file", hint="end its name in .png or .svg")
    check_output(path, inputs=[Path(where) for where in common.db])


def _save(path: Path, title: str, records: Sequence[Record]) -> None:
    """Write the picture whole or not at all. Raises UsageError, RecordError."""
    from autosched.records.report.figure import save_figure

    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        save_figure(temporary, title, records)
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _convergence(title: str, steps: Sequence[Sequence[float]]) -> str:
    """The best time in ms over the trials, as wide as the terminal."""
    try:
        import plotext
    except ModuleNotFoundError:
        raise UsageError("drawing in the terminal needs plotext", hint="pip install plotext") from None
    if not steps:
        return f"{title}: nothing has worked"
    xs: list[float] = []
    ys: list[float] = []
    for n, time_ms in steps:
        if ys:  # the best stays until it gets better
            xs, ys = [*xs, n], [*ys, ys[-1]]
        xs, ys = [*xs, n], [*ys, time_ms]
    plotext.clear_figure()
    columns, lines = shutil.get_terminal_size((80, 24))
    plotext.plot_size(min(columns, 100), max(10, min(lines - 4, 18)))
    plotext.plot(xs, ys, marker="braille")
    plotext.title(title[: columns - 4])
    plotext.xlabel("trials")
    plotext.ylabel("best ms")
    text = plotext.build()
    return str(text) if sys.stdout.isatty() else str(plotext.uncolorize(text))
