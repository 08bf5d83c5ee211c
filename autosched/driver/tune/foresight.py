"""What a tuning expects of candidates once they are compiled: the hopeless ones are not measured.

Compiling tells how a kernel's loops use the caches and which instructions its hot loop has, registers on the stack
among them. One model of all trials of a run, whatever their task, and of other workloads' records says from that how
long a kernel takes, measured by its task's default. What it is sure of to take more than twice the best time costs its
compilation and nothing more: it is no trial, has no record, and the search is told nothing of it. At least half of a
turn is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from autosched.driver.tune.hints import is_current
from autosched.driver.tune.job import Job
from autosched.records import RecordFilter
from autosched.task import Trial
from autosched.tuner.cost_model import BuiltModel, built_features
from autosched.tuner.measure import Built
from autosched.tuner.scheduler import Turn

SLOW = 2.0  # times the best time
SURE = 2.5  # deviations
LEAST = 24  # trials to learn from
MOST = 300  # of this run, and of the database: the latest
MOST_WORKLOADS = 8  # of the database
AGAIN = 0.15  # share of new trials after which the model learns again


class Foresight:
    """See `tuner.measure.Foresight`; of the tasks of a job."""

    def __init__(self, job: Job):
        self._job = job
        self._index = {id(task): i for i, task in enumerate(job.tasks)}
        self._model, self._n_tried, self._has_learnt = BuiltModel(), 0, False
        self._left = 0
        self.n_skipped, self.n_in_turn = 0, 0  # in all, and in this turn

    def begin(self, turn: Turn) -> None:
        """A turn begins."""
        self._left, self.n_in_turn = turn.n // 2, 0

    def is_hopeless(self, built: Built, best_s: float | None) -> bool:
        """Whether a candidate is not worth being measured."""
        i = self._index[id(built.candidate.task)]
        default_s = self._job.states[i].default_s
        if best_s is None or default_s is None or not self._left or built.candidate.config == self._job.defaults[i]:
            return False
        columns = columns_of(self._default(i), built.features)
        if columns is None or not self._learn():
            return False
        mean, deviation = self._model.predict(columns[None])
        if mean[0] - SURE * deviation[0] <= math.log(SLOW * best_s / default_s):
            return False
        self._left -= 1
        self.n_in_turn += 1
        self.n_skipped += 1
        return True

    def _learn(self) -> bool:
        """Learn from the trials so far where many are new; gives whether there were enough."""
        n = sum(map(len, self._job.trials))
        if n and n > self._n_tried * (1 + AGAIN):
            self._n_tried = n
            here = [pair for i in range(len(self._job.tasks)) for pair in told(self._default(i), self._trials(i))]
            known = [*self._elsewhere, *here[-MOST:]]
            self._has_learnt = len(known) >= LEAST
            if self._has_learnt:
                self._model.fit(np.array([columns for columns, _ in known]), np.array([log_s for _, log_s in known]))
        return self._has_learnt

    @cached_property
    def _elsewhere(self) -> list[tuple[np.ndarray, float]]:
        """What the database holds of other workloads, of whatever operator, measured here on as many threads."""
        job = self._job
        if not job.options.hints:
            return []
        here, own = job.target.fingerprint(), {task.key for task in job.tasks}
        others = [
            s for s in job.store.tasks() if (s.device, s.threads) == (here, job.threads) and s.workload not in own
        ]
        found: list[tuple[np.ndarray, float]] = []
        for summary in sorted(others, key=lambda summary: summary.last_time)[-MOST_WORKLOADS:]:
            records = [
                record
                for record in job.store.records(RecordFilter(workload=summary.workload))
                if (record.device, record.threads) == (here, job.threads) and is_current(record, job.source.versions)
            ]
            default = next((record.trial for record in records if record.is_default), None)
            found += list(told(default, [record.trial for record in records]))[-MOST // MOST_WORKLOADS :]
        return found

    def _default(self, i: int) -> Trial | None:
        return self._job.trials[i].get(self._job.defaults[i])

    def _trials(self, i: int) -> Iterable[Trial]:
        return self._job.trials[i].values()


def columns_of(default: Trial | None, known: Mapping[str, Any]) -> np.ndarray | None:
    """What is known of a compiled kernel, by itself and beside its task's default; None where something lacks."""
    own = built_features(known)
    base = None if default is None else built_features(default.measurement.how)
    return None if own is None or base is None else np.concatenate([own, own - base])


def told(default: Trial | None, trials: Iterable[Trial]) -> Iterator[tuple[np.ndarray, float]]:
    """A task's trials: what was known of them before they ran, and the logarithms of their times by its default's."""
    if default is None or not default.is_ok:
        return
    for trial in trials:
        if trial.is_ok and (columns := columns_of(default, trial.measurement.how)) is not None:
            yield columns, math.log(trial.median_s / default.median_s)
