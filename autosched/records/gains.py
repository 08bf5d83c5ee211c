"""What tuning has brought: for kernels that nobody has tuned, what others of their operator have gained."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from autosched.errors import RecordError
from autosched.records.choose import match_device
from autosched.records.found import RecordReader
from autosched.records.like import leaves
from autosched.target import Target
from autosched.task import Task, Workload


def usual_gains(reader: RecordReader, target: Target, ops: Iterable[str]) -> dict[str, float]:
    """Per operator the share of its time that tuning has saved, the median over its workloads on devices like this one.

    Operators without any winner whose gain was noted are left out, and so is a database that cannot be read.
    """
    here = target.fingerprint()
    found: dict[str, float] = {}
    for op in dict.fromkeys(ops):
        probe = Task(Workload(op, (), ()), target)
        saved: list[float] = []
        for leaf in leaves(reader):
            by_family = getattr(leaf, "by_family", False)
            for record in _winners(leaf, probe, op):
                is_near = match_device(record, here, by_family).trust is not None
                if is_near and record.gain is not None:
                    saved.append(1 - 1 / record.gain)
        if saved:
            found[op] = statistics.median(saved)
    return found


def _winners(leaf: Any, probe: Task, op: str) -> list[Any]:
    try:
        return list(leaf.winners_of_op(probe, op)) if hasattr(leaf, "winners_of_op") else []
    except RecordError:
        return []


def expected_gain(kernels: Iterable[Mapping[str, Any]], gains: Mapping[str, float]) -> float | None:
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
