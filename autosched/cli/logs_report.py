"""`autosched logs report`: one page of HTML that opens from disk."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import open_any, open_database, with_filter, workload_text
from autosched.cli.logs_diff import compare
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import Column, Table, count, say, show, size
from autosched.cli.own import NO_SHAPES, arguments_of, found_for, own_function
from autosched.cli.paths import check_output
from autosched.cli.values import SHAPES, Count
from autosched.cli.waiting import Waiting
from autosched.errors import AutoschedError, UsageError

if TYPE_CHECKING:
    from autosched.driver.report_facts import ModelFacts
    from autosched.ir import IRModule
    from autosched.json_types import JsonObject
    from autosched.records import RecordFilter
    from autosched.records.report import Machines
    from autosched.records.report.roofline import Peak
    from autosched.records.sql import SqlStore
    from autosched.target import Target
    from autosched.target.fingerprint import Fingerprint


@dataclass(frozen=True)
class Facts:
    """A model, or a function of the user's (`module` None), with what is known of it beside the records."""

    module: IRModule | None
    target: Target
    threads: int
    known: ModelFacts


SAME = 0.05  # share of a winner's time; smaller changes are none
COLUMNS = (Column("file", "file"), Column("n_tasks", "tasks", right=True), Column("size_bytes", "size", size))


@make_command(
    "report",
    example="autosched logs report -o report.html\nautosched logs report --model model.onnx --db tuned.db\n"
    "autosched logs report --compare old.db new.db",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default="report.html", show_default=True, help="File to write."
)
@click.option("--model", type=click.Path(path_type=Path), help="Weigh tasks by this model, and show kernels' sources.")
@click.option("--shapes", type=SHAPES, help='With --model: shapes of dynamic inputs, "x:1x3x224x224".')
@click.option(
    "--sources",
    type=Count(min=0),
    metavar="N",
    default=3,
    show_default=True,
    help="With --model: number of tasks whose kernels are shown.",
)
@click.option(
    "--compare",
    "pair",
    nargs=2,
    metavar="A B",
    help="Show the database or log B, with A beside it, as `logs diff` does.",
)
@click.option("--roofline/--no-roofline", default=True, help="Measure this machine's peaks, if they are not known.")
@click.option(
    "--run/--no-run",
    default=True,
    help="With --model: run it, untuned and tuned, if this machine is like the records'.",
)
@with_filter
def report(
    common: Common,
    chosen: RecordFilter,
    output: Path,
    model: Path | None,
    shapes: Shapes | None,
    sources: int,
    pair: tuple[str, str] | None,
    roofline: bool,
    run: bool,
) -> None:
    """Write one self-contained page: tasks, convergence, knob importance, pairs of knobs, failures, roofline, sources.

    MODEL may be a function of autosched.autotune, "package.module:function", with its example's arguments.

    The page needs no server and asks for nothing: it can be mailed or archived. The roofline is shown for what was
    tuned on a machine like this one.
    """
    from autosched.records.files import replaced
    from autosched.records.report import make_document, make_page

    if pair and common.db:
        raise UsageError("--compare names the databases itself", hint="leave --db out")
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check_output(output, inputs=[Path(where) for where in pair or common.db])
        others = [stack.enter_context(open_any(where, scratch)) for where in pair or ()]
        store = others[1] if others else stack.enter_context(open_database(common))
        facts = None if model is None else _facts(common, store, model, shapes, sources)
        with Waiting("reading the records", quiet=common.is_quiet):
            document = make_document(
                store,
                chosen,
                weights=None if facts is None else facts.known.weights,
                sources=None if facts is None else facts.known.sources,
                flops=None if facts is None else facts.known.flops,
                machines=_machines(store, chosen) if roofline else None,
                model="" if model is None else model.name,
                in_model=_in_model(common, store, facts) if run else None,
                compare=_compared(others[0], store, chosen, facts) if others else None,
            )
    page = make_page(document)
    with replaced(output, "the report") as file:
        file.write(page)
    n_tasks, size_bytes = len(document["tasks"]), output.stat().st_size
    if common.format != "table":
        show(Table(COLUMNS, [{"file": str(output), "n_tasks": n_tasks, "size_bytes": size_bytes}]), common.format)
    say(f"{count(n_tasks, 'task')} in {output}, {size(size_bytes)}", quiet=common.is_quiet)


def _compared(first: SqlStore, second: SqlStore, chosen: RecordFilter, facts: Facts | None) -> JsonObject:
    """What the page shows of two databases' winners."""
    from autosched.records.report import progress_of

    weights = None if facts is None else facts.known.weights
    rows = compare(first.winners(chosen), second.winners(chosen), SAME)
    shown = [
        {
            "name": workload_text(row["workload"]),
            **{name: row[name] for name in ("threads", "device_a", "device_b", "speedup", "verdict")},
            **{f"{side}_ms": None if row[f"{side}_s"] is None else 1e3 * row[f"{side}_s"] for side in "ab"},
        }
        for row in rows
        if weights is None or row["workload"] in weights
    ]
    progress = progress_of(*first.trial_table(chosen), weights)
    return {"a": first.origin, "b": second.origin, "rows": shown, "progress": progress}


def _in_model(common: Common, store: SqlStore, facts: Facts | None) -> dict[str, float | None] | None:
    """Whole runs of the model, untuned and tuned; None where nothing was tuned on such a machine."""
    from autosched.driver.report_facts import model_times

    if facts is None or facts.module is None or not any(t.device == facts.target.fingerprint() for t in store.tasks()):
        return None
    try:
        found = model_times(facts.module, facts.target, facts.threads, store)
    except AutoschedError as error:
        say(f"the report shows no runs of the whole model: {error.line}", quiet=common.is_quiet)
        return None
    times = {"before_ms": 1e3 * found.before_s, "after_ms": 1e3 * found.after_s}
    return times | {"low": found.low, "high": found.high}


def _facts(common: Common, store: SqlStore, model: Path, shapes: Shapes | None, n_sources: int) -> Facts:
    from autosched.driver.report_facts import model_facts
    from autosched.driver.settings import resolve_target, resolve_threads

    function = own_function(model)
    if function is not None:
        if shapes is not None:
            raise UsageError("--shapes is for models", hint=NO_SHAPES)
        from autosched.own.texts import own_facts

        values = arguments_of(function, None)
        winner = found_for(function, values, common).config
        task = function.task_for(values, common.threads)
        return Facts(None, task.target, task.threads, own_facts(function, values, winner, common.threads))
    module = load_module(model, shapes, quiet=common.is_quiet)
    with Waiting(f"finding the tasks of {model.name}", quiet=common.is_quiet):
        target = resolve_target(common.target)
        threads = resolve_threads(common.threads, target)
        known = model_facts(module, target, threads, store, n_sources=n_sources)
    return Facts(module, target, threads, known)


def _machines(store: SqlStore, chosen: RecordFilter) -> Machines:
    """The peaks of those devices and thread counts in the database that this machine can stand for."""
    from autosched.target import Target
    from autosched.target.threads import choose_threads

    target, most = Target("cpu"), choose_threads()
    here = target.fingerprint()
    found: dict[tuple[Fingerprint, int], Peak] = {}
    for threads in sorted({t.threads for t in store.tasks(chosen) if t.device == here and t.threads <= most}):
        from autosched.driver.report_facts import known_peak

        found[here, threads] = known_peak(target, threads)
    return found
