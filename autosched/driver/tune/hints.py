"""What the records of others say of a task: other workloads of its operator, other devices, earlier versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autosched.errors import AutoschedError
from autosched.records import Record, RecordFilter
from autosched.records.record import current_versions
from autosched.records.sql import SqlStore
from autosched.space import Config
from autosched.target import Fingerprint
from autosched.task import Task, Trial, Workload
from autosched.templates import apply_config
from autosched.tir import PrimFunc
from autosched.tuner.cost_model import FEATURES, Describe, Hint, Source, TrialsHint, WorkloadsHint, loop_features

MOST_WORKLOADS = 8  # the nearest in size
MOST_TRIALS = 400  # of each
MOST_SOURCES = 2  # devices or versions of the same workload
LEAST_TRIALS = 5


def find_hints(
    task: Task,
    store: SqlStore,
    now: Mapping[str, tuple[Workload, Sequence[Trial]]],
    seed: int = 0,
    versions: Mapping[str, str] | None = None,
) -> tuple[Hint, ...]:
    """The hints that there are for a task.

    now       trials of this run's other tasks, by workload key: they count instead of what the store holds of them
    versions  of the templates now
    """
    same: dict[Fingerprint, list[Trial]] = {}
    earlier: list[Trial] = []
    others = {key: trials for key, (workload, trials) in now.items() if _is_kin(workload, task) and trials}
    here = task.target.fingerprint()
    for key in _near(task, store, others):
        for record in _latest(store, key):
            if key != task.key:
                others[key] = [*others.get(key, ()), record.trial]
            elif record.device != here:
                same.setdefault(record.device, []).append(record.trial)
            elif not is_current(record, versions or {}):
                earlier.append(record.trial)
    sources = [Source(trials, sizes_of(Workload.from_json(key))) for key, trials in others.items() if _says(trials)]
    hints: list[Hint] = []
    if sources:
        hints.append(WorkloadsHint(sources, sizes_of(task.workload), seed, describe_with(task)))
    known = sorted([*same.values(), earlier], key=len, reverse=True)[:MOST_SOURCES]
    return (*hints, *(TrialsHint(trials, seed) for trials in known if _says(trials)))


def describe_with(task: Task) -> Describe | None:
    """What schedules a task's configurations to see how their loops use the machine; None for no PrimFunc."""
    func, target = task.func, task.target
    if not isinstance(func, PrimFunc):
        return None

    def one(config: Config) -> np.ndarray:
        try:
            return loop_features(apply_config(func, config, target).func, target)
        except AutoschedError:  # a configuration that does not fit, as a builder would find
            return np.full(len(FEATURES), np.nan)

    return lambda configs: np.array([one(config) for config in configs])


def sizes_of(workload: Workload) -> dict[str, int]:
    """A workload's sizes by name, all at least 1: the loops of its anchor, else its shapes."""
    loops = workload.attrs.get("sizes")
    if isinstance(loops, tuple):
        return {f"loop{i}": value for i, value in enumerate(loops) if isinstance(value, int) and value > 0}
    return {f"shape{i}_{j}": max(d, 1) for i, shape in enumerate(workload.shapes) for j, d in enumerate(shape)}


def is_current(record: Record, versions: Mapping[str, str]) -> bool:
    """Whether a record is from this version of the code generator and its template: others are hints and no facts.

    versions  of the templates now; a template that is not among them counts as unchanged
    """
    made = record.template_version
    is_same_template = versions.get(record.config.template, made) == made
    return is_same_template and record.versions.get("autosched") == current_versions()["autosched"]


def _says(trials: Sequence[Trial]) -> bool:
    return sum(trial.is_ok for trial in trials) >= LEAST_TRIALS


def _is_kin(workload: Workload, task: Task) -> bool:
    return workload.op == task.workload.op and workload.key != task.key


def _near(task: Task, store: SqlStore, known: Mapping[str, Sequence[Trial]]) -> list[str]:
    """The keys of the workloads whose records may help: the task's own, and the nearest of its operator."""
    keys = dict.fromkeys(summary.workload for summary in store.tasks(RecordFilter(op=task.workload.op)))
    near = sorted((key for key in keys if key != task.key), key=lambda key: _distance(key, task.workload))
    return [key for key in [task.key, *near[:MOST_WORKLOADS]] if key in keys and key not in known]


def _latest(store: SqlStore, key: str) -> list[Record]:
    return list(store.records(RecordFilter(workload=key)))[-MOST_TRIALS:]


def _distance(key: str, workload: Workload) -> float:
    """How far apart two workloads are: the sum of the logarithms of their sizes' ratios."""
    one, other = sizes_of(Workload.from_json(key)), sizes_of(workload)
    return sum(abs(math.log(one.get(n, 1) / other.get(n, 1))) for n in {*one, *other})
