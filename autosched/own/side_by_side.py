"""An own function's default and the best configuration that is known for a call, side by side.

They run in the workers that tuning uses, on copies of the arguments, in turns and in random order: what a call changes
in place is restored before each run, results are checked, and a crash is an error text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autosched.driver.bench.entry import PERCENTILES, BenchReport, report_of
from autosched.driver.bench.programs import Program
from autosched.driver.bench.rounds import Timing
from autosched.driver.options import TuneOptions
from autosched.errors import AutoschedError
from autosched.own.tune import OwnCall
from autosched.records import Found
from autosched.space import Config
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.local import LocalMeasurer

if TYPE_CHECKING:
    from autosched.own.function import AutotunedFunction

ROUNDS = 200  # that are asked for at once; the workers end early where they take long


def bench_call(
    function: AutotunedFunction,
    values: tuple[object, ...],
    found: Found,
    *,
    time_s: float = 5.0,
    runs: int | None = None,
    percentiles: Sequence[float] = PERCENTILES,
    options: TuneOptions | None = None,
) -> BenchReport:
    """Measure the default and what a look-up has found, which is one row where these are the same or it found nothing.

    found    what is known for these arguments
    time_s   measuring time for each row; `runs` instead: so many rounds, each of as many calls as make it long enough
    options  of a tuning for these arguments: threads, and whether other instances run beside
    Raises   UsageError for arguments that cannot be sent to a worker, AutoschedError for a configuration that fails.
    """
    options = (options or TuneOptions()).for_run_as()
    call = OwnCall.of(function, values, options.threads)
    default = function.space.default_for(call.space)
    configs = {f"{function.__name__} default": default}
    if found.config is not None and found.config != default:
        configs[f"{function.__name__} tuned"] = found.config
    threads = call.task.threads
    with call.open(call.task.target, MeasureOptions(threads, companions=options.companions(threads))) as measurer:
        times = _measure(measurer, call, configs, time_s * len(configs), runs)
    timings = [Timing(Program(name, threads, _never), tuple(np.array([t]) for t in times[name])) for name in configs]
    more = [{"config": str(config)} for config in configs.values()]
    report = report_of(timings, percentiles, more=more)
    return report if len(configs) > 1 else report.saying(_why_one(function, found))


def _measure(
    measurer: LocalMeasurer, call: OwnCall, configs: dict[str, Config], time_s: float, runs: int | None
) -> dict[str, list[float]]:
    """The seconds of a call, round by round, of each configuration."""
    times: dict[str, list[float]] = {name: [] for name in configs}
    begin, n = time.perf_counter(), 0
    while n < runs if runs is not None else time.perf_counter() - begin < time_s:
        rounds = ROUNDS if runs is None else min(ROUNDS, runs - n)
        for name, one in zip(configs, measurer.compare(call.task, list(configs.values()), rounds=rounds), strict=True):
            if not one.measurement.is_ok:
                text = f"{name} does not run ({one.measurement.status}): {one.measurement.error}"
                raise AutoschedError(text, where=str(one.config))
            times[name] += one.measurement.times_s
            n = len(times[name])
    return times


def _why_one(function: AutotunedFunction, found: Found) -> str:
    place = f"{function.__module__}:{function.__qualname__}"
    if found.config is not None:
        return f"{function.__name__}: the default is the best that is known for these arguments"
    return f"{function.__name__}: nothing tuned to compare with ({found.reason}); autosched tune {place}"


def _never() -> None:
    raise AssertionError("it has run in a worker")
