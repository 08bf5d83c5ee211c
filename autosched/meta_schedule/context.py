"""One task's tuning, step by step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.errors import InvalidValueError, refuse
from autosched.ir import IRModule
from autosched.meta_schedule.database import ArgsInfo
from autosched.meta_schedule.space_generator import ScheduleFn, annotated, create
from autosched.meta_schedule.tasks import args_info
from autosched.meta_schedule.workload import module_of
from autosched.space import Config
from autosched.target import Target
from autosched.target.target import TargetLike
from autosched.task import Measurement, Status, Trial
from autosched.templates import space_for
from autosched.tir import Schedule
from autosched.tuner.search import Search, make_search


@dataclass(frozen=True, eq=False)
class MeasureCandidate:
    """A schedule to measure."""

    sch: Schedule
    args_info: ArgsInfo
    config: Config | None = None  # what the search asked for


def _measurement(result: object) -> Measurement:
    """A runner's result as the search's."""
    seconds = getattr(result, "run_secs", None)
    if not seconds:
        return Measurement(Status.RUN_ERROR, error=str(getattr(result, "error_msg", "") or "no result"))
    return Measurement(Status.OK, tuple(float(s) for s in seconds))


class TuneContext:
    """A PrimFunc, its target, where candidates come from and which ones are next."""

    def __init__(
        self, mod: object = None, *, target: TargetLike | None = None, space_generator: object = None,
        search_strategy: object = None, task_name: str = "main", rand_state: int = -1,
        num_threads: int | str = "physical", logger: object = None,
    ):  # fmt: skip
        self.mod = None if mod is None else module_of(mod)
        self.target = None if target is None else Target(target)
        self.space_generator = create(space_generator or "post-order-apply")
        self.search_strategy, self.task_name, self.num_threads = search_strategy, task_name, num_threads
        self.rand_state = max(rand_state, 0)
        self._search: Search | None = None
        self._left = 0

    def _ready(self) -> tuple[IRModule, Target]:
        if self.mod is None or self.target is None:
            raise InvalidValueError("`mod` or `target` of the TuneContext is not provided")
        return self.mod, self.target

    def initialize(self) -> None:
        """Nothing: everything is made when it is needed."""

    def generate_design_space(self) -> list[Schedule]:
        """The schedules that candidates start from."""
        mod, target = self._ready()
        return list(self.space_generator.generate_design_space(mod, target, self.rand_state))

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int = 64, design_spaces: object = None, database: object = None,
        cost_model: object = None,
    ) -> None:  # fmt: skip
        """Begin a search of so many trials."""
        refuse(
            "pre_tuning",
            hint="tune_tir keeps a database",
            database=database is not None,
            cost_model=cost_model is not None,
        )
        mod, target = self._ready()
        self._left, self._batch = max_trials, num_trials_per_iter
        if not isinstance(self.space_generator, ScheduleFn):
            self._search = make_search("auto", space_for(mod["main"], target), seed=self.rand_state)

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The next candidates; None where there are none."""
        mod, target = self._ready()
        n = min(self._left, self._batch)
        if n < 1:
            return None
        self._left -= n
        if self._search is not None:
            asked = self._search.ask(n)
            info = args_info(mod["main"])
            return [MeasureCandidate(annotated(mod, config), info, config) for config in asked] or None
        schedules = []
        for _ in range(n):
            self.rand_state += 1
            schedules += self.space_generator.generate_design_space(mod, target, self.rand_state)
        info = args_info(mod["main"])
        return [MeasureCandidate(sch, info) for sch in schedules] or None

    def notify_runner_results(self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[object]) -> None:
        """Let the search learn from results: objects with `run_secs`, or an `error_msg`, in the candidates' order.

        Raises InvalidValueError where their numbers differ.
        """
        if len(measure_candidates) != len(results):
            raise InvalidValueError(f"{len(results)} results for {len(measure_candidates)} candidates")
        trials = [
            Trial(candidate.config, _measurement(result))
            for candidate, result in zip(measure_candidates, results, strict=True) if candidate.config is not None
        ]  # fmt: skip
        if self._search is not None and trials:
            self._search.tell(trials)

    def post_tuning(self) -> None:
        """End a search."""
        self._search, self._left = None, 0

    def clone(self) -> TuneContext:
        """A context of its own."""
        return copy.copy(self)
