"""`autosched bench`: models and other runtimes side by side."""

from __future__ import annotations

from pathlib import Path

import click

from autosched.cli.common import Common, make_command
from autosched.cli.model import Shapes, check_file
from autosched.cli.output import Column, Table, factor, milliseconds, say, show
from autosched.cli.values import DURATION, SHAPES, SWEEP
from autosched.errors import UsageError

EXAMPLE = """
autosched bench model.asx model.onnx --with onnxruntime
autosched bench untuned.asx tuned.asx --time 10s --sweep threads=1,2
"""
RUNTIMES = ("onnxruntime", "torch", "openvino")

COLUMNS = (
    Column("name", "what"),
    Column("threads", "threads", right=True),
    Column("median_s", "median ms", milliseconds, right=True),
    Column("p90_s", "p90 ms", milliseconds, right=True),
    Column("p99_s", "p99 ms", milliseconds, right=True),
    Column("min_s", "min ms", milliseconds, right=True),
    Column("interval_s", "± ms", milliseconds, right=True),
    Column("n_runs", "runs", right=True),
    Column("speed_up", "speed-up", factor, right=True),
)


@make_command("bench", example=EXAMPLE)
@click.argument("models", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--with", "others", metavar="NAMES", help=f"Also run each .onnx in these: {', '.join(RUNTIMES)}.")
@click.option("--time", "time_s", type=DURATION, default="5s", show_default=True, help="Measuring time for each row.")
@click.option("--sweep", type=SWEEP, help="Repeat for numbers of threads: threads=1,2.")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
def command(
    common: Common,
    models: tuple[Path, ...],
    others: str | None,
    time_s: float,
    sweep: tuple[int, ...] | None,
    shapes: Shapes | None,
) -> None:
    """Measure MODELS (.asx or .onnx) interleaved, so that a change of clock speed meets all of them alike."""
    names = tuple(name.strip() for name in (others or "").split(",") if name.strip())
    if unknown := [name for name in names if name not in RUNTIMES]:
        raise UsageError(f"unknown runtime {', '.join(unknown)}", hint=f"there are {', '.join(RUNTIMES)}")
    if sweep and common.threads:
        raise UsageError("--threads and --sweep exclude each other")
    for path in models:
        check_file(path)
    from autosched import driver

    report = driver.bench(
        models,
        target=common.target,
        records=list(common.db) or None,
        threads=sweep or (common.threads,),
        others=names,
        time_s=time_s,
        shapes=shapes,
    )
    show(
        Table(COLUMNS, report.rows, title=report.environment, summary={"environment": report.environment}),
        common.format,
    )
    for line in report.verdicts:
        say(line, quiet=common.is_quiet)
