"""What tuning has found: the subcommands list, best, show and stats of `autosched logs`."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import knobs_text, open_database, when, with_filter, with_query, workload_text
from autosched.cli.output import Column, Row, Table, clock, count, factor, milliseconds, percent, print_json, say, show
from autosched.cli.values import Count
from autosched.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from autosched.records import Record, RecordFilter
    from autosched.target.fingerprint import Fingerprint

SINGLE = "single trials"  # where times come from while no winner is named

KERNEL_COLUMN = Column(
    "kernel", "kernel", joined=True
)  # what the model calls it; None: its records are older than such names
TASK_COLUMNS = (
    KERNEL_COLUMN,
    Column("workload", "workload", workload_text),
    Column("device", "device"),
    Column("threads", "threads", right=True),
    Column("n_trials", "trials", right=True),
    Column("n_failed", "failed", right=True),
    Column("default_s", "default ms", milliseconds, right=True),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("winner", "winner"),
    Column("last_time", "last", when),
)


@make_command(
    "list",
    example='autosched logs list --db tuned.db\nautosched logs list "conv2d 1x64"\n'
    'autosched logs list --where "op=conv2d" --since 2h',
)
@with_query
@with_filter
def list_tasks(common: Common, chosen: RecordFilter, fits: Callable[[str, str | None], bool]) -> None:
    """List the workloads that have been measured, a line for each device and number of threads.

    Times are those of the last comparison of the winner with the default. Where no winner is named yet they are the
    least of single trials, and the column "winner" says so. QUERY is a part of a kernel's name or of a workload's text.
    """
    with open_database(common) as store:
        names = store.kernel_names(chosen)
        rows = [
            {
                "kernel": name,
                "workload": task.workload,
                "device": task.device.name,
                "threads": task.threads,
                "n_trials": task.n_trials,
                "n_failed": task.n_failed,
                "default_s": task.default_s,
                "best_s": task.best_s,
                "winner": task.winner.config.template if task.winner else SINGLE,
                "last_time": task.last_time,
            }
            for task in store.tasks(chosen)
            if fits(task.workload, name := names.get((task.workload, task.device, task.threads)))
        ]
        show(Table(TASK_COLUMNS, rows), common.format)
        say(f"{count(len(rows), 'workload')} in {store.origin}", quiet=common.is_quiet)


METRICS_COLUMN = Column(
    "metrics", "metrics", lambda found: ", ".join(f"{name} {value:.4g}" for name, value in found.items())
)
BEST_COLUMNS = (
    KERNEL_COLUMN,
    Column("workload", "workload", workload_text),
    Column("device", "device"),
    Column("threads", "threads", right=True),
    Column("default_s", "default ms", milliseconds, right=True),
    Column("median_s", "ms", milliseconds, right=True),
    Column("gain", "gain", factor, right=True),
    Column("template", "template"),
    Column("knobs", "knobs", knobs_text),
    Column("uid", "record", lambda uid: uid[:10]),
)


PARETO_COLUMNS = (
    Column("workload", "workload", workload_text),
    Column("device", "device"),
    Column("threads", "threads", right=True),
    Column("median_s", "ms", milliseconds, right=True),
    METRICS_COLUMN,
    Column("knobs", "knobs", knobs_text),
    Column("uid", "record", lambda uid: uid[:10]),
)


@make_command("best", example='autosched logs best --db tuned.db -f json\nautosched logs best --where "op=conv2d"')
@click.option("--pareto", "is_pareto", is_flag=True, help="What no other trial beats in time and in all its metrics.")
@with_query
@with_filter
def best(common: Common, chosen: RecordFilter, fits: Callable[[str, str | None], bool], is_pareto: bool) -> None:
    """Show the configuration that a build on each device would use; QUERY is a part of its kernel's name or workload.

    The gain is against the default in the comparison that the winner has won; "–" where that was not noted. It is below
    1 where a metric decided that costs time.
    With --pareto, functions that were tuned with metric= show all the configurations to choose from.
    """
    from autosched.records.metrics import metrics_of

    with open_database(common) as store:
        if is_pareto:
            rows = list(_pareto_rows(store.records(chosen), fits))
            show(Table(PARETO_COLUMNS, rows), common.format)
            say(f"{count(len(rows), 'configuration')} in {store.origin}", quiet=common.is_quiet)
            return
        rows = [
            {
                "kernel": winner.kernel_name,
                "workload": winner.workload.key,
                "device": winner.device.name,
                "threads": winner.threads,
                "default_s": winner.default_s,
                "median_s": winner.measurement.median_s,
                "gain": winner.gain,
                "metrics": dict(metrics_of(winner.measurement)),
                "template": winner.config.template,
                "knobs": dict(winner.config.knobs),
                "uid": winner.uid,
            }
            for _, winner in sorted(
                store.winners(chosen).items(), key=lambda item: (item[0][0], item[0][1].key, item[0][2])
            )
            if fits(winner.workload.key, winner.kernel_name)
        ]
        has_metrics = any(row["metrics"] for row in rows)
        columns = [*BEST_COLUMNS[:7], *([METRICS_COLUMN] if has_metrics else []), *BEST_COLUMNS[7:]]
        show(Table(columns, rows), common.format)
        say(f"{count(len(rows), 'winner')} in {store.origin}", quiet=common.is_quiet)


def _pareto_rows(records: Iterable[Record], fits: Callable[[str, str | None], bool]) -> Iterator[Row]:
    """The Pareto set of each task, of the last version of its function."""
    from autosched.records.metrics import metrics_of, pareto

    tasks: dict[tuple[str, Fingerprint, int], list[Record]] = {}
    for record in records:
        if metrics_of(record.measurement) and fits(record.workload.key, record.kernel_name):
            tasks.setdefault((record.workload.key, record.device, record.threads), []).append(record)
    for (workload, device, threads), found in tasks.items():
        version = max(found, key=lambda record: record.time).versions.get("template")
        for record in pareto(r for r in found if r.versions.get("template") == version):
            yield {
                "workload": workload,
                "device": device.name,
                "threads": threads,
                "median_s": record.measurement.median_s,
                "metrics": dict(metrics_of(record.measurement)),
                "knobs": dict(record.config.knobs),
                "uid": record.uid,
            }


RECORD_COLUMNS = (
    Column("uid", "record", lambda uid: uid[:10]),
    Column("time", "when", when),
    KERNEL_COLUMN,
    Column("workload", "workload", workload_text),
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
        "kernel": record.kernel_name,
        "workload": record.workload.key,
        "threads": record.threads,
        "template": record.config.template,
        "status": str(record.measurement.status),
        "median_s": record.measurement.median_s if record.measurement.is_ok else None,
        "mark": "winner" if record.is_winner else "default" if record.is_default else "",
    }


@make_command(
    "show",
    example="autosched logs show --status timeout --limit 20\nautosched logs show 3f2a9c\n"
    'autosched logs show --where "op=conv2d" --top 10 -f csv',
)
@click.argument("record", required=False)
@with_filter
@click.option("--limit", type=Count(min=1), metavar="N", default=50, show_default=True, help="At most so many.")
@click.option("--top", type=Count(min=1), metavar="N", help="The N fastest instead, the fastest first.")
def show_records(common: Common, chosen: RecordFilter, record: str | None, limit: int, top: int | None) -> None:
    """Show records one by one, or all of one RECORD given by the first digits of its number.

    They come in the order in which they were measured, or with --top sorted by time.
    """
    from dataclasses import replace

    from autosched.records import RecordFilter

    with open_database(common) as store:
        if record is None:
            found = store.records(chosen if top else replace(chosen, limit=limit))
            if top:
                worked = (item for item in found if item.measurement.is_ok)
                found = iter(heapq.nsmallest(top, worked, key=lambda item: item.measurement.median_s))
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


def _failures_text(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {status}" for status, n in failures.items()) or "none"


STATS_COLUMNS = (
    KERNEL_COLUMN,
    Column("workload", "workload", workload_text),
    Column("device", "device"),
    Column("threads", "threads", right=True),
    Column("n_trials", "trials", right=True),
    Column("failures", "failed", _failures_text),
    Column("spent_s", "spent", clock, right=True),
    Column("default_s", "default ms", milliseconds, right=True),
    Column("best_s", "best ms", milliseconds, right=True),
    Column("gain", "gain", factor, right=True),
    Column("times", "times from"),
    Column("n_to_near", "to 5 %", right=True),
    Column("n_since_best", "since best", right=True),
    Column("expected_gain", "to gain", percent, right=True),
)


@make_command("stats", example="autosched logs stats --db tuned.db\nautosched logs stats --since 1d -f csv")
@with_query
@with_filter
def stats(common: Common, chosen: RecordFilter, fits: Callable[[str, str | None], bool]) -> None:
    """Show trials, failures by kind, time spent, and how far each task has converged.

    QUERY is a part of a kernel's name or of a workload's text, as they are shown.

    "to 5 %": trials until the best time was within 5 % of what it is now. "to gain": what as many trials again may
    save, judged by what the second half of the trials has saved.
    """
    from autosched.records.statistics import task_statistics

    with open_database(common) as store:
        names = store.kernel_names(chosen)
        found = [
            (task, name)
            for task in task_statistics(*store.trial_table(chosen), store.wins())
            if fits(task.key.workload, name := names.get((task.key.workload, task.key.device, task.key.threads)))
        ]
        origin = store.origin
    rows = [
        {
            "kernel": name,
            "workload": task.key.workload,
            "device": task.key.device.name,
            "threads": task.key.threads,
            "n_trials": task.n_trials,
            "failures": dict(task.failures),
            "spent_s": task.spent_s,
            "default_s": task.default_s,
            "best_s": task.best_s,
            "gain": task.gain,
            "times": "comparison" if task.is_confirmed else SINGLE,
            "n_to_near": task.n_to_near,
            "n_since_best": task.n_since_best,
            "expected_gain": task.expected_gain,
        }
        for task, name in sorted(found, key=lambda item: -item[0].spent_s)
    ]
    n_trials = sum(task.n_trials for task, _ in found)
    summary = {
        "n_tasks": len(found),
        "n_trials": n_trials,
        "n_failed": sum(task.n_failed for task, _ in found),
        "spent_s": sum(task.spent_s for task, _ in found),
    }
    show(Table(STATS_COLUMNS, rows, summary=summary), common.format)
    text = f"{count(n_trials, 'trial')} of {count(len(found), 'task')}, {summary['n_failed']} failed"
    say(f"{text}, {clock(summary['spent_s'])} spent, in {origin}", quiet=common.is_quiet)
