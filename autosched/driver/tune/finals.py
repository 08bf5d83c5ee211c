"""The end of a tuning: the best few meet the default once more, then the winners are judged inside the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from autosched.driver.build.choose import choose
from autosched.driver.tune.border import border_knobs
from autosched.driver.tune.model_check import MOST_SWAPS, MOST_TASKS, ModelCheck, Swap, settle
from autosched.driver.tune.session import COMPLETE, SPENT
from autosched.driver.tune.tuning import FINALISTS, Tuning
from autosched.errors import AutoschedError
from autosched.records import RecordReader
from autosched.records.importance import knob_importance
from autosched.records.metrics import metrics_of
from autosched.records.record import MOST_NOISE
from autosched.space import Config
from autosched.task import Task, Trial
from autosched.templates.thread_knob import with_threads
from autosched.tuner.measure import Compared, Measurer
from autosched.tuner.measure.compare import NEAR

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

# No finalist took so many times as long as its task's best candidate, or as the default. Of a heavy task what is nearly
# as fast is one too, for it may be faster inside the model.
HEAVY, LIGHT = (1.25, 1.15), (1.06, 1.04)
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
    """Names the winners of a tuning's tasks and judges them.

    update       called with a task and its state
    is_complete  whether the tuning has ended by itself, which its winners' records say
    """

    def __init__(self, tuning: Tuning, measurer: Measurer, update: Callable[[int, str], None], *, is_complete: bool):
        self.tuning, self.measurer, self.update, self.is_complete = tuning, measurer, update, is_complete
        self.results: dict[int, Sequence[Compared]] = {}
        self.noisy: list[float] = []  # winners whose comparison was too uncertain
        self.winners = {i: task.named for i, task in enumerate(tuning.tasks) if task.named is not None}

    def name_winners(self) -> None:
        """The best few and the default meet again, interleaved; ties go to the default. The heaviest tasks first."""
        tasks = self.tuning.tasks
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].weighted_s)
        for place, i in enumerate(order):
            self._name(i, *(HEAVY if place < MOST_TASKS else LIGHT))
        self.say_noise()

    def say_noise(self) -> None:
        """Note winners whose comparison was too uncertain to call them verified."""
        if self.noisy:
            n, noise = len(self.noisy), f"up to ± {max(self.noisy):.0%}"
            self.tuning.report.notes.append(
                f"{n} winner{'s' if n != 1 else ''} named under noise, {noise}: used, but not counted as verified; run "
                "the same command again when nothing else runs"
            )

    def _name(self, i: int, behind_best: float, behind_default: float) -> None:
        task, report = self.tuning.tasks[i], self.tuning.tasks[i].report
        ranked = sorted((t for t in task.trials.values() if t.is_ok), key=lambda t: t.median_s)
        others = [t for t in ranked if t.config != task.default][:FINALISTS]
        default = task.trials.get(task.default)
        most_s = behind_default * default.median_s if default is not None and default.is_ok else math.inf
        finalists = [t.config for t in others if t.median_s <= min(most_s, behind_best * others[0].median_s)]
        named = task.named
        if named is not None and task.is_settled and not report.n_trials:
            report.config = str(named)
            return self.update(i, "done before")
        if tuning_by := self.tuning.metrics:
            return self._name_by_metrics(i, tuning_by)
        if not finalists and task.default_s is None:
            return self.update(i, "nothing worked" if task.trials else "not reached")
        if named is not None and named not in (task.default, *finalists):
            finalists.append(named)
        self.update(i, "verifying")
        self._decide(i, self._confirmed(i, self.measurer.compare(task.task, [task.default, *finalists])))

    def _name_by_metrics(self, i: int, names: Sequence[str]) -> None:
        """The winner by the first metric: it has to beat the default in its trial and once more."""
        tuning, task = self.tuning, self.tuning.tasks[i]
        good = sorted((t for t in task.trials.values() if t.is_ok and t.config != task.default), key=tuning.metric)
        if not good and task.default_s is None:
            return self.update(i, "nothing worked" if task.trials else "not reached")
        self.update(i, "verifying")
        before = task.trials.get(task.default)
        configs = [task.default, *(trial.config for trial in good[:FINALISTS])]
        again = {t.config: t for t in self.measurer.measure(task.task, configs) if t.is_ok}
        default = again.get(task.default)
        others = [again[t.config] for t in good[:FINALISTS] if t.config in again and _beats(tuning, t, before)]
        better = [trial for trial in others if _beats(tuning, trial, default)]
        winner = min(better, key=tuning.metric, default=default)
        if winner is None:
            return self.update(i, "nothing worked")
        how: JsonObject = {SPENT: round(tuning.session.total_s, 2)}
        how |= {COMPLETE: True} if self.is_complete else {}
        how |= {"baseline_s": default.median_s} if default is not None else {}
        tuning.store.add([tuning.record(i, winner, how, is_winner=True)])
        task.default_s = None if default is None else default.median_s
        was, now = (metrics_of(t.measurement) if t is not None else {} for t in (default, winner))
        task.report.metrics = tuple((name, was.get(name, math.nan), now[name]) for name in names)
        self._crown(i, winner)

    def _confirmed(self, i: int, results: Sequence[Compared]) -> Sequence[Compared]:
        """The results, where what beats the default has done so twice: among several, one easily does it by chance."""
        default, *others = results
        while default.trial.is_ok and (winner := best_of([default, *others])):
            _, again = self.measurer.compare(self.tuning.tasks[i].task, [default.config, others[winner - 1].config])
            if again.is_faster:
                break
            others[winner - 1] = again
        return [default, *others]

    def _decide(self, i: int, results: Sequence[Compared]) -> None:
        """Store the winner of a comparison, and what failed in it though it had worked before."""
        tuning, task, winner = self.tuning, self.tuning.tasks[i], best_of(results)
        how = {SPENT: round(tuning.session.total_s, 2)} | ({COMPLETE: True} if self.is_complete else {})
        kept = [number for number, r in enumerate(results) if number == winner or r.trial.measurement.status.is_failure]
        wins = {number: number == winner and results[number].trial.is_ok for number in kept}
        noise = results[winner].noise if winner else 0.0
        noted = how | ({"noise": round(noise, 4)} if 0 < noise < math.inf else {})
        tuning.store.add(
            [tuning.record(i, results[n].trial, noted if wins[n] else how, is_winner=wins[n]) for n in kept]
        )
        failure = results[winner].trial.measurement
        if not failure.is_ok:
            lines = failure.error.strip().splitlines() or [""]
            tuning.report.notes.append(
                f"{task.name} has no winner: what had worked failed when it was measured again ({failure.status}): "
                f"{lines[-1]}"
            )
            return self.update(i, "failed at the end")
        self.results[i] = results
        if noise > MOST_NOISE:
            self.noisy.append(noise)
        task.default_s = results[0].trial.median_s if results[0].trial.is_ok else None
        self._crown(i, results[winner].trial)

    def _crown(self, i: int, winner: Trial) -> None:
        task = self.tuning.tasks[i]
        self.winners[i] = winner.config
        task.report.importance = tuple(knob_importance(list(task.trials.values())))
        task.report.config = str(winner.config)
        task.report.border = border_knobs(task.space, winner.config, self.tuning.source.listed)
        task.best_s = winner.median_s
        self.update(i, "done: default is best" if winner.config == task.default else "done")

    def judge_in_model(self, check: ModelCheck, is_asked: Callable[[], bool]) -> None:
        """Swap finalists into the built model, and take back what makes it slower.

        is_asked  whether the user wants an end
        """
        tuning = self.tuning
        if not self.results:
            return
        before = dict(tuning.before)
        after = before | {tuning.tasks[i].task.key: config for i, config in self.winners.items()}
        for task in tuning.tasks:
            key, default = task.task.key, task.default
            if before.get(key, default) == after.get(key, default):  # no difference: none to measure
                after.pop(key, None)
                after |= {key: before[key]} if key in before else {}
        begin = tuning.session.elapsed_s

        def has_time(seconds: float) -> bool:
            left = (
                tuning.report.left_s
                if tuning.options.budget_s is not None
                else MODEL_S + begin - tuning.session.elapsed_s
            )
            tuning.fill_report()
            return left is not None and left > seconds and not is_asked()

        try:
            chosen, tuning.report.model = settle(check, before, after, self._swaps(), has_time)
        except AutoschedError as error:  # a model that cannot be built or run as one graph
            tuning.report.notes.append(f"the winners were not judged inside the model: {error.line}")
            return
        self._take_back(chosen, after)

    def _swaps(self) -> list[Swap]:
        """What else the heaviest tasks could use: finalists that are nearly as fast, and the default."""
        tasks = self.tuning.tasks
        heaviest = sorted(self.results, key=lambda i: -tasks[i].weighted_s)[:MOST_TASKS]
        swaps = []
        for i in heaviest:
            best = min(r.ratio for r in self.results[i])
            near = sorted((r for r in self.results[i] if r.trial.is_ok), key=lambda r: r.ratio)
            others = [r.config for r in near if r.config != self.winners[i] and r.ratio <= NEAR * best][:MOST_SWAPS]
            swaps += [Swap(tasks[i].task.key, tasks[i].name, config) for config in others]
        return swaps

    def _take_back(self, chosen: Mapping[str, Config], after: Mapping[str, Config]) -> None:
        """Make winners of what was better inside the model."""
        tuning = self.tuning
        for i, results in self.results.items():
            key, default = tuning.tasks[i].task.key, tuning.tasks[i].default
            config = chosen.get(key, default)
            if config == after.get(key, default):
                continue
            better = next((r for r in results if r.config == config and r.trial.is_ok), None)
            if better is not None:
                how = {SPENT: round(tuning.session.total_s, 2), "in_model": True} | {COMPLETE: True}
                tuning.store.add([tuning.record(i, better.trial, how, is_winner=True)])
                self._crown(i, better.trial)


def _beats(tuning: Tuning, trial: Trial, default: Trial | None) -> bool:
    return default is None or not default.is_ok or tuning.metric(trial) < tuning.metric(default)


def best_of(results: Sequence[Compared]) -> int:
    """The fastest of those that beat the default beyond doubt; else the default, unless that failed."""
    default_works = results[0].trial.is_ok
    better = [i for i, r in enumerate(results) if r.trial.is_ok and (r.is_faster or not default_works)]
    return min(better, key=lambda i: results[i].trial.median_s, default=0)
