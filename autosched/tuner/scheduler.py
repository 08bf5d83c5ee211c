"""Which task gets the next batch of trials, and when to stop: arithmetic only, nothing is measured here.

The next batch goes where it is expected to shorten the whole model most per second spent on it:
weight x best time x expected gain of the task's search / seconds that a batch takes. A task that was not measured yet
is taken for as fast, by its arithmetic, as the others are; one of few trials is expected to gain what the others did,
most of it with its first trials.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from autosched.errors import InvalidValueError
from autosched.task import Trial
from autosched.tuner.search import Search

LEAST = 2  # trials of a turn where time is short: the default and one more, which two builders make at once
GUESSED_TRIAL_S = 0.25  # what a trial takes before one was measured
GUESSED_GAIN = 0.3  # the share of its time that a task is expected to save before any task has shown what tuning saves


class StopReason(StrEnum):
    """Why tuning ended."""

    TIME = "the time budget is used up"
    TRIALS = "the trial budget is used up"
    EXHAUSTED = "every configuration of every task was tried"
    CONVERGED = "little further gain is expected"


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """When to stop, and how much at a time.

    budget_s    seconds in all; None for no limit
    trials      trials in all, over all tasks; None for no limit
    until       stop when the expected further gain of the whole model is below this share; 0 never stops for it
    task_until  the same for one task, which then gets no more
    batch       trials of one turn
    first       trials of a task's first turn, where other tasks wait for theirs: enough for a hint to these. A task
                of which something promising is known has that and its default first
    horizon     trials ahead that expected gains look
    warmup      trials of a task before its search's expected gain is believed
    """

    budget_s: float | None = None
    trials: int | None = None
    until: float = 0.01
    task_until: float = 0.005
    batch: int = 8
    first: int = 6
    horizon: int = 32
    warmup: int = 16

    def __post_init__(self) -> None:
        if self.budget_s is not None and not self.budget_s > 0:
            raise InvalidValueError(f"a budget of {self.budget_s} s", hint="give a positive time")
        if self.trials is not None and self.trials < 1:
            raise InvalidValueError(f"{self.trials} trials", hint="give at least 1")
        if min(self.batch, self.first) < 1 or not 0 <= self.until < 1 or not 0 <= self.task_until < 1:
            raise InvalidValueError(
                f"batch {self.batch}, first {self.first}, until {self.until}, task_until {self.task_until}"
            )


@dataclass
class TaskState:
    """One task in the eyes of the scheduler.

    weight     how often it occurs in the model
    work       what it costs the model as far as that is known before it is measured, in any unit
    default_s  median time of its default; None while that was not measured or when it failed
    best_s     best median time so far, the default included; None while nothing ran
    n_known    recorded trials that the search has learned from: they cost nothing now, and count as warm-up
    promising  configurations from elsewhere, expected to be good, that are among its first trials
    """

    name: str
    weight: int
    search: Search
    work: float = 0.0
    default_s: float | None = None
    best_s: float | None = None
    n_trials: int = 0
    n_failed: int = 0
    n_known: int = 0
    promising: int = 0
    spent_s: float = 0.0
    is_exhausted: bool = False

    @property
    def weighted_s(self) -> float:
        """What the task costs the model now; 0 while nothing is known."""
        return self.weight * (self.best_s or 0.0)

    def cost_s(self, pace: float | None) -> float:
        """What it costs the model; `pace`: seconds for each unit of work, by which it is guessed before it ran."""
        return self.weighted_s if self.best_s else self.work * (pace or 0.0)

    @property
    def saved(self) -> float:
        """The share of its default's time that the best so far saves."""
        return 1 - self.best_s / self.default_s if self.best_s and self.default_s else 0.0

    @property
    def n_told(self) -> int:
        """Trials that the search has learned from."""
        return self.n_trials + self.n_known

    @property
    def trial_s(self) -> float:
        """What one trial takes."""
        return self.spent_s / self.n_trials if self.n_trials and self.spent_s > 0 else GUESSED_TRIAL_S

    def expected_gain(self, n: int) -> float:
        """The share of its time that `n` more trials are expected to save."""
        return 0.0 if self.is_exhausted else self.search.expected_gain(n)


@dataclass(frozen=True, slots=True)
class Turn:
    """The next thing to do: `n` trials of one task."""

    task: int
    n: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Why tuning ended, and what more of it would buy.

    expected_gain  the share of the model's time that `more_trials`, which take `more_s`, are expected to save
    until          the share below which `CONVERGED` is declared
    """

    reason: StopReason
    expected_gain: float
    more_trials: int = 0
    more_s: float = 0.0
    until: float = 0.01

    def __str__(self) -> str:
        text = str(self.reason)
        if self.reason is StopReason.CONVERGED:
            text = f"the expected further gain of the model is below {100 * self.until:.3g} %"
        if self.expected_gain <= 0:
            return text
        minutes, seconds = divmod(round(self.more_s), 60)
        return (
            f"{text}: {self.more_trials} more trials, about {minutes}:{seconds:02d}, "
            f"would buy about {100 * self.expected_gain:.1f} %"
        )


@dataclass
class TaskScheduler:
    """Hands out turns until `next_turn` gives a `Stop`; after each turn `report` says what came of it."""

    tasks: Sequence[TaskState]
    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    spent_s: float = 0.0
    n_trials: int = 0

    def next_turn(self, elapsed_s: float | None = None) -> Turn | Stop:
        """The next turn, or why there is none.

        elapsed_s  wall time since tuning began; the sum of reported seconds if None
        """
        elapsed = self.spent_s if elapsed_s is None else elapsed_s
        if reason := self._used_up(elapsed):
            return self._stop(reason)
        open_tasks = [i for i, task in enumerate(self.tasks) if not task.is_exhausted]
        if not open_tasks:
            return Stop(StopReason.EXHAUSTED, 0.0)
        horizon, least = self.options.horizon, self.options.task_until
        useful = [i for i in open_tasks if self._is_cold(i) or self.tasks[i].expected_gain(horizon) >= least]
        untried = [i for i in open_tasks if self.tasks[i].n_told == 0]
        if self.expected_gain() < self.options.until or not useful or self._is_short(len(untried), elapsed):
            useful = untried  # nobody goes away empty-handed: a build should find a record of every kernel
        if not useful:
            return self._stop(StopReason.CONVERGED)
        turns = [self._turn(i, elapsed) for i in useful]
        return max(turns, key=self._worth(self._pace(), self._usual_gain()))

    def following(self, turn: Turn, elapsed_s: float | None = None, most: int = 0) -> Turn | None:
        """The turn that will probably come after one that is not over; None where that hangs on its outcome.

        most  trials of the same task that may follow, chosen with what is known of it by now
        """
        task = self.tasks[turn.task]
        task.n_trials += turn.n
        self.n_trials += turn.n
        try:
            found = self.next_turn(elapsed_s)
        finally:
            task.n_trials -= turn.n
            self.n_trials -= turn.n
        if not isinstance(found, Turn):
            return None
        if found.task != turn.task:
            return found
        return Turn(found.task, min(found.n, most)) if most >= LEAST else None

    def report(
        self,
        turn: Turn,
        trials: Sequence[Trial],
        seconds: float,
        default_s: float | None = None,
        n_skipped: int = 0,
    ) -> None:
        """Take the outcome of a turn; fewer trials than asked for mean that the task's space is used up.

        default_s  the default's time, when this turn measured it
        n_skipped  candidates that were not worth a trial once they were built
        """
        task = self.tasks[turn.task]
        task.n_trials += len(trials)
        task.n_failed += sum(trial.measurement.status.is_failure for trial in trials)
        task.spent_s += seconds
        self.n_trials += len(trials)
        self.spent_s += seconds
        if default_s is not None:
            task.default_s = default_s
        times = [trial.median_s for trial in trials if trial.is_ok]
        known = [t for t in (task.best_s, task.default_s) if t is not None]
        task.best_s = min([*times, *known], default=None)
        task.is_exhausted = len(trials) + n_skipped < turn.n

    def expected_gain(self) -> float:
        """The share of the model's time that `horizon` more trials of every task are expected to save.

        A task whose few trials say little yet is expected to save what the others did, each counted by its trials, with
        one more beside them that saves `GUESSED_GAIN`.
        """
        usual, costs_s = self._usual_gain(), self.costs_s()
        saved = 0.0
        for i, task in enumerate(self.tasks):
            gain = task.expected_gain(self.options.horizon)
            saved += costs_s[i] * (min(gain, usual) if self._is_cold(i) else gain)
        return saved / sum(costs_s) if any(costs_s) else 0.0

    def costs_s(self) -> list[float]:
        """What each task costs the model in seconds: measured, else guessed from its work; 0 where nothing is known."""
        pace = self._pace()
        return [task.cost_s(pace) for task in self.tasks]

    def _usual_gain(self) -> float:
        """The share of its default's time that tuning saves a task of this model, as far as that was seen."""
        warmup, horizon = self.options.warmup, self.options.horizon
        shares, gains = [1.0], [GUESSED_GAIN]
        for i, task in enumerate(self.tasks):
            further = 0.0 if self._is_cold(i) else task.expected_gain(horizon)
            shares.append(min(1.0, task.n_told / warmup))
            gains.append(1 - (1 - task.saved) * (1 - further))
        return float(sum(map(operator.mul, shares, gains)) / sum(shares))

    def _is_cold(self, i: int) -> bool:
        """Whether a task's trials say little yet."""
        return self.tasks[i].n_told < self.options.warmup

    def _pace(self) -> float | None:
        """Seconds for each unit of work, of the tasks that were measured."""
        known = [task for task in self.tasks if task.best_s and task.work]
        return sum(task.weighted_s for task in known) / sum(task.work for task in known) if known else None

    def _stop(self, reason: StopReason) -> Stop:
        n = self.options.horizon * sum(not task.is_exhausted for task in self.tasks)
        return Stop(reason, self.expected_gain(), n, n * self._mean_trial_s(), self.options.until)

    def _used_up(self, elapsed_s: float) -> StopReason | None:
        if self.options.trials is not None and self.n_trials >= self.options.trials:
            return StopReason.TRIALS
        if self.options.budget_s is not None and elapsed_s >= self.options.budget_s:
            return StopReason.TIME
        return None

    def _is_short(self, n_untried: int, elapsed_s: float) -> bool:
        """Whether what is left of the budget is just enough for so many short first turns."""
        trials, budget_s = self.options.trials, self.options.budget_s
        least = LEAST * n_untried
        few = trials is not None and trials - self.n_trials <= least
        return n_untried > 0 and (
            few or (budget_s is not None and budget_s - elapsed_s <= least * self._mean_trial_s())
        )

    def _worth(self, pace: float | None, usual: float) -> Callable[[Turn], tuple[bool, float]]:
        """What a turn is expected to save the model in each second that it takes; before all others come tasks whose
        cost nobody can tell, the one with the most work first."""

        def worth(turn: Turn) -> tuple[bool, float]:
            task, n = self.tasks[turn.task], turn.n
            if task.n_told == 0 and (pace is None or not task.work):
                return True, task.work
            if task.n_told == 0 and task.promising:
                gain = usual
            elif self._is_cold(turn.task):
                gain = usual * math.log1p(n / (1 + task.n_told)) / math.log1p(self.options.warmup)
            else:
                gain = task.expected_gain(n)
            seconds = n * (task.trial_s if task.n_trials else self._mean_trial_s())
            return False, task.cost_s(pace) * gain / seconds

        return worth

    def _turn(self, i: int, elapsed_s: float) -> Turn:
        """A batch of the task, cut so that what is left of the budget reaches every task that had no trial yet."""
        n, task = self.options.batch, self.tasks[i]
        untried = sum(t.n_told == 0 and not t.is_exhausted for t in self.tasks)
        share, kept = (max(1, untried), 0) if task.n_told == 0 else (1, LEAST * untried)
        if share > 1:
            n = min(n, 1 + task.promising if task.promising else self.options.first)
        if self.options.trials is not None:
            n = min(n, max(1, math.ceil((self.options.trials - self.n_trials - kept) / share)))
        if self.options.budget_s is not None:
            left = (self.options.budget_s - elapsed_s) / self._mean_trial_s() - kept
            n = min(n, max(LEAST, int(left / share)))
        return Turn(i, n)

    def _mean_trial_s(self) -> float:
        return self.spent_s / self.n_trials if self.n_trials and self.spent_s > 0 else GUESSED_TRIAL_S
