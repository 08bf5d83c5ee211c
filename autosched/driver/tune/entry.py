"""`tune`: search for the best configurations of a model's kernels, and remember them as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from autosched.driver.build.graph import has_graph, prepare
from autosched.driver.build.tuned_layouts import TunedLayouts
from autosched.driver.models import as_module
from autosched.driver.options import TuneOptions as TuneOptions
from autosched.driver.settings import check_runs_here, resolve_records, resolve_target, resolve_threads
from autosched.driver.tasks import extract_tasks, prepared_tasks
from autosched.driver.tune.ahead import Lookahead
from autosched.driver.tune.finals import Finals, looked_up
from autosched.driver.tune.foresight import Foresight
from autosched.driver.tune.interruption import Interruption
from autosched.driver.tune.job import Job
from autosched.driver.tune.model_check import ModelCheck
from autosched.driver.tune.report import TaskReport as TaskReport
from autosched.driver.tune.report import TuneReport as TuneReport
from autosched.driver.tune.session import SPENT
from autosched.driver.tune.shape_ranges import Ranges, has_ranges
from autosched.driver.tune.shapes import at_shapes, tune_range
from autosched.driver.tune.share import Sharing
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import UsageError
from autosched.records import database_to_write, open_store
from autosched.records.run_as import RunAsReader
from autosched.space import Config, use_spaces
from autosched.target import Target
from autosched.task import Task, Trial
from autosched.tuner.measure import ForeseeingMeasurer, LocalMeasurer, MeasureOptions, Measurer
from autosched.tuner.scheduler import Stop, Turn

OpenMeasurer = Callable[[Target, MeasureOptions], Measurer]


def tune(
    what: Any,
    target: Any = None,
    *,
    args: Sequence[Any] | None = None,
    params: Mapping[str, Any] | None = None,
    records: Any = None,
    options: TuneOptions | None = None,
    progress: Callable[[TuneReport], None] | None = None,
    measurer: OpenMeasurer | None = None,
    shapes: Ranges | None = None,
) -> TuneReport:
    """Tune every kernel of a model, a PrimFunc, tensors or one task.

    shapes    sizes of the symbolic inputs of a model, or of a model's file: {"x": (4, 784)}, or ranges of them,
              {"x": (range(1, 513), 784)}. Of a range representative shapes are tuned, each with its share of the
              budget; every winner is measured at each of them, few are kept, and a build at any shape of the range
              uses what is best at the nearest one
    records   path or URL of the database to write to; None: the project's or the user's
    progress  called with the report whenever something changed
    measurer  opens what builds, checks and times candidates; None: workers on this machine
    The default configuration is the first trial of every task and meets the best ones again at the end, interleaved:
    one that does not beat it is not recorded as the winner. A model's winners are then judged inside the built model,
    and what loses there is reverted. What the database holds is not measured again, and what is left of the budget of
    a tuning that was killed is all that the same call spends.
    Ctrl-C once: the batch in flight is finished and winners are named. Twice: it ends at once, reported trials kept.
    Raises as `build`, and RecordError for the database.
    """
    options = (options or TuneOptions()).for_run_as()
    if AUTOSCHED_TUNE.get() == "off":
        raise UsageError("tuning is switched off by AUTOSCHED_TUNE=off", hint="unset it, or set it to lookup")
    if shapes is not None and has_ranges(shapes):
        return tune_range(
            what, shapes, target, params=params, records=records, options=options, progress=progress, measurer=measurer
        )
    if shapes is not None:
        what = at_shapes(what, {name: tuple(map(int, shape)) for name, shape in shapes.items()})  # type: ignore[arg-type]
    chosen = resolve_target(target)
    if measurer is None:
        check_runs_here(chosen)
    if measurer is None or options.threads is None:
        threads = resolve_threads(options.threads)
    else:  # another machine's
        threads = options.threads
    where = records if records is not None else database_to_write()
    with use_spaces(options.spaces):
        with open_store(where) as store:
            reader = RunAsReader(resolve_records([store]), options.run_as)
            layouts = TunedLayouts(reader, chosen, threads)
            check, tasks = _tasks(what, args, params, layouts, threads, options)
            job = Job(tasks, chosen, threads, store, options, looked_up(tasks, reader))
            return Tuning(job, check, progress, measurer or LocalMeasurer).run()


def _tasks(
    what: Any, args: Any, params: Mapping[str, Any] | None, layouts: TunedLayouts, threads: int, options: TuneOptions
) -> tuple[ModelCheck | None, tuple[Task, ...]]:
    """The tasks that were asked for, and what builds the model, where there is one. Raises UsageError."""
    check, target = None, layouts.target
    if isinstance(what, Task):
        tasks: tuple[Task, ...] = (what,)
    else:
        module = as_module(what, args)
        if has_graph(module):
            prepared = prepare(module, target, params or {}, layouts)
            check = ModelCheck(module, prepared, target, threads)
            tasks = prepared_tasks(prepared, target, threads=threads, cache="cold")
        else:
            tasks = extract_tasks(module, target, threads=threads, params=params)
    if options.tasks is not None:
        if unknown := [i for i in options.tasks if not 0 <= i < len(tasks)]:
            raise UsageError(f"no task {unknown[0]}", hint=f"there are 0 to {len(tasks) - 1}")
        tasks = tuple(tasks[i] for i in options.tasks)
    return check, tasks


class Tuning:
    """One run of the tuner over some tasks."""

    def __init__(
        self,
        job: Job,
        check: ModelCheck | None,
        progress: Callable[[TuneReport], None] | None,
        open_measurer: OpenMeasurer,
    ):
        self.job, self.check, self.open_measurer = job, check, open_measurer
        self.progress = progress or (lambda report: None)
        self.report = job.report
        self.interruption = Interruption()
        self.sharing = Sharing(job)
        self.lookahead = Lookahead(job, self.sharing.ask, self._spent_s)
        self.foresight = Foresight(job)

    def run(self) -> TuneReport:
        """Tune until a budget is used up or nothing more is expected; an interruption ends it and keeps everything."""
        job = self.job
        try:
            with self.interruption, self.open_measurer(job.target, self._measure_options()) as measurer:
                if isinstance(measurer, ForeseeingMeasurer):
                    measurer.foresight = self.foresight
                stop = self._search(measurer)
                self.lookahead.end(measurer)
                self.sharing.learn_all()
                finals = Finals(job, measurer, self._update, is_complete=isinstance(stop, Stop))
                finals.name_winners()
                if self.check is not None and isinstance(stop, Stop) and job.options.verify == "model":
                    finals.judge_in_model(self.check, lambda: self.interruption.is_asked)
            self.report.reason = str(stop) if isinstance(stop, Stop) else "interrupted"
        except KeyboardInterrupt:  # the second one: trials are kept, the missing winners are not named
            self.interruption.is_asked, self.report.reason = True, "interrupted before all winners were named"
        finally:
            self.sharing.close()
        self._update()
        return self.report

    def _measure_options(self) -> MeasureOptions:
        weight_bytes = self.check.weight_bytes if self.check is not None else None
        threads, companions = self.job.threads, self.job.options.companions(self.job.threads)
        return MeasureOptions(threads, self.job.cache, weight_bytes, companions=companions)

    def _search(self, measurer: Measurer) -> Stop | None:
        """Take turns until there are no more; None if the user has enough."""
        job = self.job
        self._update()
        while not self.interruption.is_asked:
            turn = job.scheduler.next_turn(self._spent_s())
            if isinstance(turn, Stop):
                return turn
            self._take(measurer, turn)
        return None

    def _spent_s(self) -> float:
        """What is spent of the budget of time, with what its end will take."""
        return self.job.session.total_s + self._finish_s()

    def _finish_s(self) -> float:
        """What naming and judging the winners will take, at most a third of the time budget: so much is kept back."""
        job = self.job
        if job.options.budget_s is None:
            return 0.0
        expected = job.naming_s()
        if self.check is not None and job.options.verify == "model":
            expected += 6.0 + 0.1 * len(job.tasks)
        return min(expected, job.options.budget_s / 3)

    def _take(self, measurer: Measurer, turn: Turn) -> None:
        """One batch of one task: ask, measure, store, tell."""
        job, begin = self.job, self.job.session.elapsed_s
        turn, configs = self.lookahead.begin(turn)
        i = turn.task
        state, default = job.states[i], job.defaults[i]
        self._update(i, "searching")
        asked = list(configs)
        if configs and default not in configs and job.drift.is_due(i):
            configs = [default, *configs]
        best_s = None if state.best_s is None else state.best_s * job.drift.factor
        done: list[Trial] = []
        self.foresight.begin(turn)
        trials = self.lookahead.measure(measurer, turn, configs, best_s) if configs else ()
        for trial in default_first(trials, default, configs):
            if trial.config == default and trial.is_ok:
                job.see_default(i, trial)
            if trial.config in asked:
                done.append(self._store(i, trial))
                self._update(i, "searching")
        job.tell(turn, done, job.session.elapsed_s - begin, self.foresight.n_in_turn)
        self._update(i, "all tried" if state.is_exhausted else "waiting")

    def _store(self, i: int, trial: Trial) -> Trial:
        """Keep a trial; gives it as the search sees it."""
        job = self.job
        stamped = job.drift.stamp(trial)
        job.store.add([job.record(i, stamped, {SPENT: round(job.session.total_s, 2)})])
        status = trial.measurement.status
        self.report.n_trials += 1
        self.report.n_failed += status.is_failure
        self.report.tasks[i].n_trials += 1
        self.report.tasks[i].n_failed += status.is_failure
        if status.is_failure:
            self.report.failures[str(status)] = self.report.failures.get(str(status), 0) + 1
        return job.remember(i, stamped)

    def _update(self, changed: int | None = None, state: str = "") -> None:
        if changed is not None:
            self.report.tasks[changed].state = state
        self.report.interrupted = self.interruption.is_asked
        self.report.n_skipped = self.foresight.n_skipped
        self.job.fill_report()
        self.progress(self.report)


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
