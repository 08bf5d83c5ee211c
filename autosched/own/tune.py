"""Tuning of one call of an own function, by the tuner that tunes models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.driver.options import TuneOptions
from autosched.driver.settings import resolve_records
from autosched.driver.tune.entry import Tuning
from autosched.driver.tune.job import Job
from autosched.driver.tune.report import TuneReport
from autosched.env import AUTOSCHED_TUNE
from autosched.errors import UsageError
from autosched.own.call import OwnCall
from autosched.own.space import OwnSpaces
from autosched.own.transfer import loading
from autosched.own.usable import Usable, expected_gain
from autosched.records import database_to_write, open_store
from autosched.target import Target
from autosched.tuner.measure import MeasureOptions, Measurer

if TYPE_CHECKING:
    from autosched.own.function import AutotunedFunction


def tune_call(
    function: AutotunedFunction,
    values: tuple[Any, ...],
    *,
    options: TuneOptions,
    records: Any,
    timeout: float = 20.0,
    progress: Callable[[TuneReport], None] | None = None,
) -> TuneReport:
    """See `AutotunedFunction.tune`; `records` None: the function's own database, else the usual one."""
    if AUTOSCHED_TUNE.get() == "off":
        raise UsageError("tuning is switched off by AUTOSCHED_TUNE=off", hint="unset it, or set it to lookup")
    if loading:
        hint = 'put the call under `if __name__ == "__main__":`'
        raise UsageError(f"tuning was begun while a worker imported {next(iter(loading))}", hint=hint)
    options = options.for_run_as()
    call = OwnCall.of(function, values, options.threads)
    task = call.task

    def open_measurer(target: Target, measuring: MeasureOptions) -> Measurer:
        return call.open(target, measuring, timeout)

    spaces = OwnSpaces(function.space, call.space, function.version)
    where = database_to_write(records if isinstance(records, str | Path) else function.database)
    with open_store(where) as store:
        found = resolve_records([store], predict=expected_gain).best(task, Usable(call.space, spaces.versions))
        before = {} if found.config is None else {task.key: found.config}
        job = Job((task,), task.target, task.threads, store, options, before, spaces)
        report = Tuning(job, None, progress, open_measurer).run()
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
