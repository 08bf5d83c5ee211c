"""A call of an own function as something to be measured, by the workers that measure models."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosched.driver.settings import check_runs_here
from autosched.errors import SpaceError
from autosched.own.compiler import COMPILER
from autosched.own.references import OwnReferences
from autosched.space import ConfigSpace
from autosched.target import Target
from autosched.task import Task
from autosched.tuner.measure import LocalMeasurer, MeasureOptions

if TYPE_CHECKING:
    from autosched.own.function import AutotunedFunction


@dataclass(frozen=True, eq=False)
class OwnCall:
    """A call's task, its configurations, and how their results are judged."""

    task: Task
    space: ConfigSpace
    references: OwnReferences

    @staticmethod
    def of(function: AutotunedFunction, values: tuple[Any, ...], threads: int | None) -> OwnCall:
        """A call with these arguments. Raises SpaceError, UsageError where it cannot be measured here."""
        space = function.space_for(values, threads)
        if space.count() == 0:
            raise SpaceError(
                "no configuration satisfies the constraints for these arguments", where=function.space.name
            )
        task = function.task_for(values, threads, sent=function.sent_function(values))
        check_runs_here(task.target)
        return OwnCall(task, space, OwnReferences(function.signature.named(values), space.default, function.check))

    def open(self, target: Target, options: MeasureOptions, timeout: float = 20.0) -> LocalMeasurer:
        """Start the workers that measure it; `timeout` as in `AutotunedFunction.tune`."""
        limits = dataclasses.replace(
            options, build_timeout_s=max(timeout, options.build_timeout_s), run_timeout_s=timeout
        )
        return LocalMeasurer(target, limits, compiler=COMPILER, references=self.references)
