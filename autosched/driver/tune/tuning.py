"""What a tuning knows, in one place: its tasks, their trials so far, what is left of its budget, its report."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from autosched.codegen.lower.flops import count_work
from autosched.driver.options import TuneOptions
from autosched.driver.task_space import Spaces, TemplateSpaces
from autosched.driver.tune.drift import WARN, Drift, corrected
from autosched.driver.tune.hints import find_hints, is_current
from autosched.driver.tune.report import TaskReport, TuneReport
from autosched.driver.tune.session import begin_session
from autosched.records import Record, make_record
from autosched.records.choose import measured_as
from autosched.records.metrics import metrics_of
from autosched.records.record import current_versions
from autosched.records.sql import SqlStore
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.task import Task, Trial
from autosched.tir import PrimFunc
from autosched.tuner.cost_model import Hint
from autosched.tuner.scheduler import SchedulerOptions, TaskScheduler, TaskState, Turn
from autosched.tuner.search import Search, make_search

FINALISTS = 3  # that meet the default once more, interleaved, before a winner is named
COMPARED = 1 / 3  # what comparing one takes, of a trial's time: it is built already
BATCH = 8
TASK_UNTIL = 0.005  # a task of which less is expected gets no more; where the model never stops for it, no task does
UNKNOWN_GAIN = 0.3  # expected of a task of which nothing is known
LEAST_METRIC = 1e-12  # smaller ones, 0 too, are as good
LATELY = 40  # trials that the noise is taken from


class LateSearch:
    """A `Search` that `make` gives when it is first asked; it then gets the trials that came before."""

    def __init__(self, make: Callable[[], Search], judge: Callable[[Trial], Trial]):
        self._make, self._judge = make, judge
        self._search: Search | None = None
        self._early: list[Trial] = []

    @property
    def search(self) -> Search:
        """The search itself."""
        if self._search is None:
            self._search = self._make()
            self._search.tell(self._early)
        return self._search

    def ask(self, n: int) -> Sequence[Config]:
        """See `Search`."""
        return self.search.ask(n)

    def tell(self, trials: Sequence[Trial]) -> None:
        """See `Search`; trials as `judge` sees them."""
        trials = [self._judge(trial) for trial in trials]
        if self._search is None:
            self._early += trials
        else:
            self._search.tell(trials)

    def expected_gain(self, n: int) -> float:
        """See `Search`."""
        return self.search.expected_gain(n) if self._search is not None or self._early else UNKNOWN_GAIN


@dataclass(kw_only=True)
class TunedTask(TaskState):
    """One task of a tuning with everything that is known of it; what the scheduler asks is in `TaskState`.

    trials      the best of each configuration, drift taken out
    stale       configurations that are recorded, but not as they would be measured now
    first       what a build would use now, to be tried early; None once it was asked for, or for the default
    named       the winner of earlier runs
    is_settled  nothing was measured since that was named
    """

    task: Task
    default: Config
    space: ConfigSpace
    report: TaskReport
    first: Config | None = None
    trials: dict[Config, Trial] = field(default_factory=dict)
    stale: set[Config] = field(default_factory=set)
    named: Config | None = None
    is_settled: bool = False


class Tuning:
    """The one owner of a tuning's state: tasks, drift, budget (`session`), scheduler and report.

    before  per workload key what a build would use now, where that is not the default
    source  where the tasks' configurations come from; None: from templates
    metrics  what trials are judged by, the first of which chooses the winners; none: time
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        target: Target,
        threads: int,
        store: SqlStore,
        options: TuneOptions,
        before: Mapping[str, Config],
        source: Spaces | None = None,
        metrics: Sequence[str] = (),
    ):
        self.metrics = tuple(metrics)
        self.target, self.threads, self.store = target, threads, store
        self.options, self.before = options, before
        is_cold = options.cache == "cold" or (options.cache == "auto" and any(t.cache == "cold" for t in tasks))
        self.cache: Literal["warm", "cold"] = "cold" if is_cold else "warm"
        self.source = source or TemplateSpaces(target)
        self.drift = Drift()
        self._intervals: list[float] = []
        self.tasks = [self._tuned(task) for task in tasks]
        known = [list(store.trials(task)) for task in tasks]
        self.session = begin_session(known, options)
        self.report = TuneReport(
            [task.report for task in self.tasks],
            database=str(store.where),
            budget_s=options.budget_s,
            n_before=self.session.n_trials,
            device=target.fingerprint().summary,
            threads=threads,
        )
        for i, records in enumerate(known):
            self._resume(i, records)
            self.tasks[i].promising = int(self._is_news(self.tasks[i]))
        self._say_what_is_resumed()
        left = None if options.trials is None else options.trials - self.session.n_trials
        until, task_until = options.until, min(TASK_UNTIL, options.until)
        limits = SchedulerOptions(options.budget_s, left, until=until, task_until=task_until, batch=BATCH)
        self.scheduler = TaskScheduler(self.tasks, limits)

    def _tuned(self, task: Task) -> TunedTask:
        """A task before anything is known of it. Its cost is its arithmetic; 0 where it is no PrimFunc."""
        work = float(task.weight * count_work(task.func)) if isinstance(task.func, PrimFunc) else 0.0
        made = TunedTask(
            name=task.name, weight=task.weight, work=work,
            search=LateSearch(lambda: self._make_search(made), self.judged),
            task=task, default=self.source.default_of(task), space=self.source.space_of(task),
            report=TaskReport(task.name, task.weight), first=self.before.get(task.key),
        )  # fmt: skip
        return made

    # ---- what is known already

    def _resume(self, i: int, records: Sequence[Record]) -> None:
        """Learn from what the database has; nothing of it is measured again."""
        task = self.tasks[i]
        current = [r for r in records if is_current(r, self.source.versions)]
        as_here = [r for r in current if measured_as(r) == self.options.run_as]
        facts = [r for r in as_here if r.measurement.how.get("cache", self.cache) == self.cache]
        trials = [corrected(r.trial) for r in facts if r.config in task.space]
        for trial in trials:
            self.remember(i, trial)
        task.stale = {r.config for r in records} - set(task.trials)
        task.search.tell(trials)
        task.n_known = len({t.config for t in trials})
        if (default_s := task.default_s) is not None:
            self.drift.mark(i, default_s)
        winners = [r for r in facts if r.is_winner and r.default == task.default]
        if winners and winners[-1].config in task.space and task.default in task.trials:
            task.named = winners[-1].config
            task.is_settled = winners[-1].time >= max(r.time for r in facts) and not winners[-1].is_noisy
            task.best_s = winners[-1].measurement.median_s
            task.default_s = winners[-1].baseline_s or task.default_s

    def _say_what_is_resumed(self) -> None:
        session, options = self.session, self.options
        self.report.n_known = sum(bool(task.trials) for task in self.tasks)
        if session.n_trials:
            spent = [f"{session.n_trials} of {options.trials} trials"] if options.trials is not None else []
            spent += [f"{session.spent_s:.0f} of {options.budget_s:.0f} s"] if options.budget_s is not None else []
            self.report.notes.append(
                f"going on with a tuning that did not come to its end: {', '.join(spent)} were spent; --fresh: all anew"
            )
        if note := session.clock_note:
            self.report.notes.append(note)

    def _make_search(self, task: TunedTask) -> Search:
        options, budget = self.options, None
        if options.trials is not None and len(self.tasks) == 1:
            budget = options.trials - self.session.n_trials + task.n_known
        return make_search(options.strategy, task.space, seed=options.seed, budget=budget, hints=self._hints(task))

    def _hints(self, task: TunedTask) -> tuple[Hint, ...]:
        if not self.options.hints:
            return ()
        now = {t.task.key: (t.task.workload, list(t.trials.values())) for t in self.tasks}
        return find_hints(task.task, self.store, now, self.options.seed, self.source.versions)

    # ---- trials

    def ask(self, i: int, n: int) -> list[Config]:
        """The next configurations of a task: what a build would use now is among the first."""
        task, is_news = self.tasks[i], self._is_news(self.tasks[i])
        first, task.first = task.first, None
        if first is None or not is_news or n < 2:
            return list(task.search.ask(n))
        asked = [config for config in task.search.ask(n - 1) if config != first]
        return [*asked[:1], first, *asked[1:]]

    def _is_news(self, task: TunedTask) -> bool:
        """Whether a build would use something now that this tuning knows nothing of."""
        is_known = task.first is None or task.first == task.default or task.first in task.trials
        return not is_known and task.first in task.space

    def tell(self, turn: Turn, trials: Sequence[Trial], seconds: float, n_skipped: int = 0, n_told: int = 0) -> None:
        """Take the outcome of a turn to the search, which knows the first `n_told` already, and to the scheduler.

        n_skipped  candidates that were built and not measured
        """
        task = self.tasks[turn.task]
        task.search.tell(trials[n_told:])
        self.scheduler.report(turn, trials, seconds, task.default_s, n_skipped)

    def see_default(self, i: int, trial: Trial) -> None:
        """Take in the default's time as measured now; a drift that is worth it is noted once."""
        was_noted = abs(self.drift.worst) > WARN
        self.drift.see(i, trial.median_s)
        self.report.drift = self.drift.factor - 1
        if abs(self.drift.worst) > WARN and not was_noted:
            self.report.notes.append(
                f"the machine's speed has drifted: defaults take {self.drift.worst:+.0%} of their time more than "
                "before; times are corrected for it"
            )

    def remember(self, i: int, trial: Trial) -> Trial:
        """Keep the best time of each configuration, drift taken out; one that has failed once is never trusted again.

        returns  the trial as it is kept
        """
        task, trial = self.tasks[i], corrected(trial)
        old = task.trials.get(trial.config)
        if old is None or (old.is_ok and (not trial.is_ok or self.metric(trial) < self.metric(old))):
            task.trials[trial.config] = trial
        if not trial.is_ok:
            return trial
        if trial.config == task.default:
            task.default_s = trial.median_s
        known = task.best_s
        task.best_s = trial.median_s if known is None else min(known, trial.median_s)
        interval = trial.measurement.how.get("interval")
        if isinstance(interval, float) and "cut" not in trial.measurement.how:
            self._intervals = [*self._intervals[1 - LATELY :], interval]
        return trial

    def judged(self, trial: Trial) -> Trial:
        """A trial as the search sees it: the geometric mean of its metrics, if it has any, stands for its time."""
        if not self.metrics or not trial.is_ok:
            return trial
        found = metrics_of(trial.measurement)
        cost = statistics.geometric_mean([max(found[name], LEAST_METRIC) for name in self.metrics])
        return Trial(trial.config, dataclasses.replace(trial.measurement, times_s=(cost,)))

    def metric(self, trial: Trial) -> float:
        """What chooses the winner: the first metric, or the time."""
        return metrics_of(trial.measurement)[self.metrics[0]] if self.metrics else trial.median_s

    def record(
        self, i: int, trial: Trial, how: Mapping[str, object] | None = None, *, is_winner: bool = False
    ) -> Record:
        """The record of a trial of this session."""
        if how:
            noted = {**trial.measurement.how, **how}
            trial = Trial(trial.config, dataclasses.replace(trial.measurement, how=noted))
        is_default = trial.config == self.tasks[i].default
        template = self.source.versions.get(trial.config.template, "1")
        made = make_record(
            self.tasks[i].task, trial, session=self.session.name, is_default=is_default, is_winner=is_winner,
            versions={**current_versions(), "template": template}, default=self.tasks[i].default,
        )  # fmt: skip
        return dataclasses.replace(made, time=self.session.now())

    # ---- the report

    def naming_s(self) -> float:
        """What comparing the finalists of all tasks with new trials will take; those without any will get some."""
        compared = [task for task in self.tasks if task.report.n_trials or not task.trials]
        return COMPARED * sum((1 + FINALISTS) * task.trial_s for task in compared)

    def fill_report(self) -> None:
        """Bring the report's numbers up to date."""
        report, options = self.report, self.options
        report.elapsed_s = self.session.elapsed_s
        costs_s = self.scheduler.costs_s()
        total = sum(costs_s)
        for task, cost_s in zip(self.tasks, costs_s, strict=True):
            task.report.default_s, task.report.best_s = task.default_s, task.best_s
            task.report.share = cost_s / total if total else None
        report.left_s = None if options.budget_s is None else max(0.0, options.budget_s - self.session.total_s)
        report.expected_gain_s = self.scheduler.expected_gain() * total if total else None
        report.noise = statistics.median(self._intervals) if self._intervals else None
