"""`autosched logs watch`: follow a tuning that runs in another terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import database_place, open_database, workload_text
from autosched.cli.output import Column, Table, clock, count, factor, milliseconds, say, show
from autosched.cli.terminal import Live, fit
from autosched.cli.values import DURATION
from autosched.errors import UsageError
from autosched.printable import printable

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.records.sql import SqlStore

MAKING_S = 5.0  # that a database may take from its first byte to its last table
COLUMNS = (
    Column("kernel", "kernel", shrinks=16, joined=True),
    Column("workload", "workload", workload_text, shrinks=16, leaves=3),
    Column("n_trials", "trials", right=True),
    Column("n_failed", "failed", right=True, leaves=2),
    Column("default_s", "default ms", milliseconds, right=True, leaves=1),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("gain", "gain", factor, right=True),
    Column("state", "state"),
)


@make_command(
    "watch",
    example="autosched logs watch --db tuned.db\nautosched logs watch --once -f json\nautosched logs watch --web",
)
@click.option("--every", type=DURATION, default="2s", show_default=True, help="How often to look.")
@click.option("--for", "duration", type=DURATION, help="Stop after this time; without it, Ctrl-C does.")
@click.option("--once", is_flag=True, help="Print the current state and exit.")
@click.option("--web", is_flag=True, help="Show it as a page on this machine's loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --web: its port (default: a free one).")
def watch(common: Common, every: float, duration: float | None, once: bool, web: bool, port: int) -> None:
    """Show the tuning that wrote to the database last, and follow it.

    A database that is not there yet is waited for.
    """
    end = None if duration is None else time.monotonic() + duration
    if web and (once or common.format != "table"):
        raise UsageError("--web is a page", hint="leave --once and -f out")
    follows = not once and common.format == "table"
    try:
        if follows:
            if found := _open_when_made(common, every, end):
                with found as store:
                    if web:
                        return _follow_web(store, every, end, port, quiet=common.is_quiet)
                    (_follow_live if sys.stdout.isatty() else _follow_lines)(store, every, end)
            return
        with open_database(common) as store:
            rows, text = _state(store)
    except KeyboardInterrupt:
        return  # how one stops watching
    show(Table(COLUMNS, rows), common.format)
    say(text, quiet=common.is_quiet)


def _open_when_made(common: Common, every: float, end: float | None) -> SqlStore | None:
    """Open the database as soon as it is made; None when the time is up. Raises RecordError."""
    from autosched.errors import RecordError
    from autosched.records.places import file_of

    path = file_of(database_place(common).where)
    is_awaited = path is not None and not path.exists()
    if is_awaited:
        say(f"waiting for {path}", quiet=common.is_quiet)
    patience = MAKING_S
    while True:
        if path is None or path.exists():
            try:
                return open_database(common)
            except RecordError:
                patience -= every
                if not is_awaited or patience < 0:  # it is not that it is being made just now
                    raise
        if not _wait(every, end):
            return None


def _state(store: SqlStore) -> tuple[list[JsonObject], str]:
    """The tasks of the session that wrote last, and a line about all of them."""
    from autosched.records import RecordFilter
    from autosched.records.statistics import task_statistics

    session = store.last_session()
    if session is None:
        return [], f"nothing recorded in {store.origin}"
    name, first, last = session
    wins = store.wins(RecordFilter(session=name))
    found = task_statistics(*store.trial_table(RecordFilter(session=name)), wins)
    names = store.kernel_names(RecordFilter(session=name))
    rows = [
        {
            "kernel": names.get((task.key.workload, task.key.device, task.key.threads)),
            "workload": task.key.workload,
            "n_trials": task.n_trials,
            "n_failed": task.n_failed,
            "default_s": task.default_s,
            "best_s": task.best_s,
            "gain": task.gain or (task.default_s / task.best_s if task.default_s and task.best_s else None),
            "state": "winner named" if task.is_confirmed else "searching (single trials)",
        }
        for task in sorted(found, key=lambda task: -task.spent_s)
    ]
    trials = sum(task.n_trials for task in found)
    rate = f", {trials / (last - first):.1f}/s" if last - first > 1 else ""
    ago = max(0.0, time.time() - last)
    text = f"{count(trials, 'trial')} of {count(len(found), 'task')} in {clock(last - first)}{rate}"
    return rows, f"{text}; last one {clock(ago)} ago"


def _follow_live(store: SqlStore, every: float, end: float | None) -> None:
    with Live(sys.stdout) as live:
        while True:
            rows, text = _state(store)
            width, height = live.size
            live.show([*fit(Table(COLUMNS, rows), width, height - 1), printable(text)])
            if not _wait(every, end):
                return


def _follow_web(store: SqlStore, every: float, end: float | None, port: int, *, quiet: bool) -> None:
    from autosched.cli.watch_page import WatchPage

    def state() -> JsonObject:
        rows, text = _state(store)
        columns = [{"title": column.title, "right": column.right} for column in COLUMNS]
        cells = [[printable(cell) for cell in row] for row in Table(COLUMNS, rows).cells()]
        return {"columns": columns, "rows": cells, "text": printable(text)}

    try:
        page = WatchPage(state, every, port)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}", hint="leave --port out") from None
    try:
        say(f"watching {store.origin} at {page.url}; Ctrl-C ends it", quiet=quiet)
        while _wait(every, end):
            pass
    finally:
        page.close()


def _follow_lines(store: SqlStore, every: float, end: float | None) -> None:
    """Elsewhere than on a terminal: a line for each task that has changed."""
    shown: dict[str, JsonObject] = {}
    while True:
        rows, text = _state(store)
        changed = [row for row in rows if shown.get(row["workload"]) != row]
        for row in changed:
            shown[row["workload"]] = row
            cells = Table(COLUMNS, [row]).cells()[0]
            name = cells[1] if row["kernel"] is None else cells[0]
            parts = [f"{column.title} {cell}" for column, cell in zip(COLUMNS[2:], cells[2:]) if cell != "–"]
            print(f"{name}: {', '.join(parts)}", flush=True)
        if changed or not rows:
            print(printable(text), flush=True)
        if not _wait(every, end):
            return


def _wait(every: float, end: float | None) -> bool:
    """Wait for the next look; False when the time is up."""
    if end is not None and time.monotonic() + every > end:
        return False
    time.sleep(every)
    return True
