"""`autosched logs explain`: which record each kernel would use, the rejected ones, what tuning may gain."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import knobs_text, workload_text
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import Column, Table, count, milliseconds, percent, say, show
from autosched.cli.own import own_function
from autosched.cli.paths import is_object
from autosched.cli.values import SHAPES
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.own.function import AutotunedFunction
    from autosched.records import RecordReader
    from autosched.records.explain import Considered
    from autosched.records.found import Found
    from autosched.space.config import Config
    from autosched.target.target import Target
    from autosched.task import Task

COLUMNS = (
    Column("kernel", "kernel", joined=True),
    Column("workload", "workload", workload_text),
    Column("verdict", "verdict"),
    Column("trust", "trust"),
    Column("origin", "from"),
    Column("template", "template"),
    Column("knobs", "knobs", knobs_text),
    Column("median_s", "ms", milliseconds, right=True),
    Column("expected_gain", "to gain", percent, right=True),
    Column("reason", "reason"),
    Column("uid", "record", lambda uid: uid[:10]),
    Column("rule", "found by"),
)


@make_command(
    "explain", example='autosched logs explain model.onnx\nautosched logs explain "conv2d 1x64" --db tuned.db'
)
@click.argument("what", metavar="MODEL|TASK")
@click.option("--shapes", type=SHAPES, help='Shapes of dynamic inputs: "x:1x3x224x224".')
@click.option("--like", metavar="DEVICE", help="As in `autosched build --like`.")
def explain(common: Common, what: str, shapes: Shapes | None, like: str | None) -> None:
    """Show which record each kernel of a model would use, the rejected ones with reasons, and what tuning may gain.

    MODEL may be a function of autosched.autotune, "package.module:function", with its example arguments.

    TASK is a part of a kernel's name or of a workload's text, as `autosched logs list` shows them. "to gain" is what
    the second half of the task's trials has saved; of a task that was never tuned, the median of what tuning has saved
    for its operator.
    """
    from autosched.driver.settings import resolve_records, resolve_target, resolve_threads

    own = own_function(Path(what))
    reader = resolve_records(list(common.db) or (own.sources if own else None) or None, like=like)
    target = resolve_target(common.target)
    threads = resolve_threads(common.threads, target)
    gains = Gains(reader, threads)
    is_model = Path(what).is_file() or is_object(Path(what))
    if own is not None:
        rows = _of_own(own, reader, common.threads, gains)
    elif is_model:
        rows = _of_model(common, Path(what), shapes, reader, target, threads, gains)
    else:
        rows = _of_task(what, reader, target, threads, gains)
    show(Table(COLUMNS, rows), common.format)
    used = sum(row["verdict"] == "used" for row in rows)
    default = sum(row["verdict"] == "default" for row in rows)
    say(f"{count(used, 'kernel')} from records, {default} default", quiet=common.is_quiet)
    if default and (own is not None or is_model):
        say(f"to tune: autosched tune {what}", quiet=common.is_quiet)


class Gains:
    """What tuning is expected to gain, from the statistics of the databases that a reader asks."""

    def __init__(self, reader: RecordReader, threads: int):
        from autosched.records.lookup import sources
        from autosched.records.sql import SqlStore
        from autosched.records.statistics import task_statistics
        from autosched.task import Workload

        stores = [part for part in sources(reader) if isinstance(part, SqlStore)]
        self.stores, self.threads = stores, threads
        self.known: dict[tuple[str, object], float] = {}
        saved: dict[str, list[float]] = {}
        for store in reversed(stores):
            for task in task_statistics(*store.trial_table(), store.wins()):
                if task.expected_gain is not None and task.key.threads == threads:
                    self.known[task.key.workload, task.key.device] = task.expected_gain
                if task.gain is not None:
                    op = Workload.from_json(task.key.workload).op
                    saved.setdefault(op, []).append(1 - 1 / task.gain)
        self.by_op = {op: statistics.median(shares) for op, shares in saved.items()}

    def of(self, task: Task) -> float | None:
        """The share of the task's time that tuning may save; None where nothing is known."""
        known = self.known.get((task.key, task.target.fingerprint()))
        return known if known is not None else self.by_op.get(task.workload.op)


def _of_model(
    common: Common, model: Path, shapes: Shapes | None, reader: RecordReader, target: Target, threads: int, gains: Gains
) -> list[JsonObject]:
    from autosched.driver.build.choose import choose
    from autosched.driver.build.graph_options import choose_graph
    from autosched.driver.build.tuned_layouts import TunedLayouts
    from autosched.driver.tasks import extract_tasks
    from autosched.records.explain import Explaining, consider

    explaining = Explaining(reader)
    rows: list[JsonObject] = []
    module = load_module(model, shapes, quiet=common.is_quiet)
    for task in extract_tasks(module, target, threads=threads, layouts=TunedLayouts(reader, target, threads)):
        choice = choose(task, explaining, task.name)
        rows += _rows(task, choice.found, explaining.considered.get(task.key, []), gains, choice.config)
    if (graph := choose_graph(module, target, reader, threads)) is not None:
        considered = consider(reader, graph.task, graph.found)
        rows += _rows(graph.task, graph.found, considered, gains, graph.options.config)
    return rows


def _of_own(own: AutotunedFunction, reader: RecordReader, threads: int | None, gains: Gains) -> list[JsonObject]:
    """The records of a function with its example arguments."""
    from autosched.own.space import Usable
    from autosched.records.explain import consider

    values = own.example_arguments()
    task, space = own.task_for(values, threads), own.space_for(values, threads)
    valid = Usable(space, {own.space.name: own.version})
    found = reader.best(task, valid)
    return _rows(task, found, consider(reader, task, found, valid), gains, own.space.default_for(space))


def _of_task(text: str, reader: RecordReader, target: Target, threads: int, gains: Gains) -> list[JsonObject]:
    from autosched.records.explain import consider
    from autosched.task import Task, Workload

    keys = {task.workload for store in gains.stores for task in store.tasks()}
    names = {key: name for store in reversed(gains.stores) for (key, *_), name in store.kernel_names().items()}
    workloads = sorted((Workload.from_json(key) for key in keys), key=str)
    chosen = [w for w in workloads if any(text in known for known in (str(w), w.key, names.get(w.key, "")))]
    if not chosen:
        raise UsageError(f"neither a file nor a part of a known workload: '{text}'", hint="see `autosched logs list`")
    rows: list[JsonObject] = []
    for workload in chosen:
        task = Task(workload, target, threads=threads, name=names.get(workload.key, ""))
        found = reader.best(task)
        rows += _rows(task, found, consider(reader, task, found), gains, None)
    return rows


def _rows(
    task: Task, found: Found, considered: Sequence[Considered], gains: Gains, default: Config | None
) -> list[JsonObject]:
    rows = [
        {
            "kernel": task.name or None,
            "workload": task.key,
            "verdict": item.verdict,
            "trust": str(found.trust if item.verdict == "used" else item.trust or "") or None,
            "rule": found.rule or None if item.verdict == "used" else None,
            "origin": item.origin,
            "template": item.record.config.template,
            "knobs": dict(item.record.config.knobs),
            "median_s": item.record.measurement.median_s,
            "expected_gain": gains.of(task) if item.verdict == "used" else None,
            "reason": item.reason or None,
            "uid": item.record.uid,
        }
        for item in considered
    ]
    if not any(row["verdict"] == "used" for row in rows):
        row: JsonObject = {
            "kernel": task.name or None,
            "workload": task.key,
            "verdict": "used" if found else "default",
            "trust": str(found.trust),
            "rule": found.rule or None,
            "origin": found.origin or "template default",
            "expected_gain": gains.of(task),
            "reason": found.reason or None,
        }
        if default is not None:
            row |= {"template": default.template, "knobs": dict(default.knobs)}
        rows.insert(0, row)
    return sorted(rows, key=lambda row: row["verdict"] not in ("used", "default"))
