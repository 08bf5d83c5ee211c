"""The run of a tuning: turn after turn of one task, each asked, built, measured and stored, then the winners.

At the end of every turn some builders have nothing left to do, and where a turn begins, the reference is made and the
search is asked while nothing is built. On two cores that is a third of the time of turns of four trials. So the next
turn is decided ahead, when no candidate waits for a builder any more, and its candidates are built while the last ones
of the turn before are built and measured. One of the same task is decided when all but two outcomes of the turn before
are known, which the search is told. For a GPU, whose trials take little time, it may be decided before, for builders
that would have nothing to do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType

from autosched.driver.tune.drift import corrected
from autosched.driver.tune.finals import Finals
from autosched.driver.tune.foresight import Foresight
from autosched.driver.tune.hints import is_current
from autosched.driver.tune.model_check import ModelCheck
from autosched.driver.tune.progress_line import where_it_is_seen
from autosched.driver.tune.report import TuneReport
from autosched.driver.tune.session import SPENT
from autosched.driver.tune.tuning import BATCH, Tuning
from autosched.errors import RecordError, UsageError
from autosched.records import RecordFilter
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task, Trial
from autosched.tuner.measure import AheadMeasurer, ForeseeingMeasurer, MeasureOptions, Measurer
from autosched.tuner.measure.local import LocalMeasurer
from autosched.tuner.scheduler import Stop, StopReason, Turn

OpenMeasurer = Callable[[Target, MeasureOptions], Measurer]
LEASE_S = 120.0  # longer than a batch takes; a tuner that dies on this machine loses its leases at once
NEWS_S = 15.0  # how often is looked for what others have measured, where nothing tells that there are any
UNKNOWN = 2  # outcomes of a turn without which one of the same task is decided: replays are as good as with them
WITHOUT_PLANNED = (StopReason.EXHAUSTED, StopReason.CONVERGED)  # what is said of all but a turn that was decided ahead
OVERLAP_S = 60.0  # clocks of two machines may differ by so much


class TuningRun:
    """Takes the turns of a tuning, in this process."""

    def __init__(
        self,
        tuning: Tuning,
        check: ModelCheck | None = None,
        progress: Callable[[TuneReport], None] | None = None,
        open_measurer: OpenMeasurer = LocalMeasurer,
        interruption: Interruption | None = None,
    ):
        self.tuning, self.check, self.open_measurer = tuning, check, open_measurer
        self.line = where_it_is_seen() if progress is None else None
        self.progress = progress or self.line or (lambda report: None)
        self.interruption = interruption or Interruption()
        self.leases = Leases(tuning)
        self.foresight = Foresight(tuning)
        self.planned: tuple[Turn, list[Config]] | None = None  # the turn that was decided ahead
        self._done: list[Trial] = []  # trials of the present turn
        self._n_told = 0  # how many of them its search knows already

    def run(self) -> TuneReport:
        """Tune until a budget is used up or nothing more is expected; an interruption ends it and keeps everything."""
        try:
            return self._run()
        finally:
            if self.line is not None:
                self.line.close()

    def _run(self) -> TuneReport:
        tuning, report = self.tuning, self.tuning.report
        try:
            with self.interruption, self.open_measurer(tuning.target, self._measure_options()) as measurer:
                if isinstance(measurer, ForeseeingMeasurer):
                    measurer.foresight = self.foresight
                stop = self._search(measurer)
                if isinstance(measurer, AheadMeasurer):
                    measurer.rest()  # what is built in vain ends before anything else is timed
                self.leases.learn_all()
                finals = Finals(tuning, measurer, self._update, is_complete=isinstance(stop, Stop))
                finals.name_winners()
                if self.check is not None and isinstance(stop, Stop) and tuning.options.verify == "model":
                    finals.judge_in_model(self.check, lambda: self.interruption.is_asked)
            report.reason = str(stop) if isinstance(stop, Stop) else "interrupted"
        except KeyboardInterrupt:  # the second one: trials are kept, the missing winners are not named
            self.interruption.is_asked, report.reason = True, "interrupted before all winners were named"
        finally:
            self.leases.close()
        self._update()
        return report

    def _measure_options(self) -> MeasureOptions:
        weight_bytes = self.check.weight_bytes if self.check is not None else None
        threads, companions = self.tuning.threads, self.tuning.options.companions(self.tuning.threads)
        options = MeasureOptions(threads, self.tuning.cache, weight_bytes, companions=companions)
        # Repeats on a GPU stay as long as they were: how exact shorter ones are has been measured on a CPU alone.
        return options if self.tuning.target.is_cpu else dataclasses.replace(options, repeat_s=options.round_s)

    def _search(self, measurer: Measurer) -> Stop | None:
        """Take turns until there are no more; None if the user has enough."""
        self._update()
        while not self.interruption.is_asked:
            turn = self.tuning.scheduler.next_turn(self._spent_s())
            if self.planned is not None and isinstance(turn, Stop) and turn.reason in WITHOUT_PLANNED:
                turn = self.planned[0]  # whose candidates were worth a trial, and are the reason that none is left
            if isinstance(turn, Stop):
                self._check_budget(turn)
                return turn
            self._take(measurer, turn)
        return None

    def _check_budget(self, stop: Stop) -> None:
        """Refuse a time budget that ends before the first trial. Raises UsageError with one that does not."""
        tuning, session = self.tuning, self.tuning.session
        budget_s = tuning.options.budget_s
        is_known = any(task.trials for task in tuning.tasks) or session.n_trials or tuning.report.n_trials
        if stop.reason is not StopReason.TIME or budget_s is None or is_known:
            return
        enough_s = max(30, 10 * math.ceil(0.3 * session.elapsed_s))
        raise UsageError(
            f"a budget of {budget_s:g} s is too small for one trial: to start took {session.elapsed_s:.1f} s, and "
            f"{self._finish_s():.1f} s are kept for the end",
            hint=f"give {enough_s}s or more",
        )

    def _spent_s(self) -> float:
        """What is spent of the budget of time, with what its end will take."""
        return self.tuning.session.total_s + self._finish_s()

    def _finish_s(self) -> float:
        """What naming and judging the winners will take, at most a third of the time budget: so much is kept back."""
        tuning = self.tuning
        if tuning.options.budget_s is None:
            return 0.0
        expected = tuning.naming_s()
        if self.check is not None and tuning.options.verify == "model":
            expected += 6.0 + 0.1 * len(tuning.tasks)
        return min(expected, tuning.options.budget_s / 3)

    def _take(self, measurer: Measurer, turn: Turn) -> None:
        """One batch of one task: ask, measure, store, tell. The turn that was decided ahead goes first."""
        tuning, begin = self.tuning, self.tuning.session.elapsed_s
        (turn, asked), self.planned = self.planned or (turn, self.leases.ask(turn.task, turn.n)), None
        i, task = turn.task, tuning.tasks[turn.task]
        self._update(i, "searching")
        is_due = asked and task.default not in asked and tuning.drift.is_due(i)
        configs = [task.default, *asked] if is_due else list(asked)
        best_s = None if task.best_s is None or tuning.metrics else task.best_s * tuning.drift.factor
        self._done, self._n_told = [], 0
        self.foresight.begin(turn)
        trials = self._measure(measurer, turn, configs, best_s) if configs else ()
        for trial in default_first(trials, task.default, configs):
            if trial.config == task.default and trial.is_ok:
                tuning.see_default(i, trial)
            if trial.config in asked:
                self._done.append(self._store(i, trial))
                self._update(i, "searching")
        tuning.tell(turn, self._done, tuning.session.elapsed_s - begin, self.foresight.n_in_turn, self._n_told)
        self._update(i, "all tried" if task.is_exhausted else "waiting")

    def _measure(
        self, measurer: Measurer, turn: Turn, configs: Sequence[Config], best_s: float | None
    ) -> Iterator[Trial]:
        """Measure a turn's configurations; meanwhile the next turn is decided and begun, where the measurer can."""
        task = self.tuning.tasks[turn.task].task
        if not isinstance(measurer, AheadMeasurer):
            return measurer.measure(task, configs, best_s)
        # A CPU's builders are stopped while something is timed, which takes long: its search knows more by waiting.
        idle = 0 if self.tuning.target.is_cpu else measurer.count_builders() - len(configs)
        return measurer.measure(task, configs, best_s, ahead=lambda: self._plan(turn, idle))

    def _plan(self, turn: Turn, idle: int) -> tuple[Task, list[Config]] | None:
        """Decide the turn after this one, if it does not hang on its outcome, and ask for its configurations.

        idle  builders that this turn has nothing to do for
        """
        n_known = len(self._done) + self.foresight.n_in_turn
        is_known = turn.n - n_known <= UNKNOWN <= n_known
        following = self.tuning.scheduler.following(turn, self._spent_s(), BATCH if is_known else idle)
        if following is None:
            return None
        task = self.tuning.tasks[following.task]
        if following.task == turn.task:
            task.search.tell(self._done[self._n_told :])
            self._n_told = len(self._done)
        self.planned = following, self.leases.ask(following.task, following.n)
        return task.task, self.planned[1]

    def _store(self, i: int, trial: Trial) -> Trial:
        """Keep a trial; gives it as the search sees it."""
        tuning, report = self.tuning, self.tuning.report
        stamped = tuning.drift.stamp(trial)
        tuning.store.add([tuning.record(i, stamped, {SPENT: round(tuning.session.total_s, 2)})])
        status = trial.measurement.status
        for row in (report, report.tasks[i]):
            row.n_trials += 1
            row.n_failed += status.is_failure
        if status.is_failure:
            report.failures[str(status)] = report.failures.get(str(status), 0) + 1
        return tuning.remember(i, stamped)

    def _update(self, changed: int | None = None, state: str = "") -> None:
        report = self.tuning.report
        if changed is not None:
            report.tasks[changed].state = state
        report.interrupted = self.interruption.is_asked
        report.n_skipped = self.foresight.n_skipped
        self.tuning.fill_report()
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


class Leases:
    """What a tuning asks of its database before it measures, and learns from it meanwhile.

    Tuners of one database share its work: none measures what another does, and each learns what the others found.
    """

    def __init__(self, tuning: Tuning):
        self._tuning = tuning
        now = time.time()
        self._since = [now] * len(tuning.tasks)
        self._next_look = [now + NEWS_S] * len(tuning.tasks)
        self._known: list[set[str]] = [set() for _ in tuning.tasks]
        self.n_learnt = 0  # trials of others

    def ask(self, i: int, n: int) -> list[Config]:
        """The next configurations of a task that nobody else measures; fewer than `n` where there are no more."""
        granted: list[Config] = []
        while len(granted) < n and (asked := self._tuning.ask(i, n - len(granted))):
            stale = self._tuning.tasks[i].stale  # their records do not count, and are no reason not to measure
            new = [config for config in asked if config not in stale]
            found = {*self._tuning.store.claim(self._tuning.tasks[i].task, new, LEASE_S), *(stale & set(asked))}
            granted += [config for config in asked if config in found]
            if len(found) < len(asked) or time.time() >= self._next_look[i]:
                self.learn(i)
        return granted

    def learn(self, i: int) -> None:
        """Take in what other tuners have measured of a task since the last time."""
        tuning, state = self._tuning, self._tuning.tasks[i]
        task, begin, device = state.task, time.time(), state.task.target.fingerprint()
        query = RecordFilter(workload=task.key, since_s=self._since[i] - OVERLAP_S)
        fresh = [
            record
            for record in tuning.store.records(query)
            if (record.device, record.threads) == (device, task.threads)
            and record.session != tuning.session.name
            and record.uid not in self._known[i]
            and is_current(record, tuning.source.versions)
            and record.measurement.how.get("cache", tuning.cache) == tuning.cache
            and record.config in state.space
        ]
        self._since[i], self._next_look[i] = begin, begin + NEWS_S
        self._known[i] |= {record.uid for record in fresh}
        trials = [corrected(record.trial) for record in fresh if record.config not in state.trials]
        for trial in trials:
            tuning.remember(i, trial)
        state.search.tell(trials)
        state.n_known += len(trials)
        self.n_learnt += len(trials)

    def learn_all(self) -> None:
        """Before winners are named: what others have measured counts as one's own."""
        for i in range(len(self._tuning.tasks)):
            self.learn(i)

    def close(self) -> None:
        """Give back what was granted and not measured."""
        with contextlib.suppress(RecordError):  # they expire by themselves
            self._tuning.store.release()


class Interruption:
    """Within its `with` block the first Ctrl-C only sets `is_asked`; the second raises KeyboardInterrupt.

    Handlers that somebody else has set, and threads other than the main one, which get no signals, are left alone.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self._old: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Interruption:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._old = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
