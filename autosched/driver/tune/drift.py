"""How much faster or slower the machine is than when a tuning began, seen by measuring defaults again."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autosched.task import Trial

EVERY_S = 20.0  # between two looks
WARN = 0.03
NOISE = 0.01  # smaller changes are left alone


@dataclass
class Drift:
    """`factor` is how many times longer things take now than they did when the first default was measured.

    Every default that is measured for the first time becomes a mark; measured again it shows the drift since then.
    """

    clock: Callable[[], float] = time.monotonic
    factor: float = 1.0
    worst: float = 0.0  # the largest deviation from 1 so far
    _marks: dict[int, float] = field(default_factory=dict)  # task -> its default's time, drift taken out
    _fresh: set[int] = field(default_factory=set)  # tasks whose default was measured in this run
    _looked: float = float("-inf")

    def mark(self, task: int, default_s: float) -> None:
        """Take over a default's time from the records of an earlier run, drift taken out."""
        self._marks[task] = default_s

    def is_due(self, task: int) -> bool:
        """Whether this task's default should be measured again with the next batch.

        From time to time, and at once where only an earlier run has measured it: the machine was another one then.
        """
        is_old = task not in self._fresh
        return task in self._marks and (is_old or self.clock() - self._looked >= EVERY_S)

    def see(self, task: int, default_s: float) -> None:
        """Take in a default's time as measured now."""
        self._fresh.add(task)
        self._looked = self.clock()
        if task not in self._marks:
            self._marks[task] = default_s / self.factor
            return
        factor = default_s / self._marks[task]
        self.factor = factor if abs(factor - 1) > NOISE else 1.0
        self.worst = max(self.worst, self.factor - 1, 1 - self.factor, key=abs)

    def stamp(self, trial: Trial) -> Trial:
        """The trial with the drift of its moment noted, its times as they were measured."""
        if not trial.is_ok or self.factor == 1.0:
            return trial
        how = {**trial.measurement.how, "drift": round(self.factor, 4)}
        return Trial(trial.config, dataclasses.replace(trial.measurement, how=how))


def corrected(trial: Trial) -> Trial:
    """The trial with its noted drift taken out of its times: what searches learn from and times are compared by."""
    noted = trial.measurement.how.get("drift")
    if not trial.is_ok or not isinstance(noted, int | float) or noted <= 0:
        return trial
    times = tuple(t / noted for t in trial.measurement.times_s)
    return Trial(trial.config, dataclasses.replace(trial.measurement, times_s=times))
