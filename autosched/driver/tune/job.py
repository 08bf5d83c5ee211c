"""What a tuning knows: its tasks, their trials so far, what is left of its budget."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from autosched.driver.options import TuneOptions
from autosched.driver.task_space import Spaces, TemplateSpaces
from autosched.driver.tune.drift import WARN, Drift, corrected
from autosched.driver.tune.hints import find_hints, is_current
from autosched.driver.tune.report import TaskReport, TuneReport
from autosched.driver.tune.search import LateSearch
from autosched.driver.tune.session import begin_session
from autosched.driver.work import count_work
from autosched.records import Record, make_record
from autosched.records.choose import measured_as
from autosched.records.record import current_versions
from autosched.records.sql import SqlStore
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task, Trial
from autosched.tir import PrimFunc
from autosched.tuner.cost_model import Hint
from autosched.tuner.scheduler import SchedulerOptions, TaskScheduler, TaskState, Turn
from autosched.tuner.search import Search, make_search

FINALISTS = 3  # that meet the default once more, interleaved, before a winner is named
BATCH = 8
TASK_UNTIL = 0.005  # a task of which less is expected gets no more; where the model never stops for it, no task does
LATELY = 40  # trials that the noise is taken from


class Job:
    """The tasks of a tuning with everything that was measured of them, by their index.

    before  per workload key what a build would use now, where that is not the default
    spaces  where the tasks' configurations come from; None: from templates
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        target: Target,
        threads: int,
        store: SqlStore,
        options: TuneOptions,
        before: Mapping[str, Config],
        spaces: Spaces | None = None,
    ):
        self.tasks, self.target, self.threads, self.store = tuple(tasks), target, threads, store
        self.options, self.before = options, before
        is_cold = options.cache == "cold" or (options.cache == "auto" and any(t.cache == "cold" for t in tasks))
        self.cache: Any = "cold" if is_cold else "warm"
        self.source = spaces or TemplateSpaces(target)
        self.defaults = [self.source.default_of(task) for task in tasks]
        self.spaces = [self.source.space_of(task) for task in tasks]
        self.trials: list[dict[Config, Trial]] = [{} for _ in tasks]
        self.stale: list[set[Config]] = [set() for _ in tasks]  # recorded, but not as they would be measured now
        self.named: dict[int, Config] = {}  # winners of earlier runs, by task
        self.settled: set[int] = set()  # tasks of which nothing was measured since their winner was named
        self.drift = Drift()
        self._first = {i: before[t.key] for i, t in enumerate(tasks) if t.key in before}  # to be tried early
        self._intervals: list[float] = []
        self.states = [
            TaskState(task.name, task.weight, LateSearch(lambda i=i: self._make_search(i)), _work(task))  # type: ignore[misc]
            for i, task in enumerate(tasks)
        ]
        known = [list(store.trials(task)) for task in tasks]
        self.session = begin_session(known, options)
        self.report = TuneReport(
            [TaskReport(t.name, t.weight) for t in tasks],
            database=str(store.where),
            budget_s=options.budget_s,
            n_before=self.session.n_trials,
            device=_device_text(target),
            threads=threads,
        )
        for i, records in enumerate(known):
            self._resume(i, records)
            self.states[i].promising = int(self._is_news(i))
        self._say_what_is_resumed()
        left = None if options.trials is None else options.trials - self.session.n_trials
        until, task_until = options.until, min(TASK_UNTIL, options.until)
        limits = SchedulerOptions(options.budget_s, left, until=until, task_until=task_until, batch=BATCH)
        self.scheduler = TaskScheduler(self.states, limits)

    # ---- what is known already

    def _resume(self, i: int, records: Sequence[Record]) -> None:
        """Learn from what the database has; nothing of it is measured again."""
        current = [r for r in records if is_current(r, self.source.versions)]
        as_here = [r for r in current if measured_as(r) == self.options.run_as]
        facts = [r for r in as_here if r.measurement.how.get("cache", self.cache) == self.cache]
        trials = [corrected(r.trial) for r in facts if r.config in self.spaces[i]]
        for trial in trials:
            self.remember(i, trial)
        self.stale[i] = {r.config for r in records} - set(self.trials[i])
        self.states[i].search.tell(trials)
        self.states[i].n_known = len({t.config for t in trials})
        if (default_s := self.states[i].default_s) is not None:
            self.drift.mark(i, default_s)
        winners = [r for r in facts if r.is_winner]
        if winners and winners[-1].config in self.spaces[i] and self.defaults[i] in self.trials[i]:
            self.named[i] = winners[-1].config
            if winners[-1].time >= max(r.time for r in facts):
                self.settled.add(i)
            self.states[i].best_s = winners[-1].measurement.median_s
            self.states[i].default_s = winners[-1].baseline_s or self.states[i].default_s

    def _say_what_is_resumed(self) -> None:
        session, options = self.session, self.options
        self.report.n_known = sum(bool(trials) for trials in self.trials)
        if session.n_trials:
            spent = [f"{session.n_trials} of {options.trials} trials"] if options.trials is not None else []
            spent += [f"{session.spent_s:.0f} of {options.budget_s:.0f} s"] if options.budget_s is not None else []
            self.report.notes.append(
                f"going on with a tuning that did not come to its end: {', '.join(spent)} were spent; --fresh: all anew"
            )
        if note := session.clock_note:
            self.report.notes.append(note)

    def _make_search(self, i: int) -> Search:
        budget = None
        if self.options.trials is not None and len(self.tasks) == 1:
            budget = self.options.trials - self.session.n_trials + self.states[i].n_known
        strategy, seed = self.options.strategy, self.options.seed
        return make_search(strategy, self.spaces[i], seed=seed, budget=budget, hints=self._hints(i))

    def _hints(self, i: int) -> tuple[Hint, ...]:
        if not self.options.hints:
            return ()
        now = {t.key: (t.workload, list(trials.values())) for t, trials in zip(self.tasks, self.trials, strict=True)}
        return find_hints(self.tasks[i], self.store, now, self.options.seed, self.source.versions)

    # ---- trials

    def ask(self, i: int, n: int) -> list[Config]:
        """The next configurations of a task: what a build would use now is among the first."""
        state, is_news = self.states[i], self._is_news(i)
        first = self._first.pop(i, None)
        if first is None or not is_news or n < 2:
            return list(state.search.ask(n))
        asked = [config for config in state.search.ask(n - 1) if config != first]
        return [*asked[:1], first, *asked[1:]]

    def _is_news(self, i: int) -> bool:
        """Whether a build would use something now that this tuning knows nothing of."""
        first = self._first.get(i)
        is_known = first is None or first == self.defaults[i] or first in self.trials[i]
        return not is_known and first in self.spaces[i]

    def tell(self, turn: Turn, trials: Sequence[Trial], seconds: float, n_skipped: int = 0) -> None:
        """Take the outcome of a turn to the search and the scheduler; `n_skipped` were built and not measured."""
        state = self.states[turn.task]
        state.search.tell(trials)
        self.scheduler.report(turn, trials, seconds, state.default_s, n_skipped)

    def see_default(self, i: int, trial: Trial) -> None:
        """Take in the default's time as measured now; a drift that is worth it is told once."""
        was_told = abs(self.drift.worst) > WARN
        self.drift.see(i, trial.median_s)
        self.report.drift = self.drift.factor - 1
        if abs(self.drift.worst) > WARN and not was_told:
            self.report.notes.append(
                f"the machine's speed has drifted: defaults take {self.drift.worst:+.0%} of their time more than "
                "before; times are corrected for it"
            )

    def remember(self, i: int, trial: Trial) -> Trial:
        """Keep the best time of each configuration, drift taken out; one that has failed once is never trusted again.

        returns  the trial as it is kept
        """
        trial = corrected(trial)
        old = self.trials[i].get(trial.config)
        if old is None or (old.is_ok and (not trial.is_ok or trial.median_s < old.median_s)):
            self.trials[i][trial.config] = trial
        if not trial.is_ok:
            return trial
        if trial.config == self.defaults[i]:
            self.states[i].default_s = trial.median_s
        known = self.states[i].best_s
        self.states[i].best_s = trial.median_s if known is None else min(known, trial.median_s)
        interval = trial.measurement.how.get("interval")
        if isinstance(interval, float) and "cut" not in trial.measurement.how:
            self._intervals = [*self._intervals[1 - LATELY :], interval]
        return trial

    def record(self, i: int, trial: Trial, how: Mapping[str, Any] | None = None, *, is_winner: bool = False) -> Record:
        """The record of a trial of this session."""
        if how:
            noted = {**trial.measurement.how, **how}
            trial = Trial(trial.config, dataclasses.replace(trial.measurement, how=noted))
        is_default = trial.config == self.defaults[i]
        template = self.source.versions.get(trial.config.template, "1")
        made = make_record(
            self.tasks[i], trial, session=self.session.name, is_default=is_default, is_winner=is_winner,
            versions={**current_versions(), "template": template},
        )  # fmt: skip
        return dataclasses.replace(made, time=self.session.now())

    # ---- the report

    def naming_s(self) -> float:
        """What comparing the finalists of all tasks with trials will take."""
        to_name = (s for s, task in zip(self.states, self.report.tasks, strict=True) if task.n_trials)
        return sum((1 + FINALISTS) * state.trial_s for state in to_name)

    def fill_report(self) -> None:
        """Bring the report's numbers up to date."""
        report, options = self.report, self.options
        report.elapsed_s = self.session.elapsed_s
        total = sum(s.weighted_s for s in self.states)
        for task, known in zip(report.tasks, self.states, strict=True):
            task.default_s, task.best_s = known.default_s, known.best_s
            task.share = known.weighted_s / total if total else None
        report.left_s = None if options.budget_s is None else max(0.0, options.budget_s - self.session.total_s)
        report.expected_gain_s = self.scheduler.expected_gain() * total if total else None
        report.noise = statistics.median(self._intervals) if self._intervals else None


def _work(task: Task) -> float:
    """What a task costs its model, before it is measured: by its arithmetic; 0 where it is no PrimFunc."""
    return float(task.weight * count_work(task.func)) if isinstance(task.func, PrimFunc) else 0.0


def _device_text(target: Target) -> str:
    return target.fingerprint().summary
