"""What the subcommands of `autosched logs` share: opening databases, choosing records, columns."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli import completion
from autosched.cli.common import Common
from autosched.cli.values import Parsed, parse_duration
from autosched.errors import RecordError, UsageError

if TYPE_CHECKING:
    from autosched.records.places import Place
    from autosched.records.sql import SqlStore
    from autosched.records.where import Condition
    from autosched.target.fingerprint import Fingerprint


def open_database(common: Common, *, write: bool = False) -> SqlStore:
    """Open the database that the options name. Raises RecordError, UsageError for more than one."""
    from autosched.records import open_store

    return open_store(database_place(common), write=write)


def database_place(common: Common) -> Place:
    """The database that the options name, or the usual one. Raises UsageError for more than one."""
    from autosched.records import database_to_write

    if len(common.db) > 1:
        raise UsageError(f"{len(common.db)} databases given, this command takes one")
    return database_to_write(common.db[0] if common.db else None)


def open_any(path: Path | str, scratch: Path) -> SqlStore:
    """Open a database for reading, or a log of JSON lines through a database in the folder `scratch`.

    Raises  RecordError, UsageError for a file that is missing or neither of both.
    """
    from autosched.cli.output import say
    from autosched.cli.paths import check_file
    from autosched.records import open_store

    if "://" in str(path) or Path(path).is_dir():
        return open_store(path, write=False)
    check_file(Path(path))
    if Path(path).suffix not in (".jsonl", ".json", ".log"):
        return open_store(path, write=False)
    number = len(list(scratch.glob("*.db")))
    store = open_store(scratch / f"{number}.db", origin=f"log {path}")
    report = store.import_log(Path(path))
    say(f"{path}: {report}", quiet=not report.refused)
    return store


def parse_since(text: str) -> float:
    """Read "2h", "3d" (so long ago) or a date, "2026-01-31" or "2026-01-31T12:00", as seconds since 1970."""
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"'{text}' is no time; write 2h, 3d or 2026-01-31") from None


def parse_condition(text: str) -> Condition:
    """Read a condition as `autosched.records.where` does. Raises ValueError."""
    from autosched.records.where import parse_where

    try:
        return parse_where(text)
    except RecordError as error:
        raise ValueError(str(error)) from None


SINCE = Parsed("time", parse_since)
WHERE = Parsed("condition", parse_condition)


def check_status(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse an outcome that does not exist."""
    from autosched.task import Status

    if value is not None and value not in list(Status):
        raise click.BadParameter(f"no status '{value}'; there are {', '.join(Status)}", context, option)
    return value


def with_filter(function: Callable[..., object]) -> Callable[..., object]:
    """Add the options that choose records; the command gets them as one argument `chosen`, a `RecordFilter`."""

    def run(common: Common, **values: Any) -> object:
        from autosched.records import RecordFilter
        from autosched.task import Status

        named = {name: values.pop(name) for name in ("op", "template", "status", "winners", "where", "since")}
        chosen = RecordFilter(
            op=named["op"],
            template=named["template"],
            status=Status(named["status"]) if named["status"] else None,
            winners_only=named["winners"],
            where=named["where"],
            since_s=named["since"],
        )
        return function(common, chosen=chosen, **values)

    run.__doc__ = function.__doc__
    if hasattr(function, "__click_params__"):
        run.__click_params__ = function.__click_params__  # type: ignore[attr-defined]
    decorated: Callable[..., object] = run
    for option in (
        click.option("--winners", is_flag=True, help="Only configurations that a build uses."),
        click.option(
            "--status",
            metavar="STATUS",
            callback=check_status,
            shell_complete=completion.names(completion.statuses),
            help="Only this outcome: ok, timeout, …",
        ),
        click.option(
            "--template",
            default="",
            metavar="NAME",
            shell_complete=completion.names(completion.templates),
            help="Only configurations of this template.",
        ),
        click.option("--op", default="", metavar="NAME", help="Only this operator: conv2d, dense, …"),
        click.option("--since", type=SINCE, help="Only records measured since: 2h, 3d, 2026-01-31."),
        click.option("--where", type=WHERE, help='Only records that match: "op=conv2d and target=cpu and ms>2".'),
    ):
        decorated = option(decorated)
    return decorated


def with_query(function: Callable[..., object]) -> Callable[..., object]:
    """Add the argument QUERY, a part of a workload's text or of a kernel's name; `fits(key, name)` tests both."""

    def run(common: Common, query: str | None, **values: object) -> object:
        if query is not None and Path(query).is_file():
            hint = f"`autosched logs explain {query}` shows what is known of a model's"
            raise UsageError(f"QUERY is a part of a workload's text, such as matmul, and {query} is a file", hint=hint)

        def fits(key: str, name: str | None) -> bool:
            return query is None or any(query in text for text in (workload_text(key), key, name or ""))

        return function(common, fits=fits, **values)

    run.__doc__ = function.__doc__
    run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return click.argument("query", required=False)(run)


def when(seconds: float) -> str:
    """Write a time of day."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def workload_text(key: str) -> str:
    """Write a workload for people."""
    from autosched.task import Workload

    return str(Workload.from_json(key))


def knobs_text(knobs: Mapping[str, object]) -> str:
    """Write knobs and their values."""
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def device_text(device: Fingerprint) -> str:
    """Write a device with what tells it from others of its name."""
    return str(device.details)
