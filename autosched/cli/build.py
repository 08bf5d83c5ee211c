"""`autosched build`: a model becomes one file that runs without a compiler."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from autosched.cli.common import Common, make_command
from autosched.cli.model import Shapes, artifact_of, check_source, load_module
from autosched.cli.output import Column, Table, milliseconds, percent, print_json, say, show
from autosched.cli.paths import check_output
from autosched.cli.values import SHAPES
from autosched.cli.waiting import compiling
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import UsageError

EXAMPLE = """
autosched build model.onnx -o model.asx
autosched build model.onnx -o model.asx --db tuned.db -v
autosched build model.onnx --strict --like x86-64-v4
autosched build model.onnx --pin "matmul 128x784" "rows=6 vectors=2"
"""

REPORT_COLUMNS = (
    Column("kernel", "kernel"),
    Column("template", "template"),
    Column("origin", "configuration from"),
    Column("trust", "trust"),
    Column("expected_s", "expected ms", milliseconds, right=True),
    Column("reason", "reason"),
)


@make_command("build", example=EXAMPLE)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write (default: MODEL with .asx).")
@click.option("--no-db", is_flag=True, help="Use every template's default; look nothing up.")
@click.option("--locked", type=click.Path(path_type=Path), help="Use exactly what `autosched logs lock` has written.")
@click.option(
    "--like", metavar="DEVICE", help="Use records of such devices too: a family (x86-64-v4), a name, a target."
)
@click.option(
    "--pin",
    "pins",
    nargs=2,
    multiple=True,
    metavar="TASK CONFIG",
    help="Use this configuration for kernels whose workload holds TASK; repeatable.",
)
@click.option("--strict", is_flag=True, help="Fail where a kernel has no trusted record (exit code 1).")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
@click.option(
    "--accuracy", type=click.Choice(["fast", "strict"]), default="fast", show_default=True, help="strict: no Winograd."
)
def command(
    common: Common,
    model: Path,
    output: Path | None,
    no_db: bool,
    locked: Path | None,
    like: str | None,
    pins: tuple[tuple[str, str], ...],
    strict: bool,
    shapes: Shapes | None,
    accuracy: str,
) -> None:
    """Compile MODEL with the best configurations known for this machine.

    One line says where the configurations came from, and what tuning the others may gain by what it has gained for
    their operators elsewhere; -v shows it for each kernel. A configuration is pinned as reports write it,
    "template: knob=value …"; what is not named has the template's default.
    """
    if no_db and common.db:
        raise UsageError("--db and --no-db exclude each other")
    if pins and locked is not None:
        raise UsageError("--pin and --locked exclude each other")
    path = output or artifact_of(model)
    check_source(model)
    check_output(path, inputs=[model, *map(Path, common.db), *([locked] if locked else [])])
    module = load_module(model, shapes, quiet=common.is_quiet)
    from autosched import driver
    from autosched.records import FallbackContext

    records: Any = FallbackContext() if no_db else list(common.db) or None
    if locked is not None:
        from autosched.records.lock import read_lock

        records = read_lock(locked)
    if pins:
        from autosched.driver.pins import Pinned
        from autosched.driver.settings import resolve_records

        records = Pinned(resolve_records(records, like=like), pins)
    with compiling(f"building {model.name}", quiet=common.is_quiet):
        executable = driver.build(
            module,
            target=common.target,
            records=records,
            threads=common.threads,
            accuracy=accuracy,
            like=like,
            strict=strict,
        )
    if pins:
        records.check_used()
    executable.save(path)
    report = driver.build_report(executable)
    if common.format == "json":
        print_json({"artifact": str(path), "summary": report.summary, "kernels": list(report.rows)})
    elif common.verbosity > 0 or common.format == "csv":
        show(Table(REPORT_COLUMNS, report.rows), common.format)
    knows_better = no_db or locked is not None or AUTOSCHED_TUNE.get() == "off"
    advice = "" if knows_better or common.is_quiet else _advice(common, model, report.rows, like)
    say(report.summary + advice, quiet=common.is_quiet)
    say(f"written to {path}", quiet=common.is_quiet)


def _advice(common: Common, model: Path, kernels: Sequence[Mapping[str, Any]], like: str | None) -> str:
    """What tuning may gain where kernels have their default because nobody has tuned them; "" where all are known."""
    from autosched.driver.settings import resolve_records, resolve_target
    from autosched.records.gains import expected_gain, usual_gains

    ops = [str(row["workload"]).partition(" ")[0] for row in kernels if row["trust"] == "default"]
    if not ops:
        return ""
    reader = resolve_records(list(common.db) or None, like=like)
    gain = expected_gain(kernels, usual_gains(reader, resolve_target(common.target), ops))
    lead = "to tune" if gain is None else f"about {percent(gain)} to gain"
    return f"; {lead}: autosched tune {shlex.quote(str(model))}"
