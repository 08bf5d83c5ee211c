"""The facts that a report shows, as plain data; times in milliseconds."""

from __future__ import annotations

import math
import time as clock
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from autosched.records.importance import HOW, knob_importance
from autosched.records.query import RecordFilter, TrialColumns
from autosched.records.record import Record, current_versions
from autosched.records.report.columns import trial_columns
from autosched.records.report.roofline import Machines, roofline
from autosched.records.sql import SqlStore
from autosched.records.statistics import TaskStatistics, best_so_far, model_progress, task_statistics, wall_clock

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject
    from autosched.target.fingerprint import Fingerprint

MOST_ROWS = 10_000  # trials in the page, of all tasks together
LEAST_ROWS = 4  # of each task
MOST_STEPS = 400  # points of the whole model's curve
MOST_REASONS, REASON_LENGTH = 6, 160  # of failures, per task


def make_document(
    store: SqlStore,
    query: RecordFilter | None = None,
    *,
    weights: Mapping[str, int] | None = None,
    sources: Mapping[str, Mapping[str, str]] | None = None,
    flops: Mapping[str, int] | None = None,
    machines: Machines | None = None,
    model: str = "",
    compare: Mapping[str, object] | None = None,
    in_model: Mapping[str, float | None] | None = None,
) -> JsonObject:
    """Everything that the page shows.

    weights   how often each workload (by its key) occurs in a model; without them each task counts once
    sources   by workload key, texts to be shown side by side: title -> source
    flops     by workload key, the arithmetic of one call, where the workload alone does not tell it
    machines  by device and threads, what the device can do at most; without them there is no roofline
    model     the model's name, for the title
    compare   what is shown of another database beside this one: {"a", "b": their names, "rows": their winners in pairs,
              "progress": the other one's}
    in_model  whole runs of the model, untuned and tuned: {"before_ms", "after_ms", "low", "high"}, the last two the
              95 % interval of the ratio, None where both are the same
    """
    keys, columns = store.trial_table(query)
    found = task_statistics(keys, columns, wins := store.winners())
    if weights:
        found = [task for task in found if task.key.workload in weights]
    total = sum(_cost(task, weights) for task in found)
    found.sort(key=lambda task: -_cost(task, weights))
    groups: dict[tuple[str, Fingerprint, int], list[Record]] = {}
    for record in store.records(query):
        groups.setdefault((record.workload.key, record.device, record.threads), []).append(record)
    most = max(LEAST_ROWS, MOST_ROWS // max(1, len(found)))
    passed = wall_clock(columns)
    versions: dict[str, set[str]] = {}
    tasks = []
    for task in found:
        records = groups.get((task.key.workload, task.key.device, task.key.threads), [])
        for name, value in ((n, v) for record in records for n, v in record.versions.items() if n != "template"):
            versions.setdefault(name, set()).add(value)
        tasks.append(
            _task(task, records, wins.get((task.key.workload, task.key.device, task.key.threads)), most, passed)
            | {
                "share": round(_cost(task, weights) / total, 5) if total else None,
                "weight": (weights or {}).get(task.key.workload, 1),
                "roofline": roofline(task, machines or {}, (flops or {}).get(task.key.workload)),
                "sources": dict((sources or {}).get(task.key.workload, {})),
            }
        )
    return {
        "origin": store.origin,
        "model": model,
        "made": clock.strftime("%Y-%m-%d %H:%M"),
        "version": current_versions()["autosched"],
        "versions": {name: sorted(values) for name, values in sorted(versions.items())},
        "importance_how": HOW,
        "weighted": bool(weights),
        "in_model": None if in_model is None else dict(in_model),
        "compare": None if compare is None else dict(compare),
        "unmeasured": len(set(weights or {}) - {task.key.workload for task in found}),
        "progress": progress_of(keys, columns, weights),
        "peaks": [peaks.document for peaks in (machines or {}).values()],
        "tasks": tasks,
    }


def progress_of(keys: Sequence[Json], columns: TrialColumns, weights: Mapping[str, int] | None) -> list[list[Json]]:
    """Points (trials, ms, seconds of tuning) of all tasks together by the best single trials; see `model_progress`."""
    counts = [(weights or {}).get(key.workload, 1 if not weights else 0) for key in keys]
    return _thinned([[n, _ms(s), round(at, 1)] for n, s, at in model_progress(len(keys), columns, counts)])


def _cost(task: TaskStatistics, weights: Mapping[str, int] | None) -> float:
    return (task.default_s or task.best_s or 0.0) * (weights or {}).get(task.key.workload, 1)


def _task(
    task: TaskStatistics, records: Sequence[Record], winner: Record | None, most: int, passed: Callable[[float], float]
) -> JsonObject:
    return {
        "name": _name(task, records),
        "device": task.key.device.name,
        "isa": task.key.device.isa,
        "threads": task.key.threads,
        "n": task.n_trials,
        "failures": dict(task.failures),
        "reasons": _reasons(records),
        "spent_s": round(task.spent_s, 1),
        "default_ms": _ms(task.default_s),
        "best_ms": _ms(task.best_s),
        "confirmed": task.is_confirmed,
        "gain": None if task.gain is None else float(f"{task.gain:.4g}"),
        "noise": round(winner.noise, 4) or None if winner is not None else None,
        "expected": None if task.expected_gain is None else round(task.expected_gain, 4),
        "winner": None if winner is None else str(winner.config),
        "steps": [[n, ms, round(passed(records[int(n) - 1].time), 1)] for n, ms in improvements(records)],
        "importance": [[name, round(share, 4)] for name, share in knob_importance(records)],
        "trials": trial_columns(_thin(records, most), passed),
    }


def _name(task: TaskStatistics, records: Sequence[Record]) -> str:
    """The kernel as its model calls it, and what it computes."""
    if not records:
        return task.key.workload
    kernel, workload = next((r.kernel_name for r in reversed(records) if r.kernel_name), ""), str(records[0].workload)
    return f"{kernel}: {workload}" if kernel and kernel not in workload else workload


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds * 1e3:.5g}")


def improvements(records: Sequence[Record]) -> list[list[float]]:
    """Trials and best time in ms, where it got better and at the end."""
    medians = np.array([r.measurement.median_s if r.measurement.is_ok else np.nan for r in records])
    best = best_so_far(medians)
    places = [i for i in range(len(best)) if np.isfinite(best[i]) and (i == 0 or best[i] < best[i - 1])]
    if places and places[-1] != len(best) - 1:
        places.append(len(best) - 1)
    return [[i + 1, float(f"{best[i] * 1e3:.5g}")] for i in places]


def _thin(records: Sequence[Record], most: int) -> list[tuple[int, Record]]:
    """At most so many, with their numbers: the faster half of them, and an even choice of the others."""
    numbered = list(enumerate(records, start=1))
    if len(records) <= most:
        return numbered
    ranked = sorted(numbered, key=lambda item: item[1].measurement.median_s)
    rest = ranked[most // 2 :]
    step = len(rest) / (most - most // 2)
    return ranked[: most // 2] + [rest[int(i * step)] for i in range(most - most // 2)]


def _thinned(points: list[list[object]]) -> list[list[Json]]:
    """So many points at most, the last one among them."""
    step = math.ceil(len(points) / MOST_STEPS) or 1
    kept = points[::step]
    return kept if not points or kept[-1] is points[-1] else [*kept, points[-1]]


def _reasons(records: Sequence[Record]) -> list[list[Json]]:
    """The failures' kinds with the last line of their text, and how many there are of each, the most frequent first."""
    failed = [r.measurement for r in records if r.measurement.status.is_failure]
    texts = Counter((str(m.status), (m.error.strip().splitlines() or [""])[-1][:REASON_LENGTH]) for m in failed)
    return [[kind, text, n] for (kind, text), n in texts.most_common(MOST_REASONS)]
