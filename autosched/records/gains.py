"""Gains of tuning, and the gain expected of an untuned kernel: that of others of its operator."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from autosched.errors import RecordError
from autosched.records.choose import match_device
from autosched.records.found import RecordReader, WinnerSource
from autosched.records.lookup import sources
from autosched.target import Target
from autosched.task import Task, Workload

if TYPE_CHECKING:
    from autosched.json_types import Json
    from autosched.records.record import Record


def usual_gains(reader: RecordReader, target: Target, ops: Iterable[str]) -> dict[str, float]:
    """Per operator the share of its time that tuning has saved, the median over its workloads on devices like this one.

    Operators without any winner whose gain was noted are left out, and so is a database that cannot be read.
    """
    here = target.fingerprint()
    found: dict[str, float] = {}
    for op in dict.fromkeys(ops):
        probe = Task(Workload(op, (), ()), target)
        saved: list[float] = []
        for source in sources(reader):
            for record in _winners(source, probe, op):
                is_near = match_device(record, here, source.by_family).trust is not None
                if is_near and record.gain is not None:
                    saved.append(1 - 1 / record.gain)
        if saved:
            found[op] = statistics.median(saved)
    return found


def _winners(source: WinnerSource, probe: Task, op: str) -> list[Record]:
    try:
        return list(source.winners_of_op(probe, op))
    except RecordError:
        return []


def expected_gain(kernels: Iterable[Mapping[str, Json]], gains: Mapping[str, float]) -> float | None:
    """The share of a model's time that tuning its untuned kernels may save; None where nothing is known of any.

    kernels  rows of a build report; each counts by its arithmetic, as its time is not known
    gains    what `usual_gains` gives
    """
    total, saved, is_known = 0.0, 0.0, False
    for row in kernels:
        flops = float(row["flops"])
        total += flops
        op = str(row["workload"]).partition(" ")[0]
        if row["trust"] == "default" and op in gains:
            saved, is_known = saved + flops * gains[op], True
    return saved / total if is_known and total else None
