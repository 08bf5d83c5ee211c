"""`autosched bench`: models and other runtimes, or functions, side by side, or one model kernel by kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli import completion
from autosched.cli.bench_own import bench_functions, functions_of
from autosched.cli.common import Common, make_command
from autosched.cli.model import Shapes, check_model, is_built
from autosched.cli.output import Column, Table, count, export, factor, milliseconds, say, show, size
from autosched.cli.paths import check_output
from autosched.cli.profile import show_profiles
from autosched.cli.remote_options import remote_session, with_remote
from autosched.cli.values import DURATION, PERCENTILES, SHAPES, SHARE, SWEEP, Count
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import BenchReport
    from autosched.driver.bench.entry import RunAs
    from autosched.json_types import JsonObject
    from autosched.rpc.client import RPCSession

EXAMPLE = """
autosched bench model.asx model.onnx --with onnxruntime
autosched bench untuned.asx tuned.asx --time 10s --sweep threads=1,2
autosched bench model.asx --baseline old.json --fail-if +5%
autosched bench model.asx --profile --trace trace.json
autosched bench package.module:function --inputs x.npz
"""
RUNTIMES = ("onnxruntime", "openvino", "torch", "onnxruntime-cuda", "torch-cuda", "torch-compile")  # a package first


@make_command("bench", example=EXAMPLE)
@click.argument("models", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--with",
    "others",
    metavar="NAMES",
    shell_complete=completion.lists(lambda: RUNTIMES),
    help=f"Also run each .onnx in these: {', '.join(RUNTIMES)}.",
)
@click.option("--time", "time_s", type=DURATION, default="5s", show_default=True, help="Measuring time for each row.")
@click.option("--runs", type=Count(min=1), metavar="N", help="Make N runs for each row, instead of --time.")
@click.option("--warmup", type=DURATION, help="Run so long before measuring (default: until it gets no faster).")
@click.option(
    "--percentiles",
    type=PERCENTILES,
    default="50,90,99",
    show_default=True,
    help="Percentiles of the runs' times to show.",
)
@click.option(
    "--sweep",
    type=SWEEP,
    metavar="NAME=N,…",
    help="Repeat for numbers: threads=1,2 or batch=1,8 (dynamic first dimensions).",
)
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
@click.option("--inputs", type=click.Path(path_type=Path), metavar="FILE", help="Arguments of your own function: .npz.")
@click.option(
    "--as",
    "run_as",
    type=click.Choice(("latency", "throughput")),
    default="latency",
    show_default=True,
    help="Time one instance alone, or one thread while other instances run on the other cores.",
)
@with_remote
@click.option("--profile", is_flag=True, help="Show each kernel's time, rates and share of the machine's peak.")
@click.option("--trace", type=click.Path(path_type=Path), help="With --profile: write a Chrome trace (JSON).")
@click.option("--export-json", "json_file", type=click.Path(path_type=Path), help="Write the results as JSON, too.")
@click.option("--export-csv", "csv_file", type=click.Path(path_type=Path), help="Write the table as CSV, too.")
@click.option("--export-markdown", "markdown_file", type=click.Path(path_type=Path), help="Write it as Markdown, too.")
@click.option("--baseline", type=click.Path(path_type=Path), help="Compare with an earlier --export-json.")
@click.option("--fail-if", type=SHARE, metavar="+5%", help="End with 1 where a row is slower than --baseline by more.")
def command(
    common: Common,
    models: tuple[Path, ...],
    others: str | None,
    time_s: float,
    runs: int | None,
    warmup: float | None,
    percentiles: tuple[float, ...],
    sweep: tuple[str, tuple[int, ...]] | None,
    shapes: Shapes | None,
    inputs: Path | None,
    run_as: RunAs,
    profile: bool,
    trace: Path | None,
    json_file: Path | None,
    csv_file: Path | None,
    markdown_file: Path | None,
    baseline: Path | None,
    fail_if: float | None,
    remote: str | None,
    **tls: Path | None,
) -> int | None:
    """Measure MODELS (.asx or .onnx) interleaved, so that a change of clock speed meets all of them alike.

    MODELS may be functions of autosched.autotune, "package.module:function": each one's default is measured beside the
    best configuration that is known, on copies of --inputs, or of its example.
    """
    files = {form: f for form, f in (("json", json_file), ("csv", csv_file), ("markdown", markdown_file)) if f}
    names = _check_names(others, models)
    threads, batches = _read_sweep(sweep, common)
    if fail_if is not None and baseline is None:
        raise UsageError("--fail-if compares with a baseline", hint="give --baseline old.json")
    if remote and (names or profile or run_as != "latency"):
        raise UsageError("--remote measures models alone", hint="leave out --with, --profile and --as")
    if trace and not profile:
        raise UsageError("--trace belongs to --profile")
    for path in models:
        check_model(path)
    for_models = {
        "--remote": remote,
        "--with": names,
        "--sweep": sweep,
        "--shapes": shapes,
        "--profile": profile,
        "--warmup": warmup,
    }
    functions = functions_of(models, inputs, for_models)
    for path in (*files.values(), *([trace] if trace else [])):
        check_output(path, inputs=models)
    if profile:
        if names or sweep or baseline or run_as != "latency":
            raise UsageError("--profile looks at one thing", hint="leave out --with, --sweep, --baseline and --as")
        show_profiles(models, common, shapes, time_s, files, trace)
        return None
    from autosched.driver.bench.baseline import read_baseline

    before = read_baseline(baseline) if baseline else None
    if functions:
        report = bench_functions(
            functions, common, inputs, time_s=time_s, runs=runs, percentiles=percentiles, run_as=run_as
        )
    else:
        with remote_session(remote, **tls) as there:
            report = _bench_models(
                models, names, there.common(common) if there else common, threads, batches, time_s, runs, warmup,
                percentiles, shapes, run_as, there.session if there else None,
            )  # fmt: skip
    _show_report(report, percentiles, common, files)
    return _judge(report, before, fail_if, common) if before else None


def _bench_models(
    models: tuple[Path, ...],
    names: tuple[str, ...],
    common: Common,
    threads: Sequence[int | None],
    batches: Sequence[int | None],
    time_s: float,
    runs: int | None,
    warmup_s: float | None,
    percentiles: tuple[float, ...],
    shapes: Shapes | None,
    run_as: RunAs,
    session: RPCSession | None,
) -> BenchReport:
    n_rows = (len(models) + sum(not is_built(path) for path in models) * len(names)) * len(threads) * len(batches)
    with Waiting(f"measuring {count(n_rows, 'row')}, {time_s:g} s each", quiet=common.is_quiet):
        from autosched.driver.bench.entry import bench

        found: BenchReport = bench(
            models,
            target=common.target,
            records=list(common.db) or None,
            threads=threads,
            batches=batches,
            others=names,
            time_s=time_s,
            runs=runs,
            warmup_s=warmup_s,
            percentiles=percentiles,
            shapes=shapes,
            run_as=run_as,
            session=session,
        )
    return found


def _check_names(others: str | None, models: tuple[Path, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (others or "").split(",") if name.strip())
    if unknown := [name for name in names if name not in RUNTIMES]:
        raise UsageError(f"unknown runtime {', '.join(unknown)}", hint=f"there are {', '.join(RUNTIMES)}")
    if names and (more := [str(path) for path in models if str(path) in RUNTIMES]):
        raise UsageError(f"{more[0]} is taken for a model", hint=f"write --with {','.join((*names, *more))}")
    for package in dict.fromkeys(name.partition("-")[0] for name in names):
        if find_spec(package) is None:  # said now, not after the models were built
            raise UsageError(f"{package} is not installed", hint=f"pip install {package}, or leave it out of --with")
    if names and all(is_built(path) for path in models):
        raise UsageError("--with needs an .onnx file among the models", hint="artifacts run in autosched alone")
    return names


def _read_sweep(
    sweep: tuple[str, tuple[int, ...]] | None, common: Common
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """(numbers of threads, batch sizes) to measure with."""
    kind, numbers = sweep or ("", ())
    if kind == "threads" and common.threads:
        raise UsageError("--threads and --sweep exclude each other")
    return (numbers if kind == "threads" else (common.threads,)), (numbers if kind == "batch" else (None,))


EXTRA = (  # columns of reports that have them, after the number of threads
    Column("batch", "batch", right=True),
    Column("instances", "instances", right=True),
    Column("runs_per_s", "runs/s", lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}", right=True),
)


def columns(percentiles: tuple[float, ...], facts: Collection[str] = ()) -> tuple[Column, ...]:
    """The columns of a report's table; `facts` are the keys of its rows."""
    return (
        Column("name", "what"),
        Column("threads", "threads", right=True),
        *(column for column in EXTRA if column.key in facts),
        Column("median_s", "median ms", milliseconds, right=True),
        *(Column(f"p{p:g}_s", f"p{p:g} ms", milliseconds, right=True) for p in percentiles if p != 50),
        Column("min_s", "min ms", milliseconds, right=True),
        Column("interval_s", "± ms", milliseconds, right=True),
        Column("cpu_s", "CPU ms", milliseconds, right=True),
        Column("memory_bytes", "memory", size, right=True),
        Column("load_s", "load ms", milliseconds, right=True),
        Column("first_run_s", "first run ms", milliseconds, right=True),
        Column("n_runs", "runs", right=True),
        Column("speed_up", "speed-up", factor, right=True),
        *((Column("config", "configuration"),) if "config" in facts else ()),
    )


def _show_report(
    report: BenchReport, percentiles: tuple[float, ...], common: Common, files: Mapping[str, Path]
) -> None:
    facts = {key for row in report.rows for key in row}
    summary: JsonObject = {key: value for key, value in report.to_json().items() if key != "rows"}
    every = columns(percentiles, facts)
    known = [column for column in every if any(row.get(column.key) is not None for row in report.rows)]
    chosen = every if common.format in ("json", "csv") else known  # their columns do not depend on what was measured
    table = Table(chosen, report.rows, title=report.environment, summary=summary)
    show(table, common.format)
    for line in report.verdicts:
        say(line, quiet=common.is_quiet)
    for line in report.warnings:
        say(f"warning: {line}", quiet=common.is_quiet)
    export(table, files, report.to_json())


def _judge(report: BenchReport, before: Mapping[str, object], fail_if: float | None, common: Common) -> int:
    """Say how each row differs from the baseline; 1 where one is slower by more than is allowed."""
    from autosched.driver.bench.baseline import compare_with_baseline

    changes, warnings = compare_with_baseline(report, before)
    for line in warnings:
        say(f"warning: {line}", quiet=common.is_quiet)
    worse = [change for change in changes if fail_if is not None and change.is_worse(fail_if)]
    for change in changes:
        say(f"against the baseline: {change.text}", quiet=common.is_quiet and change not in worse)
    if worse:
        say(f"failed: {count(len(worse), 'row')} slower than the baseline by more than {100 * (fail_if or 0):g} %")
    return 1 if worse else 0
