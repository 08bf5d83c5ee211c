"""What the trials of many tasks say together: failures by kind, time spent, convergence, what more trials may give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosched.records.query import COMPARED, Coded, TaskKey, TrialColumns, Won
from autosched.records.record import Record

if TYPE_CHECKING:
    from autosched.target.fingerprint import Fingerprint

LONGEST_PAUSE_S = 60.0  # between two records of one tuning; what is longer was no tuning
NEAR = 1.05  # a time within 5 % of the best counts as converged


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """What the trials of one task say; times in seconds, None if unknown.

    failures       status -> number, those that failed
    spent_s        from the record before each of its records to that record, pauses of more than a minute left out
    default_s, best_s  as the winner's comparison has confirmed them; without a winner the least of single trials
    is_confirmed   whether there is a winner
    n_to_near      trials until the best time was within 5 % of what it is now
    n_since_best   trials since the last improvement
    expected_gain  share of the best time that as many trials again may save: what the second half of the trials saved
    """

    key: TaskKey
    n_trials: int
    failures: Mapping[str, int]
    spent_s: float
    default_s: float | None
    best_s: float | None
    gain: float | None
    n_to_near: int | None
    n_since_best: int | None
    expected_gain: float | None
    is_confirmed: bool = False

    @property
    def n_failed(self) -> int:
        """How many trials failed."""
        return sum(self.failures.values())


def task_statistics(
    keys: Sequence[TaskKey],
    columns: TrialColumns,
    wins: Mapping[tuple[str, Fingerprint, int], Record | Won],
) -> list[TaskStatistics]:
    """Statistics of each task from `SqlStore.trial_table()`, and `SqlStore.wins()` or `winners()`."""
    if not columns:
        return []
    index, times, statuses, defaults, medians = columns
    spent = np.bincount(index, weights=_pauses(np.array(times, dtype=np.float64)), minlength=len(keys))
    names, status = _codes(statuses)
    trials = _are_trials(statuses)
    median = np.array(medians, dtype=np.float64)  # None becomes NaN
    default = np.where(np.array(defaults, dtype=bool), median, np.nan)
    bounds = np.searchsorted(index, np.arange(len(keys) + 1))
    found = []
    for i, key in enumerate(keys):
        part = slice(bounds[i], bounds[i + 1])
        counts = np.bincount(status[part], minlength=len(names))
        failures = {name: int(n) for name, n in zip(names, counts) if n and name not in ("ok", "lost", COMPARED)}
        winner = wins.get((key.workload, key.device, key.threads))
        best_s, first_s = _least(median[part]), _least(default[part])
        if winner is not None:
            first_s = winner.default_s or first_s
            best_s = winner.best_s if isinstance(winner, Won) else winner.measurement.median_s
        gain = winner.gain if winner is not None else None
        progress = (*_convergence(median[part][trials[part]]), winner is not None)
        n = int(trials[part].sum())
        found.append(TaskStatistics(key, n, failures, float(spent[i]), first_s, best_s, gain, *progress))
    return found


def _pauses(times: np.ndarray) -> np.ndarray:
    """For each record the time since the one before it, of whatever task; 0 after a long pause."""
    order = np.argsort(times, kind="stable")
    gaps = np.diff(times[order], prepend=times[order[0]])
    result = np.empty_like(times)
    result[order] = np.where(gaps <= LONGEST_PAUSE_S, gaps, 0.0)
    return result


def _codes(words: Sequence[str] | Coded) -> tuple[Sequence[str], np.ndarray]:
    """The distinct words and each one's number; there are few of them among many."""
    if isinstance(words, Coded):
        return words.names, words.codes
    names = sorted(set(words))
    number = {name: i for i, name in enumerate(names)}
    return names, np.fromiter((number[word] for word in words), dtype=np.int64, count=len(words))


def _are_trials(statuses: Sequence[str] | Coded) -> np.ndarray:
    """Which records are trials, and no winner's comparison."""
    names, codes = _codes(statuses)
    found: np.ndarray = codes != (names.index(COMPARED) if COMPARED in names else -1)
    return found


def _least(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.min()) if len(known) else None


def best_so_far(medians: np.ndarray) -> np.ndarray:
    """The best time after each trial, in the order they were measured; infinite before the first one that worked."""
    return np.minimum.accumulate(np.where(np.isnan(medians), np.inf, medians))


def _convergence(medians: np.ndarray) -> tuple[int | None, int | None, float | None]:
    """Trials until within 5 % of the best, trials since the best, and the expected gain."""
    best = best_so_far(medians)
    if not len(best) or not np.isfinite(best[-1]):
        return None, None, None
    to_near = int(np.argmax(best <= best[-1] * NEAR)) + 1
    since = len(best) - 1 - int(np.argmax(best == best[-1]))
    half = best[(len(best) - 1) // 2]
    expected = 1.0 - best[-1] / half if len(best) >= 4 and np.isfinite(half) else None
    return to_near, since, None if expected is None else float(expected)


def wall_clock(columns: TrialColumns) -> Callable[[float], float]:
    """From a record's time to the seconds of tuning until then, pauses of more than a minute left out."""
    if not columns:
        return lambda time: 0.0
    known = np.sort(np.array(columns[1], dtype=np.float64))
    passed = np.cumsum(_pauses(known))
    return lambda time: float(passed[max(0, int(np.searchsorted(known, time, side="right")) - 1)])


def model_progress(n_tasks: int, columns: TrialColumns, weights: Sequence[int]) -> list[tuple[int, float, float]]:
    """The time of all tasks together by the best that is known of each, as trials went by.

    columns  as `SqlStore.trial_table()` gives them;  weights  how often each of the tasks is called, 0: left out
    returns  (trials so far, seconds that the tasks take, seconds of tuning until then) from where each task has a time
             on, at every improvement and at the end
    """
    wanted = np.array(weights) > 0
    if not columns or not wanted.any():
        return []
    index, times, statuses, _, medians = columns
    median, is_trial = np.array(medians, dtype=np.float64), _are_trials(statuses)
    index = np.asarray(index)
    missing = {i for i in range(n_tasks) if wanted[i]}
    best, total, found = np.full(n_tasks, np.inf), 0.0, list[tuple[int, float, float]]()
    passed = wall_clock(columns)
    order = [i for i in np.argsort(np.array(times, dtype=np.float64), kind="stable") if wanted[index[i]] & is_trial[i]]
    missing &= {int(i) for i in np.unique(index[~np.isnan(median)])}  # what never worked is not waited for
    for n, i in enumerate(order, start=1):
        task, value = int(index[i]), median[i]
        if np.isnan(value) or value >= best[task]:
            continue
        total += weights[task] * (value - (best[task] if np.isfinite(best[task]) else 0.0))
        best[task] = value
        missing.discard(task)
        if not missing:
            found.append((n, float(total), passed(times[i])))
    if found and found[-1][0] != len(order):
        found.append((len(order), found[-1][1], passed(times[order[-1]])))
    return found
