"""What a tuning expects of candidates once they are compiled: the hopeless ones are not measured.

Compiling tells how a kernel's loops use the caches and which instructions its hot loop has, registers on the stack
among them. One model of all trials of a run, whatever their task, and of other workloads' records says from that how
long a kernel takes, measured by its task's default. What it is sure of to take more than twice the best time costs its
compilation and nothing more: it is no trial, has no record, and the search does not hear of it. At least half of a
turn is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

from autosched.driver.tune.hints import is_current
from autosched.driver.tune.tuning import TunedTask, Tuning
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
    """See `tuner.measure.Foresight`; of the tasks of a tuning."""

    def __init__(self, tuning: Tuning):
        self._tuning = tuning
        self._index = {id(known.task): known for known in tuning.tasks}
        self._model, self._n_tried, self._has_learnt = BuiltModel(), 0, False
        self._left = 0
        self.n_skipped, self.n_in_turn = 0, 0  # in all, and in this turn

    def begin(self, turn: Turn) -> None:
        """A turn begins."""
        self._left, self.n_in_turn = turn.n // 2, 0

    def is_hopeless(self, built: Built, best_s: float | None) -> bool:
        """Whether a candidate is not worth being measured."""
        task = self._index[id(built.candidate.task)]
        default_s = task.default_s
        if best_s is None or default_s is None or not self._left or built.candidate.config == task.default:
            return False
        columns = columns_of(_default(task), built.features)
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
        n = sum(len(task.trials) for task in self._tuning.tasks)
        if n and n > self._n_tried * (1 + AGAIN):
            self._n_tried = n
            here = [pair for task in self._tuning.tasks for pair in examples(_default(task), task.trials.values())]
            known = [*self._elsewhere, *here[-MOST:]]
            self._has_learnt = len(known) >= LEAST
            if self._has_learnt:
                self._model.fit(np.array([columns for columns, _ in known]), np.array([log_s for _, log_s in known]))
        return self._has_learnt

    @cached_property
    def _elsewhere(self) -> list[tuple[np.ndarray, float]]:
        """What the database holds of other workloads, of whatever operator, measured here on as many threads."""
        tuning = self._tuning
        if not tuning.options.hints:
            return []
        here, own = tuning.target.fingerprint(), {task.task.key for task in tuning.tasks}
        others = [
            s for s in tuning.store.tasks() if (s.device, s.threads) == (here, tuning.threads) and s.workload not in own
        ]
        found: list[tuple[np.ndarray, float]] = []
        for summary in sorted(others, key=lambda summary: summary.last_time)[-MOST_WORKLOADS:]:
            records = [
                record
                for record in tuning.store.records(RecordFilter(workload=summary.workload))
                if (record.device, record.threads) == (here, tuning.threads)
                and is_current(record, tuning.source.versions)
            ]
            default = next((record.trial for record in records if record.is_default), None)
            found += list(examples(default, [record.trial for record in records]))[-MOST // MOST_WORKLOADS :]
        return found


def _default(task: TunedTask) -> Trial | None:
    return task.trials.get(task.default)


def columns_of(default: Trial | None, known: Mapping[str, object]) -> np.ndarray | None:
    """What is known of a compiled kernel, by itself and beside its task's default; None where something lacks."""
    own = built_features(known)
    base = None if default is None else built_features(default.measurement.how)
    return None if own is None or base is None else np.concatenate([own, own - base])


def examples(default: Trial | None, trials: Iterable[Trial]) -> Iterator[tuple[np.ndarray, float]]:
    """A task's trials: what was known of them before they ran, and the logarithms of their times by its default's."""
    if default is None or not default.is_ok:
        return
    for trial in trials:
        if trial.is_ok and (columns := columns_of(default, trial.measurement.how)) is not None:
            yield columns, math.log(trial.median_s / default.median_s)
