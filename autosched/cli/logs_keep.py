"""Databases that last: the subcommands upgrade, verify and prune of `autosched logs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import database_place, open_database, workload_text
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import Column, Table, count, factor, milliseconds, say, show, size
from autosched.cli.values import SHAPES, Count, Parsed
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.records.sql import SqlStore

UPGRADE_COLUMNS = (
    Column("database", "database"),
    Column("old_version", "from", right=True),
    Column("new_version", "to", right=True),
    Column("copy", "copy"),
)


@make_command("upgrade", example="autosched logs upgrade --db tuned.db")
def upgrade(common: Common) -> None:
    """Bring a database that an older autosched has written to this version, after a copy beside it."""
    from autosched.records.upgrade import upgrade_database

    done = upgrade_database(database_place(common).where)
    row = {"database": done.where, "old_version": done.old_version, "new_version": done.new_version, "copy": done.copy}
    if common.format != "table":
        show(Table(UPGRADE_COLUMNS, [row]), common.format)
    if done.old_version == done.new_version:
        say(f"{done.where} is of version {done.new_version} already", quiet=common.is_quiet)
        return
    kept = f"; as it was: {done.copy}" if done.copy else ""
    say(f"{done.where} upgraded from version {done.old_version} to {done.new_version}{kept}", quiet=common.is_quiet)


CHECK_COLUMNS = (Column("record", "record", right=True), Column("reason", "reason"))
VERIFY_COLUMNS = (
    Column("workload", "workload", workload_text),
    Column("config", "winner"),
    Column("recorded_s", "recorded ms", milliseconds, right=True),
    Column("now_s", "now ms", milliseconds, right=True),
    Column("gain", "gain now", factor, right=True),
    Column("verdict", "verdict"),
)


@make_command("verify", example="autosched logs verify --db tuned.db\nautosched logs verify --remeasure model.onnx")
@click.option(
    "--remeasure", metavar="MODEL", type=click.Path(path_type=Path), help="Measure the winners of MODEL's tasks again."
)
@click.option("--shapes", type=SHAPES, help='With --remeasure: shapes of dynamic inputs, "x:1x3x224x224".')
def verify(common: Common, remeasure: Path | None, shapes: Shapes | None) -> int:
    """Check that every record can be read and is what was stored (exit code 4 if not).

    With --remeasure, also measure each winner of a model in turn with the default; those that have lost are named, and
    the exit code is 4.
    """
    with open_database(common) as store:
        problems = store.check()
        for problem in problems:
            say(f"damaged: {problem.reason}")
        if common.format != "table" and (problems or remeasure is None):
            show(Table(CHECK_COLUMNS, [{"record": p.line, "reason": p.reason} for p in problems]), common.format)
        if problems:
            return 4
        say(f"{count(store.count(), 'record')} in {store.origin}: all can be read", quiet=common.is_quiet)
        if remeasure is None:
            return 0
        rows = _remeasure(common, store, remeasure, shapes)
    show(Table(VERIFY_COLUMNS, rows), common.format)
    lost = sum(row["verdict"] not in ("holds", "default is the winner", "no winner here") for row in rows)
    say(f"{lost} of {count(len(rows), 'task')} no longer hold", quiet=common.is_quiet)
    return 4 if lost else 0


def _remeasure(common: Common, store: SqlStore, model: Path, shapes: Shapes | None) -> list[JsonObject]:
    from autosched.driver.build.choose import Usable
    from autosched.driver.settings import check_runs_here, resolve_target, resolve_threads
    from autosched.driver.task_space import default_of
    from autosched.driver.tasks import extract_tasks
    from autosched.tuner.measure import MeasureOptions
    from autosched.tuner.measure.local import LocalMeasurer

    module = load_module(model, shapes, quiet=common.is_quiet)
    target = resolve_target(common.target)
    threads = resolve_threads(common.threads, target)
    check_runs_here(target)
    rows: list[JsonObject] = []
    with LocalMeasurer(target, MeasureOptions(threads=threads)) as measurer:
        for task in extract_tasks(module, target, threads=threads):
            found = store.best(task, Usable(task))
            row: JsonObject = {"workload": task.key, "recorded_s": found.expected_s}
            default = default_of(task)
            if found.config is None:
                rows.append({**row, "verdict": "no winner here"})
            elif found.config == default:
                rows.append({**row, "config": str(found.config), "verdict": "default is the winner"})
            else:
                first, second = measurer.compare(task, [default, found.config])
                now = second.measurement
                works = first.measurement.is_ok and now.is_ok
                verdict = "holds" if now.is_ok and second.low <= 1.0 else "default is faster now"
                rows.append(
                    {
                        **row,
                        "config": str(found.config),
                        "now_s": now.median_s if now.is_ok else None,
                        "gain": 1 / second.ratio if works else None,
                        "verdict": verdict if now.is_ok else f"fails now: {now.status}",
                    }
                )
    return rows


SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int:
    """Read "50M", "2GiB" or "1000" as bytes. Raises ValueError."""
    compact = text.strip().lower().removesuffix("ib").removesuffix("b")
    number, unit = (compact[:-1], compact[-1:]) if compact[-1:] in SIZES and compact[-1:] else (compact, "")
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"'{text}' is no size; write 50M or 2G")
    return int(number) * SIZES[unit]


PRUNE_COLUMNS = (
    Column("database", "database"),
    Column("n_deleted", "deleted", right=True),
    Column("n_left", "left", right=True),
    Column("size_bytes", "size", size, right=True),
)


@make_command("prune", example="autosched logs prune --keep 20 --db tuned.db\nautosched logs prune --size 50M")
@click.option("--keep", type=Count(min=0), metavar="N", help="Keep the N fastest of each task.")
@click.option("--size", "cap", type=Parsed("size", parse_size), help="Make the file no larger: 50M.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
def prune(common: Common, keep: int | None, cap: int | None, dry_run: bool) -> int:
    """Delete what has lost: failures and the slowest first. Winners and defaults always stay.

    A later tuning may measure again what was deleted.
    """
    from autosched.records.prune import losers, prune_to_size

    if keep is None and cap is None:
        raise UsageError("nothing says what to delete", hint="give --keep N or --size 50M")
    with open_database(common, write=not dry_run) as store:
        before = store.count()
        if dry_run and keep is None:
            raise UsageError("--dry-run needs --keep: how far --size goes shows only while it goes")
        uids = losers(store, keep) if keep is not None else []
        if dry_run:
            say(f"{count(len(uids), 'record')} of {before} would be deleted from {store.origin}")
            return 0
        if uids:
            store.delete(uids)
            store.vacuum()
        if cap is not None:
            prune_to_size(store, cap)
        left, now = store.count(), store.size_bytes()
        row = {"database": store.where, "n_deleted": before - left, "n_left": left, "size_bytes": now}
        if common.format != "table":
            show(Table(PRUNE_COLUMNS, [row]), common.format)
        say(f"{count(before - left, 'record')} deleted, {left} left in {store.origin}", quiet=common.is_quiet)
        if cap is not None and now is not None and now > cap:
            say(f"{size(now)} are left, more than {size(cap)}: winners and defaults are not deleted")
            return 1
    return 0
