"""`autosched logs diff`: what got faster or slower between two databases, logs or devices."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched.cli.common import Common, make_command
from autosched.cli.logs_common import device_text, open_any, workload_text
from autosched.cli.output import Column, Table, count, factor, milliseconds, say, show
from autosched.cli.values import SHARE
from autosched.target.fingerprint import Fingerprint

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.records import Record

COLUMNS = (
    Column("workload", "workload", workload_text),
    Column("threads", "threads", right=True),
    Column("device_a", "device A"),
    Column("device_b", "device B"),
    Column("a_s", "A ms", milliseconds, right=True),
    Column("b_s", "B ms", milliseconds, right=True),
    Column("speedup", "B is", factor, right=True),
    Column("verdict", "verdict"),
)


@make_command("diff", example="autosched logs diff old.db new.db\nautosched logs diff a.db b.jsonl --threshold 10%")
@click.argument("a")
@click.argument("b")
@click.option("--threshold", type=SHARE, default="5%", show_default=True, help="Changes below are the same.")
def diff(common: Common, a: str, b: str, threshold: float) -> None:
    """Compare the winners of two databases or logs, A and B, task by task.

    Winners of one device are compared with each other; what is left, across devices.
    """
    with tempfile.TemporaryDirectory() as folder:
        with open_any(a, Path(folder)) as first, open_any(b, Path(folder)) as second:
            rows = compare(first.winners(), second.winners(), threshold)
    show(Table(COLUMNS, rows), common.format)
    verdicts = [row["verdict"] for row in rows]
    kinds = ("faster", "slower", "same", "only in A", "only in B")
    parts = [f"{verdicts.count(kind)} {kind}" for kind in kinds if kind in verdicts]
    say(f"{count(len(rows), 'task')}: {', '.join(parts) or 'nothing to compare'}", quiet=common.is_quiet)


Winners = Mapping[tuple[str, Fingerprint, int], "Record"]


def compare(first: Winners, second: Winners, threshold: float) -> list[JsonObject]:
    """Rows for all winners of both sides; pairs share workload and number of threads, the device too if possible."""
    pairs: list[tuple[Record | None, Record | None]] = [(first[key], second[key]) for key in first if key in second]
    rest_a = [first[key] for key in first if key not in second]
    rest_b = [second[key] for key in second if key not in first]
    for record in rest_a:
        match = next((r for r in rest_b if (r.workload, r.threads) == (record.workload, record.threads)), None)
        if match is not None:
            rest_b.remove(match)
        pairs.append((record, match))
    pairs += [(None, record) for record in rest_b]
    rows = [_row(*pair, threshold) for pair in pairs]
    return sorted(rows, key=lambda row: (-(row["speedup"] or 0), row["workload"], row["threads"]))


def _row(a: Record | None, b: Record | None, threshold: float) -> JsonObject:
    known = a or b
    assert known is not None, "a pair has at least one side"
    speedup = a.measurement.median_s / b.measurement.median_s if a and b else None
    if speedup is None:
        verdict = "only in A" if a else "only in B"
    elif 1 / (1 + threshold) <= speedup <= 1 + threshold:
        verdict = "same"
    else:
        verdict = "faster" if speedup > 1 else "slower"
    return {
        "workload": known.workload.key,
        "threads": known.threads,
        "device_a": device_text(a.device) if a else None,
        "device_b": device_text(b.device) if b else None,
        "a_s": a.measurement.median_s if a else None,
        "b_s": b.measurement.median_s if b else None,
        "speedup": speedup,
        "verdict": verdict,
    }
