"""`autosched tune`: search for the fastest kernels of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autosched.cli.common import Common, make_command
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import Column, Table, say, show
from autosched.cli.process import EXIT_INTERRUPTED
from autosched.cli.progress import COLUMNS, TuneDisplay, status_line, task_row
from autosched.cli.values import DURATION, INDICES, SHAPES, Count
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError

EXAMPLE = """
autosched tune model.onnx --budget 10m
autosched tune model.onnx --list
autosched tune model.onnx --trials 300 --tasks 0,3-5 --db tuned.db
"""

LIST_COLUMNS = (
    Column("index", "task", right=True),
    Column("name", "workload"),
    Column("weight", "×", right=True),
    Column("templates", "templates", ", ".join),
    Column("configs", "configurations", lambda count: f"{count:,}", right=True),
    Column("record", "record"),
)


@make_command("tune", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--budget", type=DURATION, help="Stop after this time: 90s, 10m, 1h30m.")
@click.option("--trials", type=Count(min=1), metavar="N", help="Stop after so many measurements, all tasks together.")
@click.option("--tasks", type=INDICES, help="Tune only these tasks of --list: 0,3-5.")
@click.option("--list", "only_list", is_flag=True, help="Show the tasks and tune nothing.")
@click.option(
    "--strategy", default="auto", show_default=True, metavar="NAME", help="How to search: random, gp, xgboost, …"
)
@click.option("--seed", type=Count(min=0), metavar="S", default=0, show_default=True, help="Of the search.")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
def command(
    common: Common,
    model: Path,
    budget: float | None,
    trials: int | None,
    tasks: tuple[int, ...] | None,
    only_list: bool,
    strategy: str,
    seed: int,
    shapes: Shapes | None,
) -> int:
    """Search for the fastest kernels of MODEL on this machine and remember them.

    Results are stored as they come: an interrupted tuning goes on where it was. Without --budget and --trials it
    stops when it expects to gain less than one percent. A kernel is never made slower than its default.
    """
    if len(common.db) > 1:
        raise UsageError(f"{len(common.db)} databases given; tuning writes to one")
    module = load_module(model, shapes, quiet=common.is_quiet)
    database = common.db[0] if common.db else None
    from autosched import driver

    if only_list:
        with Waiting(f"finding the tasks of {model.name}", quiet=common.is_quiet):
            rows = driver.list_tasks(module, target=common.target, threads=common.threads, records=database)
        show(Table(LIST_COLUMNS, rows), common.format)
        return 0
    _check_strategy(strategy)
    options = driver.TuneOptions(
        budget_s=budget, trials=trials, threads=common.threads, strategy=strategy, seed=seed, tasks=tasks
    )
    with TuneDisplay(quiet=common.is_quiet) as display:
        report = driver.tune(module, target=common.target, records=database, options=options, progress=display)
    show(_report_table(report), common.format)
    say(status_line(report), quiet=common.is_quiet)
    if report.interrupted:
        say(f"interrupted; what was measured is in {report.database}", quiet=common.is_quiet)
        return EXIT_INTERRUPTED
    say(f"{report.reason}; saved to {report.database}", quiet=common.is_quiet)
    return 0


def _check_strategy(name: str) -> None:
    from autosched.tuner.search.registry import STRATEGIES

    if name not in ("auto", *STRATEGIES):
        raise UsageError(f"no strategy '{name}'", hint=f"there are auto, {', '.join(STRATEGIES)}")


def _report_table(report: Any) -> Table:
    summary = {
        "elapsed_s": report.elapsed_s,
        "n_trials": report.n_trials,
        "n_failed": report.n_failed,
        "reason": report.reason,
        "database": report.database,
    }
    return Table(COLUMNS, [task_row(task) for task in report.tasks], summary=summary)
