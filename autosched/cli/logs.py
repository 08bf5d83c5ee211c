"""`autosched logs`: what tuning has found, and how it moves between machines."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli.common import Common, make_command
from autosched.cli.output import Column, Row, Table, count, factor, milliseconds, print_json, say, show
from autosched.cli.paths import check_file, check_output
from autosched.cli.values import Count
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.records import Record, RecordFilter
    from autosched.records.query import TaskSummary
    from autosched.records.sql import SqlStore


@click.group(
    "logs",
    epilog="\b\nExample:\n  autosched logs list\n  autosched logs export best.jsonl --winners",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Look at, export and import what tuning has found.

    Without --db the database is AUTOSCHED_DB, else the project's, else the user's.
    """


def open_database(common: Common, *, write: bool = False) -> SqlStore:
    """Open the database that the options name. Raises RecordError, UsageError for more than one."""
    from autosched.records import database_to_write, open_store

    if len(common.db) > 1:
        raise UsageError(f"{len(common.db)} databases given, this command takes one")
    return open_store(database_to_write(common.db[0] if common.db else None), write=write)


def make_filter(op: str, template: str, status: str | None, winners: bool, limit: int | None = None) -> RecordFilter:
    """Make the filter that the options of a command describe."""
    from autosched.records import RecordFilter
    from autosched.task import Status

    return RecordFilter(
        op=op, template=template, status=Status(status) if status else None, winners_only=winners, limit=limit
    )


def with_filter(function: Any) -> Any:
    """Add the options that choose records."""
    for option in (
        click.option("--winners", is_flag=True, help="Only configurations that a build uses."),
        click.option("--status", metavar="STATUS", callback=_check_status, help="Only this outcome: ok, timeout, …"),
        click.option("--template", default="", metavar="NAME", help="Only configurations of this template."),
        click.option("--op", default="", metavar="NAME", help="Only this operator: conv2d, dense, …"),
    ):
        function = option(function)
    return function


def _check_status(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from autosched.task import Status

    if value is not None and value not in list(Status):
        raise click.BadParameter(f"no status '{value}'; there are {', '.join(Status)}", context, option)
    return value


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _workload_text(key: str) -> str:
    from autosched.task import Workload

    return str(Workload.from_json(key))


TASK_COLUMNS = (
    Column("workload", "workload", _workload_text),
    Column("device", "device"),
    Column("threads", "threads", right=True),
    Column("n_trials", "trials", right=True),
    Column("n_failed", "failed", right=True),
    Column("default_s", "default ms", milliseconds, right=True),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("winner", "winner"),
    Column("last_time", "last", _when),
)


@make_command("list", example="autosched logs list --db tuned.db")
def list_tasks(common: Common) -> None:
    """List the workloads that have been measured, a line for each device and number of threads."""
    with open_database(common) as store:
        rows = [
            {
                "workload": task.workload,
                "device": task.device.model_name,
                "threads": task.threads,
                "n_trials": task.n_trials,
                "n_failed": task.n_failed,
                "default_s": task.default_s,
                "best_s": task.best_s,
                "winner": task.winner.config.template if task.winner else None,
                "last_time": task.last_time,
            }
            for task in store.tasks()
        ]
        show(Table(TASK_COLUMNS, rows), common.format)
        say(f"{count(len(rows), 'workload')} in {store.origin}", quiet=common.is_quiet)


BEST_COLUMNS = (
    Column("workload", "workload", _workload_text),
    Column("threads", "threads", right=True),
    Column("median_s", "ms", milliseconds, right=True),
    Column("gain", "gain", factor, right=True),
    Column("template", "template"),
    Column("knobs", "knobs", lambda knobs: " ".join(f"{name}={value}" for name, value in knobs.items())),
    Column("uid", "record", lambda uid: uid[:10]),
)


def _gain(task: TaskSummary) -> float | None:
    """How much faster the winner is than the default; 1 where the default is the winner."""
    if task.winner is None or not task.default_s:
        return None
    return 1.0 if task.winner.is_default else task.default_s / task.winner.measurement.median_s


@make_command("best", example="autosched logs best --db tuned.db -f json")
def best(common: Common) -> None:
    """Show the configuration that a build on each device would use."""
    with open_database(common) as store:
        rows = [
            {
                "workload": task.workload,
                "threads": task.threads,
                "median_s": task.winner.measurement.median_s,
                "gain": _gain(task),
                "template": task.winner.config.template,
                "knobs": dict(task.winner.config.knobs),
                "uid": task.winner.uid,
            }
            for task in store.tasks()
            if task.winner
        ]
        show(Table(BEST_COLUMNS, rows), common.format)
        say(f"{count(len(rows), 'winner')} in {store.origin}", quiet=common.is_quiet)


RECORD_COLUMNS = (
    Column("uid", "record", lambda uid: uid[:10]),
    Column("time", "when", _when),
    Column("workload", "workload", _workload_text),
    Column("threads", "threads", right=True),
    Column("template", "template"),
    Column("status", "status"),
    Column("median_s", "ms", milliseconds, right=True),
    Column("mark", ""),
)


def _record_row(record: Record) -> Row:
    return {
        "uid": record.uid,
        "time": record.time,
        "workload": record.workload.key,
        "threads": record.threads,
        "template": record.config.template,
        "status": str(record.measurement.status),
        "median_s": record.measurement.median_s if record.measurement.is_ok else None,
        "mark": "winner" if record.is_winner else "default" if record.is_default else "",
    }


@make_command("show", example="autosched logs show --status timeout --limit 20\nautosched logs show 3f2a9c")
@click.argument("record", required=False)
@with_filter
@click.option("--limit", type=Count(min=1), metavar="N", default=50, show_default=True, help="At most so many.")
def show_records(
    common: Common, record: str | None, op: str, template: str, status: str | None, winners: bool, limit: int
) -> None:
    """Show records one by one, or all of one RECORD given by the first digits of its number."""
    from autosched.records import RecordFilter

    with open_database(common) as store:
        if record is None:
            found = store.records(make_filter(op, template, status, winners, limit))
            show(Table(RECORD_COLUMNS, [_record_row(item) for item in found]), common.format)
            return
        matches = list(store.records(RecordFilter(uid=record, limit=2)))
        if len(matches) != 1:
            problem = "no record" if not matches else "more than one record"
            raise UsageError(f"{problem} begins with '{record}'", where=store.origin)
        document = matches[0].to_document()
    if common.format == "json":
        print_json({"uid": matches[0].uid, **document})
        return
    rows = [{"field": "uid", "value": matches[0].uid}]
    rows += [
        {"field": key, "value": value if isinstance(value, str) else json.dumps(value)}
        for key, value in document.items()
    ]
    show(Table((Column("field", "field"), Column("value", "value")), rows), common.format)


@make_command("export", example="autosched logs export best.jsonl --winners --db tuned.db")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@with_filter
def export(common: Common, file: Path, op: str, template: str, status: str | None, winners: bool) -> None:
    """Write records to FILE as JSON lines, whole or not at all."""
    with open_database(common) as store:
        check_output(file, inputs=[Path(where) for where in common.db])
        written = store.export_jsonl(file, make_filter(op, template, status, winners))
    if common.format != "table":
        columns = (Column("file", "file"), Column("n_records", "records"))
        show(Table(columns, [{"file": str(file), "n_records": written}]), common.format)
    say(f"{count(written, 'record')} written to {file}", quiet=common.is_quiet)


@make_command("import", example="autosched logs import best.jsonl --db tuned.db")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
def import_files(common: Common, files: tuple[Path, ...]) -> int:
    """Add the records of JSON-lines FILES; lines that cannot be read are named and left out (exit code 1)."""
    refused, rows = 0, []
    for file in files:
        check_file(file)
    with open_database(common, write=True) as store:
        for file in files:
            report = store.import_jsonl(file)
            refused += len(report.refused)
            rows.append(
                {
                    "file": str(file),
                    "n_read": report.read,
                    "n_added": report.added,
                    "n_refused": len(report.refused),
                }
            )
            say(str(report), quiet=common.is_quiet and not report.refused)
    if common.format != "table":
        titles = (("file", "file"), ("n_read", "read"), ("n_added", "added"), ("n_refused", "refused"))
        columns = [Column(key, title) for key, title in titles]
        show(Table(columns, rows), common.format)
    return 1 if refused else 0


for _command in (list_tasks, best, show_records, export, import_files):
    command.add_command(_command)
