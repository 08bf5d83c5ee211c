"""`autosched tune`: search for the fastest kernels of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from autosched.cli.cluster_options import with_access
from autosched.cli.common import Common, make_command
from autosched.cli.measuring import Elsewhere
from autosched.cli.model import Shapes, check_source, require_device
from autosched.cli.output import show
from autosched.cli.process import EXIT_FAILED, EXIT_INTERRUPTED
from autosched.cli.remote_options import REMOTE_HELP
from autosched.cli.shape_options import check_ends, settle_shapes, with_shapes
from autosched.cli.tune_end import is_on_screen, report_table, say_end, table_of_all
from autosched.cli.tune_flags import SearchFlags, with_search
from autosched.cli.tune_list import show_tasks
from autosched.cli.tune_models import Entry, TuneModels, chosen_models, name_of, run_over
from autosched.errors import UsageError

EXAMPLE = """
autosched tune model.onnx --budget 10m
autosched tune model.onnx --list
autosched tune model.onnx --until 2%
autosched tune model.onnx --trials 300 --tasks 0,3-5 --db tuned.db
autosched tune model.onnx --shapes "x:1..512x784" --budget 10m
autosched tune --all --budget 30m
"""


@make_command("tune", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--all", "every", is_flag=True, help="Tune every model that the project's autosched.toml names.")
@click.option("--keep-going", is_flag=True, help="With --all: go on after a model that cannot be tuned (exit code 1).")
@click.option("--list", "only_list", is_flag=True, help="Show the tasks and tune nothing.")
@with_search
@with_shapes
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Arguments of your own function: .npz by the names of its parameters.",
)
@click.option("--on", metavar="ADDRESS", help="Measure on the workers of this dask scheduler: tcp://host:8786.")
@click.option(
    "--remote", multiple=True, metavar="HOST:PORT[/KEY]", help=f"Measure elsewhere: {REMOTE_HELP}; may be given again."
)
@with_access
def command(
    common: Common,
    model: Path | None,
    every: bool,
    keep_going: bool,
    only_list: bool,
    search: SearchFlags,
    points: Sequence[Shapes],
    inputs: Path | None,
    on: str | None,
    remote: tuple[str, ...],
    **access: object,
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
    elsewhere = Elsewhere(on, remote, access)
    if elsewhere.option and search.run_as == "throughput":
        raise UsageError("--as throughput measures on this machine alone", hint=f"leave out {elsewhere.option}")
    if keep_going and not every:
        raise UsageError("--keep-going does nothing without --all")
    models = chosen_models(model, every, points, search.tasks, only_list)
    if only_list:
        assert model is not None, "--all and --list exclude each other"
        show_tasks(common, model, points, search, inputs)
        return 0
    for path, _ in () if keep_going else models:
        check_source(path)
    options = search.options(common.threads)
    if not elsewhere.option:
        require_device(common.target)
    if model is not None and len(points) > 1:
        check_ends(model, points)
    run = run_over(common, models, options) if len(models) > 1 else None
    if run is not None:
        models = [entry for entry in models if not run.part(name_of(*entry)).is_complete]
    code = _tune_all(TuneModels(common, options, run, inputs, elsewhere, keep_going), models)
    if model is not None and len(points) > 1 and code != EXIT_INTERRUPTED:
        settle_shapes(common, model, points, options, elsewhere)
    return code


def _tune_all(tuning: TuneModels, models: Sequence[Entry]) -> int:
    """Tune and show models, of several all tasks in one table at the end; gives the exit code."""
    common, reports = tuning.common, []
    for name, report in tuning.reports(models):
        reports.append((name, report))
        is_drawn = tuning.run is None and is_on_screen(common.format, quiet=common.is_quiet)
        if tuning.run is None and not is_drawn:
            show(report_table(report, common.format), common.format)
        if common.format != "json":
            say_end(report, quiet=common.is_quiet, is_drawn=is_drawn)
    if tuning.run is not None and reports:
        show(table_of_all(reports, common.format), common.format)
    if reports and reports[-1][1].interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if len(reports) < len(models) else 0
