"""Tuning of one call of an own function, by the tuner and the workers that tune models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from autosched.driver.options import TuneOptions
from autosched.driver.settings import check_runs_here, resolve_records
from autosched.driver.tune.report import TuneReport
from autosched.driver.tune.tuning import Tuning
from autosched.driver.tune.turns import TuningRun
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import SpaceError, UsageError
from autosched.own.metric import Metrics
from autosched.own.peak import Work, share_of_peak
from autosched.own.references import OwnReferences
from autosched.own.role import PRELOAD, ROLE
from autosched.own.signature import Signature
from autosched.own.space import OwnSpace, OwnSpaces, Usable, expected_gain
from autosched.own.transfer import loading
from autosched.records import database_to_write, open_store
from autosched.space import ConfigSpace
from autosched.target import Target
from autosched.task import Task
from autosched.tuner.measure import MeasureOptions, Measurer
from autosched.tuner.measure.local import LocalMeasurer

LEAST_BUDGET_S = 1.0  # what starting the workers takes at least


class Tunable(Protocol):
    """What tuning asks of an `AutotunedFunction`."""

    space: OwnSpace
    signature: Signature
    check: Any
    work: Work
    metrics: Metrics
    py_func: Callable[..., object]
    compiler: str
    role: str

    @property
    def version(self) -> str: ...

    @property
    def database(self) -> Any: ...

    def space_for(self, values: tuple[object, ...], threads: int | None = None) -> ConfigSpace: ...

    def task_for(self, values: tuple[object, ...], threads: int | None = None, *, sent: object = None) -> Task: ...

    def sent_function(self, values: tuple[object, ...]) -> object: ...

    def host_values(self, values: tuple[object, ...]) -> tuple[object, ...]: ...

    def forget(self) -> None: ...


def tune_call(
    function: Tunable,
    values: tuple[object, ...],
    *,
    options: TuneOptions,
    records: object,
    timeout: float = 20.0,
    progress: Callable[[TuneReport], None] | None = None,
) -> TuneReport:
    """See `AutotunedFunction.tune`; `records` None: the function's own database, else the usual one."""
    if AUTOSCHED_TUNE.get() == "off":
        raise UsageError("tuning is switched off by AUTOSCHED_TUNE=off", hint="unset it, or set it to lookup")
    if loading:
        hint = 'put the call under `if __name__ == "__main__":`'
        raise UsageError(f"tuning was begun while a worker imported {next(iter(loading))}", hint=hint)
    if options.budget_s is not None and options.budget_s < LEAST_BUDGET_S:
        hint = 'a few seconds go before the first trial; budget="30s" is usual'
        raise UsageError(f"a budget of {options.budget_s:g} s is too small for one trial", hint=hint)
    options = options.for_run_as()
    if function.metrics.names:  # times of other sizes say nothing of what is tuned for
        options = dataclasses.replace(options, hints=False)
    call = OwnCall.of(function, values, options.threads)
    task = call.task

    def open_measurer(target: Target, measuring: MeasureOptions) -> Measurer:
        return call.open(target, measuring, timeout)

    spaces = OwnSpaces(function.space, call.space, function.version)
    where = database_to_write(records if isinstance(records, str | Path) else function.database)
    with open_store(where) as store:
        found = resolve_records([store], predict=expected_gain).best(task, Usable(call.space, spaces.versions))
        before = {} if found.config is None else {task.key: found.config}
        tuning = Tuning((task,), task.target, task.threads, store, options, before, spaces, function.metrics.names)
        report = TuningRun(tuning, None, progress, open_measurer).run()
    named = {**call.space.default.knobs, **function.signature.named(values)}
    report.peak = None if report.interrupted else share_of_peak(function, named, task, report.tasks[0].best_s)
    function.forget()
    return report


def seconds_of(budget: float | str | None) -> float | None:
    """A budget as seconds. Raises UsageError for a text that is no duration."""
    if not isinstance(budget, str):
        return budget
    from autosched.durations import parse_duration

    try:
        return parse_duration(budget)
    except ValueError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True, eq=False)
class OwnCall:
    """A call's task, its configurations, and how their results are judged."""

    task: Task
    space: ConfigSpace
    references: OwnReferences
    compiler: str

    @staticmethod
    def of(function: Tunable, values: tuple[object, ...], threads: int | None) -> OwnCall:
        """A call with these arguments. Raises SpaceError, UsageError where it cannot be measured here."""
        space = function.space_for(values, threads)
        if space.count() == 0:
            raise SpaceError(
                "no configuration satisfies the constraints for these arguments", where=function.space.name
            )
        task = function.task_for(values, threads, sent=function.sent_function(values))
        check_runs_here(task.target)
        named = function.signature.named(function.host_values(values))
        metrics = function.metrics.packed()
        references = OwnReferences(named, space.default, function.check, function.role, metrics)
        return OwnCall(task, space, references, function.compiler)

    def open(self, target: Target, options: MeasureOptions, timeout: float = 20.0) -> LocalMeasurer:
        """Start the workers that measure it; `timeout` as in `AutotunedFunction.tune`."""
        limits = dataclasses.replace(
            options, build_timeout_s=max(timeout, options.build_timeout_s), run_timeout_s=timeout
        )
        preload = PRELOAD if self.references.role == ROLE else ""  # a GPU's driver does not survive a fork
        return LocalMeasurer(
            target, limits, compiler=self.compiler, references=self.references, keeps=False, preload=preload
        )
