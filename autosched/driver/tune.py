"""`tune`: search for the best configurations of a model's kernels, and remember them as they come."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autosched.driver.interruption import Interruption
from autosched.driver.models import as_module
from autosched.driver.settings import check_runs_here, resolve_target, resolve_threads
from autosched.driver.tasks import extract_tasks
from autosched.errors import UsageError
from autosched.records import database_to_write, make_record, open_store
from autosched.records.sql import SqlStore
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task, Trial
from autosched.templates import default_config, space_for
from autosched.tuner.measure import LocalMeasurer, MeasureOptions
from autosched.tuner.measure.compare import Compared
from autosched.tuner.scheduler import SchedulerOptions, Stop, TaskScheduler, Turn
from autosched.tuner.scheduler import TaskState as Progress
from autosched.tuner.search import make_search

FINALISTS = 3  # that meet the default once more, interleaved, before a winner is named
BATCH = 8


@dataclass(frozen=True)
class TuneOptions:
    """How to tune.

    budget_s  seconds in all;   trials  measurements in all;   neither: until little gain is expected
    threads   threads that the kernels may use
    strategy  how to search: "auto", "xgboost", "random"
    tasks     indices of `list_tasks` to tune; None for all
    Raises    UsageError for an impossible value.
    """

    budget_s: float | None = None
    trials: int | None = None
    threads: int | None = None
    strategy: str = "auto"
    seed: int = 0
    tasks: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"{self.trials} trials", hint="give at least 1")
        if self.budget_s is not None and self.budget_s <= 0:
            raise UsageError(f"a budget of {self.budget_s} s", hint="give a positive time")


@dataclass
class TaskReport:
    """How far one task is; times in seconds, None until measured."""

    name: str
    weight: int
    share: float | None = None
    default_s: float | None = None
    best_s: float | None = None
    n_trials: int = 0
    n_failed: int = 0
    state: str = "waiting"
    config: str = ""


@dataclass
class TuneReport:
    """How far a tuning is, and at its end what came of it."""

    tasks: list[TaskReport] = field(default_factory=list)
    elapsed_s: float = 0.0
    left_s: float | None = None
    n_trials: int = 0
    n_failed: int = 0
    expected_gain_s: float | None = None
    reason: str = ""
    database: str = ""
    interrupted: bool = False  # Ctrl-C was pressed; as long as `reason` is empty, what must be is being finished


def tune(
    what: Any,
    target: Any = None,
    *,
    args: Sequence[Any] | None = None,
    params: Mapping[str, Any] | None = None,
    records: Any = None,
    options: TuneOptions | None = None,
    progress: Callable[[TuneReport], None] | None = None,
) -> TuneReport:
    """Tune every kernel of a model, a PrimFunc, tensors or one task.

    records   path or URL of the database to write to; None: the project's or the user's
    progress  called with the report whenever something changed
    The default configuration is the first trial of every task and meets the best ones again at the end, interleaved:
    one that does not beat it is not recorded as the winner. What the database holds is not measured again.
    Ctrl-C once: the batch in flight is finished and winners are named. Twice: it ends at once, reported trials kept.
    Raises as `build`, and RecordError for the database.
    """
    options = options or TuneOptions()
    chosen = resolve_target(target)
    check_runs_here(chosen)
    threads = resolve_threads(options.threads)
    if isinstance(what, Task):
        tasks: tuple[Task, ...] = (what,)
    else:
        tasks = extract_tasks(as_module(what, args), chosen, threads=threads, params=params)
    if options.tasks is not None:
        if unknown := [i for i in options.tasks if not 0 <= i < len(tasks)]:
            raise UsageError(f"no task {unknown[0]}", hint=f"there are 0 to {len(tasks) - 1}")
        tasks = tuple(tasks[i] for i in options.tasks)
    where = records if records is not None else database_to_write()
    with open_store(where) as store:
        return Tuning(tasks, chosen, threads, store, options, progress).run()


class Tuning:
    """One run of the tuner over some tasks."""

    def __init__(
        self,
        tasks: Sequence[Task],
        target: Target,
        threads: int,
        store: SqlStore,
        options: TuneOptions,
        progress: Callable[[TuneReport], None] | None,
    ):
        self.tasks, self.target, self.threads, self.store, self.options = tasks, target, threads, store, options
        self.progress = progress or (lambda report: None)
        self.session = uuid.uuid4().hex[:12]
        self.start = time.monotonic()
        self.defaults = [default_config(t.func, target) for t in tasks]
        self.trials: list[dict[Config, Trial]] = [{} for _ in tasks]
        self.spaces = [space_for(t.func, target) for t in tasks]
        self.states = [
            Progress(t.name, t.weight, make_search(options.strategy, space, seed=options.seed))
            for t, space in zip(tasks, self.spaces, strict=True)
        ]
        limits = SchedulerOptions(budget_s=options.budget_s, trials=options.trials, batch=BATCH)
        self.scheduler = TaskScheduler(self.states, limits)
        self.report = TuneReport([TaskReport(t.name, t.weight) for t in tasks], database=str(store.where))
        self.named: dict[int, Config] = {}  # winners of earlier runs, by task
        self.interruption = Interruption()

    def run(self) -> TuneReport:
        """Tune until a budget is used up or nothing more is expected; an interruption ends it and keeps everything."""
        for i, task in enumerate(self.tasks):
            self._resume(i, task)
        try:
            with self.interruption, LocalMeasurer(self.target, MeasureOptions(threads=self.threads)) as measurer:
                reason = self._search(measurer)
                self._finish(measurer)
            self.report.reason = reason
        except KeyboardInterrupt:  # the second one: trials are kept, the missing winners are not named
            self.interruption.is_asked, self.report.reason = True, "interrupted before all winners were named"
        self._update()
        return self.report

    def _resume(self, i: int, task: Task) -> None:
        """Learn from what the database has; nothing of it is measured again."""
        records = list(self.store.trials(task))
        known = [record.trial for record in records]
        self.states[i].search.tell(known)
        self.states[i].n_known = len(known)
        for trial in known:
            self._remember(i, trial)
        winners = [record for record in records if record.is_winner]
        if winners and winners[-1].config in self.spaces[i] and self.defaults[i] in self.trials[i]:
            self.named[i] = winners[-1].config
            self.states[i].best_s = winners[-1].measurement.median_s
            self.states[i].default_s = winners[-1].baseline_s or self.states[i].default_s

    def _remember(self, i: int, trial: Trial) -> None:
        """Keep the best time of each configuration; one that has failed once is never trusted again."""
        old = self.trials[i].get(trial.config)
        if old is None or (old.is_ok and (not trial.is_ok or trial.median_s < old.median_s)):
            self.trials[i][trial.config] = trial
        if trial.config == self.defaults[i] and trial.is_ok:
            self.states[i].default_s = trial.median_s
        if trial.is_ok:
            known = self.states[i].best_s
            self.states[i].best_s = trial.median_s if known is None else min(known, trial.median_s)

    def _search(self, measurer: LocalMeasurer) -> str:
        """Take turns until there are no more, or the user has enough; gives the reason."""
        while not self.interruption.is_asked:
            turn = self.scheduler.next_turn(time.monotonic() - self.start + self._finish_s())
            if isinstance(turn, Stop):
                return str(turn)
            self._take(measurer, turn)
        return "interrupted"

    def _finish_s(self) -> float:
        """What naming the winners will take, at most a third of the time budget: so much of it is kept back."""
        to_name = (s for s, task in zip(self.states, self.report.tasks, strict=True) if task.n_trials)
        expected = sum((1 + FINALISTS) * state.trial_s for state in to_name)
        return min(expected, (self.options.budget_s or math.inf) / 3)

    def _take(self, measurer: LocalMeasurer, turn: Turn) -> None:
        """One batch of one task: ask, measure, store, tell."""
        i, task, state = turn.task, self.tasks[turn.task], self.states[turn.task]
        begin = time.monotonic()
        configs = list(state.search.ask(turn.n))
        self._update(i, "searching")
        done: list[Trial] = []
        if configs:
            for trial in default_first(measurer.measure(task, configs, state.best_s), self.defaults[i], configs):
                self._store(i, trial)
                done.append(trial)
                self._update(i, "searching")
        state.search.tell(done)
        self.scheduler.report(turn, done, time.monotonic() - begin, state.default_s)
        if state.is_exhausted:
            self._update(i, "all tried")

    def _store(self, i: int, trial: Trial) -> None:
        is_default = trial.config == self.defaults[i]
        self.store.add([make_record(self.tasks[i], trial, session=self.session, is_default=is_default)])
        self._remember(i, trial)
        self.report.n_trials += 1
        self.report.n_failed += trial.measurement.status.is_failure
        self.report.tasks[i].n_trials += 1
        self.report.tasks[i].n_failed += trial.measurement.status.is_failure

    def _finish(self, measurer: LocalMeasurer) -> None:
        """The best few and the default meet again, interleaved; ties go to the default."""
        for i in range(len(self.tasks)):
            ranked = sorted((t for t in self.trials[i].values() if t.is_ok), key=lambda t: t.median_s)
            finalists = [t.config for t in ranked if t.config != self.defaults[i]][:FINALISTS]
            if i in self.named and not self.report.tasks[i].n_trials:
                self.report.tasks[i].config = str(self.named[i])
                self._update(i, "done before")
            elif not finalists and self.states[i].default_s is None:
                self._update(i, "nothing worked" if self.trials[i] else "not reached")
            else:
                self._update(i, "verifying")
                self._name_winner(i, measurer.compare(self.tasks[i], [self.defaults[i], *finalists]))

    def _name_winner(self, i: int, results: Sequence[Compared]) -> None:
        """Store the winner of a comparison, and what failed in it though it had worked before."""
        winner = self._winner(results)
        kept = [number for number, r in enumerate(results) if number == winner or r.trial.measurement.status.is_failure]
        records = [
            make_record(
                self.tasks[i],
                results[number].trial,
                session=self.session,
                is_default=number == 0,
                is_winner=number == winner and results[number].trial.is_ok,
            )
            for number in kept
        ]
        self.store.add(records)
        if not results[winner].trial.is_ok:
            self._update(i, "nothing worked")
            return
        self.report.tasks[i].config = str(results[winner].config)
        self.states[i].best_s = results[winner].trial.median_s
        self.states[i].default_s = results[0].trial.median_s if results[0].trial.is_ok else None
        self._update(i, "done: default is best" if winner == 0 else "done")

    @staticmethod
    def _winner(results: Sequence[Compared]) -> int:
        """The fastest of those that beat the default beyond doubt; else the default, unless that failed."""
        default_works = results[0].trial.is_ok
        better = [i for i, r in enumerate(results) if r.trial.is_ok and (r.is_faster or not default_works)]
        return min(better, key=lambda i: results[i].trial.median_s, default=0)

    def _update(self, changed: int | None = None, state: str = "") -> None:
        report = self.report
        report.interrupted = self.interruption.is_asked
        report.elapsed_s = time.monotonic() - self.start
        total = sum(s.weighted_s for s in self.states)
        for task, known in zip(report.tasks, self.states, strict=True):
            task.default_s, task.best_s = known.default_s, known.best_s
            task.share = known.weighted_s / total if total else None
        if changed is not None:
            report.tasks[changed].state = state
        report.left_s = None if self.options.budget_s is None else max(0.0, self.options.budget_s - report.elapsed_s)
        report.expected_gain_s = self.scheduler.expected_gain() * total if total else None
        self.progress(report)


def default_first(trials: Iterable[Trial], default: Config, configs: Sequence[Config]) -> Iterator[Trial]:
    """Give trials as they come; where the default is among `configs`, the others wait until it is there."""
    waits, held = default in configs, list[Trial]()
    for trial in trials:
        if waits and trial.config != default:
            held.append(trial)
            continue
        yield trial
        waits = False
        yield from held
        held = []
    yield from held
