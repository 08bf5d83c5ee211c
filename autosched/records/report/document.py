"""The facts that a report shows, as plain data; times in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.records.importance import HOW, knob_importance
from autosched.records.query import RecordFilter
from autosched.records.record import Record
from autosched.records.sql import SqlStore
from autosched.records.statistics import TaskStatistics, best_so_far, task_statistics

MOST_ROWS = 10_000  # trials in the page, of all tasks together


def make_document(
    store: SqlStore,
    query: RecordFilter | None = None,
    *,
    weights: Mapping[str, int] | None = None,
    sources: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """Everything that the page shows.

    weights  how often each workload (by its key) occurs in a model; without them each task counts once
    sources  by workload key, texts to be shown side by side: title -> source
    """
    found = task_statistics(*store.trial_table(query), store.winners())
    if weights:
        found = [task for task in found if task.key.workload in weights]
    total = sum(_cost(task, weights) for task in found)
    found.sort(key=lambda task: -_cost(task, weights))
    groups: dict[tuple[str, Any, int], list[Record]] = {}
    for record in store.records(query):
        groups.setdefault((record.workload.key, record.device, record.threads), []).append(record)
    most = max(20, MOST_ROWS // max(1, len(found)))
    tasks = []
    for task in found:
        records = groups.get((task.key.workload, task.key.device, task.key.threads), [])
        share = _cost(task, weights) / total if total else None
        document = _task(task, records, most) | {"share": share, "weight": (weights or {}).get(task.key.workload, 1)}
        tasks.append(document | {"sources": dict((sources or {}).get(task.key.workload, {}))})
    return {"origin": store.origin, "importance_how": HOW, "weighted": bool(weights), "tasks": tasks}


def _cost(task: TaskStatistics, weights: Mapping[str, int] | None) -> float:
    return (task.default_s or task.best_s or 0.0) * (weights or {}).get(task.key.workload, 1)


def _task(task: TaskStatistics, records: Sequence[Record], most: int) -> dict[str, Any]:
    names = list(dict.fromkeys(name for record in records for name in record.config.knobs))
    shown = _thin(records, most)
    return {
        "name": str(records[0].workload) if records else task.key.workload,
        "device": task.key.device.model_name,
        "isa": task.key.device.isa_level,
        "threads": task.key.threads,
        "n": task.n_trials,
        "failures": dict(task.failures),
        "spent_s": task.spent_s,
        "default_ms": _ms(task.default_s),
        "best_ms": _ms(task.best_s),
        "gain": task.gain,
        "expected": task.expected_gain,
        "winner": None if task.winner is None else str(task.winner.config),
        "steps": improvements(records),
        "importance": knob_importance(records),
        "knobs": ["template", *names],
        "rows": [_row(record, names) for record in shown],
    }


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


def _thin(records: Sequence[Record], most: int) -> list[Record]:
    """At most so many: the faster half of the number, and an even choice of the others."""
    if len(records) <= most:
        return list(records)
    ranked = sorted(records, key=lambda record: record.measurement.median_s)
    rest = ranked[most // 2 :]
    step = len(rest) / (most - most // 2)
    return ranked[: most // 2] + [rest[int(i * step)] for i in range(most - most // 2)]


def _row(record: Record, names: Sequence[str]) -> list[Any]:
    """Time in ms, status, mark, then the template and the knobs; None where there is none."""
    measurement = record.measurement
    knobs = [_plain(record.config.knobs.get(name)) for name in names]
    mark = "winner" if record.is_winner else "default" if record.is_default else ""
    time_ms = _ms(measurement.median_s) if measurement.is_ok else None
    return [time_ms, str(measurement.status), mark, record.config.template, *knobs]


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | tuple) else value
