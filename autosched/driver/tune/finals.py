"""The end of a tuning: the best few meet the default once more, then the winners are judged inside the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched.driver.build.choose import choose
from autosched.driver.tune.border import border_knobs
from autosched.driver.tune.job import FINALISTS, Job
from autosched.driver.tune.model_check import MOST_SWAPS, MOST_TASKS, ModelCheck, Swap, settle
from autosched.driver.tune.session import COMPLETE, SPENT
from autosched.errors import AutoschedError
from autosched.records import RecordReader
from autosched.records.importance import knob_importance
from autosched.space import Config
from autosched.task import Task
from autosched.templates.thread_knob import with_threads
from autosched.tuner.measure import Compared, Measurer

HOPELESS = 1.25  # what took so many times as long as the best candidate of its task is no finalist
NEAR = 1.1  # a finalist that takes so many times the winner's time may still be the best one inside the model
MODEL_S = 30.0  # for trying finalists inside the model, where no budget of time is given


def looked_up(tasks: Sequence[Task], reader: RecordReader) -> dict[str, Config]:
    """What a build would use now, by workload key: tasks that would get their default are left out."""
    found = {}
    for task in tasks:
        choice = choose(task, reader, task.name)
        if choice.found.config is None:
            continue
        has_threads = task.threads > 1 and choice.threads is None
        config = choice.found.config
        found[task.key] = with_threads(config, task.threads, task.threads) if has_threads else config
    return found


class Finals:
    """Names the winners of a job's tasks and judges them.

    update       called with a task and its state
    is_complete  whether the tuning has ended by itself, which its winners' records say
    """

    def __init__(self, job: Job, measurer: Measurer, update: Callable[[int, str], None], *, is_complete: bool):
        self.job, self.measurer, self.update, self.is_complete = job, measurer, update, is_complete
        self.results: dict[int, Sequence[Compared]] = {}
        self.winners: dict[int, Config] = dict(job.named)

    def name_winners(self) -> None:
        """The best few and the default meet again, interleaved; ties go to the default. The heaviest tasks first."""
        order = sorted(range(len(self.job.tasks)), key=lambda i: -self.job.states[i].weighted_s)
        for i in order:
            self._name(i)

    def _name(self, i: int) -> None:
        job, report = self.job, self.job.report.tasks[i]
        ranked = sorted((t for t in job.trials[i].values() if t.is_ok), key=lambda t: t.median_s)
        others = [t for t in ranked if t.config != job.defaults[i]][:FINALISTS]
        finalists = [t.config for t in others if t.median_s <= HOPELESS * others[0].median_s]
        named = job.named.get(i)
        if named is not None and i in job.settled and not report.n_trials:
            report.config = str(named)
            return self.update(i, "done before")
        if not finalists and job.states[i].default_s is None:
            return self.update(i, "nothing worked" if job.trials[i] else "not reached")
        if named is not None and named not in (job.defaults[i], *finalists):
            finalists.append(named)
        self.update(i, "verifying")
        self._decide(i, self._confirmed(i, self.measurer.compare(job.tasks[i], [job.defaults[i], *finalists])))

    def _confirmed(self, i: int, results: Sequence[Compared]) -> Sequence[Compared]:
        """The results, where what beats the default has done so twice: among several, one easily does it by chance."""
        default, *others = results
        while default.trial.is_ok and (winner := best_of([default, *others])):
            _, again = self.measurer.compare(self.job.tasks[i], [default.config, others[winner - 1].config])
            if again.is_faster:
                break
            others[winner - 1] = again
        return [default, *others]

    def _decide(self, i: int, results: Sequence[Compared]) -> None:
        """Store the winner of a comparison, and what failed in it though it had worked before."""
        job, winner = self.job, best_of(results)
        how = {SPENT: round(job.session.total_s, 2)} | ({COMPLETE: True} if self.is_complete else {})
        kept = [number for number, r in enumerate(results) if number == winner or r.trial.measurement.status.is_failure]
        wins = {number: number == winner and results[number].trial.is_ok for number in kept}
        job.store.add([job.record(i, results[n].trial, how, is_winner=wins[n]) for n in kept])
        if not results[winner].trial.is_ok:
            return self.update(i, "nothing worked")
        self.results[i] = results
        job.states[i].default_s = results[0].trial.median_s if results[0].trial.is_ok else None
        self._crown(i, results[winner])

    def _crown(self, i: int, winner: Compared) -> None:
        job, report = self.job, self.job.report.tasks[i]
        self.winners[i] = winner.config
        report.importance = tuple(knob_importance(list(job.trials[i].values())))
        report.config = str(winner.config)
        report.border = border_knobs(job.spaces[i], winner.config, job.source.listed)
        job.states[i].best_s = winner.trial.median_s
        self.update(i, "done: default is best" if winner.config == job.defaults[i] else "done")

    def judge_in_model(self, check: ModelCheck, is_asked: Callable[[], bool]) -> None:
        """Swap finalists into the built model, and take back what makes it slower.

        is_asked  whether the user wants an end
        """
        job = self.job
        if not self.results:
            return
        before = dict(job.before)
        after = before | {job.tasks[i].key: config for i, config in self.winners.items()}
        for task, default in zip(job.tasks, job.defaults, strict=True):
            if before.get(task.key, default) == after.get(task.key, default):  # no difference: none to measure
                after.pop(task.key, None)
                after |= {task.key: before[task.key]} if task.key in before else {}
        begin = job.session.elapsed_s

        def has_time(seconds: float) -> bool:
            left = job.report.left_s if job.options.budget_s is not None else MODEL_S + begin - job.session.elapsed_s
            job.fill_report()
            return left is not None and left > seconds and not is_asked()

        try:
            chosen, job.report.model = settle(check, before, after, self._swaps(), has_time)
        except AutoschedError as error:  # a model that cannot be built or run as one graph
            job.report.notes.append(f"the winners were not judged inside the model: {error.line}")
            return
        self._take_back(chosen, after)

    def _swaps(self) -> list[Swap]:
        """What else the heaviest tasks could use: finalists that are nearly as fast, and the default."""
        job = self.job
        heaviest = sorted(self.results, key=lambda i: -job.states[i].weighted_s)[:MOST_TASKS]
        swaps = []
        for i in heaviest:
            best = min(r.ratio for r in self.results[i])
            near = sorted((r for r in self.results[i] if r.trial.is_ok), key=lambda r: r.ratio)
            others = [r.config for r in near if r.config != self.winners[i] and r.ratio <= NEAR * best][:MOST_SWAPS]
            swaps += [Swap(job.tasks[i].key, job.tasks[i].name, config) for config in others]
        return swaps

    def _take_back(self, chosen: Mapping[str, Config], after: Mapping[str, Config]) -> None:
        """Make winners of what was better inside the model."""
        job = self.job
        for i, results in self.results.items():
            task, default = job.tasks[i], job.defaults[i]
            config = chosen.get(task.key, default)
            if config == after.get(task.key, default):
                continue
            better = next((r for r in results if r.config == config and r.trial.is_ok), None)
            if better is not None:
                how = {SPENT: round(job.session.total_s, 2), "in_model": True} | {COMPLETE: True}
                job.store.add([job.record(i, better.trial, how, is_winner=True)])
                self._crown(i, better)


def best_of(results: Sequence[Compared]) -> int:
    """The fastest of those that beat the default beyond doubt; else the default, unless that failed."""
    default_works = results[0].trial.is_ok
    better = [i for i, r in enumerate(results) if r.trial.is_ok and (r.is_faster or not default_works)]
    return min(better, key=lambda i: results[i].trial.median_s, default=0)
