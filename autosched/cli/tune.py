"""`autosched tune`: search for the fastest kernels of a model."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli.cluster_options import measuring_on, with_access
from autosched.cli.common import Common, make_command
from autosched.cli.model import Shapes, check_source, load_module
from autosched.cli.output import Column, Table, milliseconds, percent, say, show
from autosched.cli.own import list_own, own_function, tune_own
from autosched.cli.process import EXIT_FAILED, EXIT_INTERRUPTED
from autosched.cli.progress import COLUMNS, TuneDisplay, status_line, task_row
from autosched.cli.project import project_models
from autosched.cli.shape_options import settle_shapes, with_shapes
from autosched.cli.values import DURATION, INDICES, SHARE, Count, format_shapes
from autosched.cli.waiting import Waiting
from autosched.errors import AutoschedError, UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions, TuneReport
    from autosched.driver.tune_all import Run

EXAMPLE = """
autosched tune model.onnx --budget 10m
autosched tune model.onnx --list
autosched tune model.onnx --until 2%
autosched tune model.onnx --trials 300 --tasks 0,3-5 --db tuned.db
autosched tune model.onnx --shapes "x:1..512x784" --budget 10m
autosched tune --all --budget 30m
"""

LIST_COLUMNS = (
    Column("index", "task", right=True),
    Column("name", "workload"),
    Column("weight", "×", right=True),
    Column("share", "share", percent, right=True),
    Column("default_s", "default ms", milliseconds, right=True),
    Column("roofline_s", "roofline ms", milliseconds, right=True),
    Column("peak_share", "of peak", percent, right=True),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("expected_gain", "est. gain", percent, right=True),
    Column("templates", "templates", ", ".join),
    Column("configs", "configurations", lambda count: f"{count:,}", right=True),
    Column("record", "record"),
)


@make_command("tune", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--all", "every", is_flag=True, help="Tune every model that the project's autosched.toml names.")
@click.option("--keep-going", is_flag=True, help="With --all: go on after a model that cannot be tuned (exit code 1).")
@click.option("--budget", type=DURATION, help="Stop after this time: 90s, 10m, 1h30m.")
@click.option("--trials", type=Count(min=1), metavar="N", help="Stop after so many measurements, all tasks together.")
@click.option("--until", type=SHARE, metavar="SHARE", help="Stop when less than this is expected: 1% (default), 0.")
@click.option("--tasks", type=INDICES, help="Tune only these tasks of --list: 0,3-5.")
@click.option("--list", "only_list", is_flag=True, help="Show the tasks and tune nothing.")
@click.option(
    "--strategy", default="auto", show_default=True, metavar="NAME", help="How to search: random, gp, xgboost, …"
)
@click.option("--seed", type=Count(min=0), metavar="S", default=0, show_default=True, help="Of the search.")
@click.option(
    "--spaces", type=click.Path(path_type=Path), metavar="DIR", help="Search spaces before the project's own."
)
@click.option(
    "--cache",
    type=click.Choice(("auto", "cold", "warm")),
    default="auto",
    show_default=True,
    help="How kernels find their weights: cold as in a model, or warm as in a loop of calls.",
)
@click.option("--cold", is_flag=True, help="Learn nothing from records of other workloads, devices and versions.")
@click.option("--fresh", is_flag=True, help="Begin a new budget even if an earlier run was killed before it ended.")
@click.option(
    "--verify",
    type=click.Choice(("model", "task")),
    default="model",
    show_default=True,
    help="Judge winners inside the built model too, or each alone.",
)
@click.option(
    "--as",
    "run_as",
    type=click.Choice(("latency", "throughput")),
    default="latency",
    show_default=True,
    help="Measure one instance alone, or one thread while others run on the other cores.",
)
@with_shapes
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Arguments of a function of one's own: .npz by the names of its parameters.",
)
@click.option("--on", metavar="ADDRESS", help="Measure on the workers of this dask scheduler: tcp://host:8786.")
@with_access
def command(
    common: Common,
    model: Path | None,
    every: bool,
    keep_going: bool,
    budget: float | None,
    trials: int | None,
    until: float | None,
    tasks: tuple[int, ...] | None,
    only_list: bool,
    strategy: str,
    seed: int,
    spaces: Path | None,
    cache: Any,
    cold: bool,
    fresh: bool,
    verify: Any,
    run_as: Any,
    points: Sequence[Shapes],
    inputs: Path | None,
    on: str | None,
    **access: Any,
) -> int:
    """Search for the fastest kernels of MODEL on this machine and remember them.

    Results are stored as they come: the same command goes on where an interrupted tuning was, and spends what is
    left of its budget. Without --budget and --trials it stops when it expects to gain less than one percent. A kernel
    is never made slower than its default, and at the end the winners are judged inside the built model.

    MODEL may be a function of autosched.autotune, "package.module:function": it is tuned with --inputs, or its example.

    With --all, what autosched.toml names, one after the other: [tune] models = ["m.onnx", …], kernels = ["p.m:f"].
    What is left of --budget and --trials is shared evenly among those to come.

    For a range of shapes, "x:1..512x784", a few that stand for all are tuned one after the other; then every winner
    is measured at each of them, few are kept, and a build at any shape of the range uses what is best near it.
    """
    if len(common.db) > 1:
        raise UsageError(f"{len(common.db)} databases given; tuning writes to one")
    if on is not None and run_as == "throughput":
        raise UsageError("--as throughput measures on this machine alone", hint="leave out --on")
    if keep_going and not every:
        raise UsageError("--keep-going does nothing without --all")
    models = _chosen_models(model, every, points, {"--list": only_list, "--tasks": tasks})
    if only_list:
        return _list(common, *models[0], spaces, inputs)
    for path, _ in () if keep_going else models:
        check_source(path)
    if (
        model is not None and len(points) > 1
    ):  # a size that is fixed shows at one end of the range: before hours are spent
        for end in (points[0], points[-1]):
            load_module(model, end, quiet=True)
    from autosched import driver

    _check_strategy(strategy)
    options = driver.TuneOptions(
        budget_s=budget,
        trials=trials,
        until=0.01 if until is None else until,
        threads=common.threads,
        strategy=strategy,
        seed=seed,
        tasks=tasks,
        spaces=spaces,
        cache=cache,
        hints=not cold,
        fresh=fresh,
        verify=verify,
        run_as=run_as,
    )
    run = _run_over(common, models, options) if len(models) > 1 else None
    if run is not None:
        models = [entry for entry in models if not run.part(_name(*entry)).is_complete]
    reports: list[tuple[str, TuneReport]] = []
    for name, report in _tune(common, models, options, run, inputs, on, access, keep_going):
        reports.append((name, report))
        if run is None:
            show(_report_table(report, common.format), common.format)
        if common.format != "json":
            _say_end(report, quiet=common.is_quiet)
    if run is not None and reports:
        show(_table_of_all(reports, common.format), common.format)
    if reports and reports[-1][1].interrupted:
        return EXIT_INTERRUPTED
    if model is not None and len(points) > 1:
        settle_shapes(common, model, points, options, on, access)
    return EXIT_FAILED if len(reports) < len(models) else 0


def _chosen_models(
    model: Path | None, every: bool, points: Sequence[Shapes], others: Mapping[str, Any]
) -> Sequence[tuple[Path, Shapes | None]]:
    """The models to tune, with their shapes. Raises UsageError for flags that do not go with them.

    others  flags of one model at one shape, by name
    """
    if len(points) > 1 and (used := [name for name, value in others.items() if value]):
        raise UsageError(f"{used[0]} takes one shape of each input, not a range")
    if not every:
        return _one_model(model, points)
    if used := [name for name, value in {**others, "MODEL": model, "--shapes": points}.items() if value]:
        raise UsageError(f"{used[0]} and --all exclude each other")
    return project_models()


def _one_model(model: Path | None, points: Sequence[Shapes]) -> Sequence[tuple[Path, Shapes | None]]:
    """The model that was given, at each shape to tune for. Raises click.UsageError where there is none."""
    if model is None:
        here = click.get_current_context()
        raise click.UsageError("Missing argument 'MODEL'; --all tunes what autosched.toml names", here)
    return [(model, shapes) for shapes in points] or [(model, None)]


def _name(model: Path, shapes: Shapes | None) -> str:
    """What a model at a shape is called in tables."""
    return f"{model} {format_shapes(shapes)}" if shapes else str(model)


def _run_over(common: Common, models: Sequence[tuple[Path, Shapes | None]], options: TuneOptions) -> Run:
    """The run over several models that was killed, which is gone on with; else a new one."""
    from autosched.driver.tune_all import Run, killed_run
    from autosched.records import database_to_write

    names = [_name(*entry) for entry in models]
    where = database_to_write(common.db[0] if common.db else None).where
    run = (None if options.fresh else killed_run(where, names)) or Run()
    if ended := [name for name in names if run.part(name).is_complete]:
        text = f"going on with a run that was ended early; {', '.join(ended)} had come to its end; --fresh: all anew"
        say(text, quiet=common.is_quiet)
    return run


def _list(common: Common, model: Path, shapes: Shapes | None, spaces: Path | None, inputs: Path | None) -> int:
    """Show the tasks of a model."""
    if (own := own_function(model, inputs)) is not None:
        show(Table(LIST_COLUMNS, list_own(own, common, inputs)), common.format)
        return 0
    module = load_module(model, shapes, quiet=common.is_quiet)
    from autosched import driver

    database = common.db[0] if common.db else None
    with Waiting(f"finding the tasks of {model.name}", quiet=common.is_quiet):
        rows = driver.list_tasks(
            module, target=common.target, threads=common.threads, records=database, spaces=spaces, measure=True
        )
    show(Table(LIST_COLUMNS, rows), common.format)
    return 0


def _tune(
    common: Common,
    models: Sequence[tuple[Path, Shapes | None]],
    options: TuneOptions,
    run: Run | None,
    inputs: Path | None,
    on: str | None,
    access: Mapping[str, Any],
    keep_going: bool,
) -> Iterator[tuple[str, TuneReport]]:
    """Tune models one after the other until the user has enough; each has its share of what is left of the budget.

    run  over several models: what was spent of the budget before; None: there is one model
    """
    from autosched import driver
    from autosched.driver.tune_all import share

    begin = time.monotonic()
    n_trials = sum(part.n_trials for part in run.parts.values() if part.is_complete) if run else 0
    earlier_s = sum(part.spent_s for part in run.parts.values() if part.is_complete) if run else 0.0
    for number, (model, shapes) in enumerate(models):
        part = options
        if run is not None:
            spent_s = earlier_s + time.monotonic() - begin
            part = share(options, spent_s, n_trials, len(models) - number)
            part = dataclasses.replace(part, session=run.session(_name(model, shapes)))
        try:
            own = own_function(model, inputs, on)
            module = load_module(model, shapes, quiet=common.is_quiet) if own is None else None
            name = _name(Path(model.name), shapes)
            display = TuneDisplay(name=name, quiet=common.is_quiet, form=common.format)
            if own is not None:
                with display:
                    report = tune_own(own, common, part, inputs, display)
            else:
                with measuring_on(on, common, part, access) as place, display:
                    report = driver.tune(module, records=common.db[0] if common.db else None, progress=display, **place)
        except AutoschedError as error:
            if not keep_going:
                raise
            say(f"{model} is left out: {error.line}")
            continue
        yield _name(model, shapes), report
        n_trials += report.n_trials
        if run is not None:  # what an earlier run has spent on this model, the tuning itself has counted
            n_trials += run.part(_name(model, shapes)).n_trials
            earlier_s += run.part(_name(model, shapes)).spent_s
        if report.interrupted:
            break


def _say_end(report: TuneReport, *, quiet: bool) -> None:
    """Say how it ended, what the model takes now, and which spaces may be too narrow."""
    say(status_line(report), quiet=quiet)
    borders = Counter(text for task in report.tasks for text in task.border)
    for text, n in borders.most_common():
        tasks = f"{n} task{'s' if n != 1 else ''}"
        say(f"on the border of its space: {text} of {tasks}; a longer list may hold a better one", quiet=quiet)
    if len(report.tasks) == 1 and (shares := report.tasks[0].importance):
        text = ", ".join(f"{knob} {100 * share:.0f} %" for knob, share in shares)
        say(f"what explains the times: {text}", quiet=quiet)
    if report.interrupted:
        say(f"interrupted; what was measured is in {report.database}", quiet=quiet)
        return
    checked = f"{report.model.text}; " if report.model is not None else ""
    say(f"done: {report.reason}; {checked}saved to {report.database}", quiet=quiet)


def _check_strategy(name: str) -> None:
    from autosched.tuner.search.registry import STRATEGIES

    if name not in ("auto", *STRATEGIES):
        raise UsageError(f"no strategy '{name}'", hint=f"there are auto, {', '.join(STRATEGIES)}")


def _report_table(report: TuneReport, form: str) -> Table:
    model = None if report.model is None else {**asdict(report.model), "text": report.model.text}
    summary = {
        "elapsed_s": report.elapsed_s,
        "n_trials": report.n_trials,
        "n_failed": report.n_failed,
        "failures": report.failures,
        "reason": report.reason,
        "database": report.database,
        "interrupted": report.interrupted,
        "n_before": report.n_before,
        "noise": report.noise,
        "drift": report.drift,
        "notes": report.notes,
        "model": model,
    }
    more = (
        Column("config", "configuration"),
        Column("border", "border", "; ".join),
        Column("importance", "importance"),
    )
    rows = [
        {**task_row(task), "config": task.config, "border": task.border, "importance": dict(task.importance)}
        for task in report.tasks
    ]
    return Table((*COLUMNS, *more) if form in ("json", "csv") else COLUMNS, rows, summary=summary)


def _table_of_all(reports: Sequence[tuple[str, TuneReport]], form: str) -> Table:
    """The tasks of several models in one table; what is said of each model stands in a list of summaries."""
    tables = [(model, _report_table(report, form)) for model, report in reports]
    rows = [{"model": model, **row} for model, table in tables for row in table.rows]
    columns = (Column("model", "model"), *tables[0][1].columns)
    return Table(columns, rows, summary={"models": [{"model": model, **table.summary} for model, table in tables]})
