"""`autosched bench` of functions of `autosched.autotune`: each one's default beside the best that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autosched.cli.common import Common
from autosched.cli.own import arguments_of, found_for, own_function
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import BenchReport
    from autosched.own.function import AutotunedFunction


def functions_of(
    models: Sequence[Path], inputs: Path | None, for_models: Mapping[str, object]
) -> list[AutotunedFunction]:
    """The functions that are to be measured; none where these are models.

    for_models  flags that functions do not take, by name
    Raises      UsageError for functions beside models, and for flags that do not go with them.
    """
    found = [own_function(path) for path in models]
    functions = [function for function in found if function is not None]
    if not functions:
        if inputs is not None:
            raise UsageError("--inputs is for functions of autosched.autotune", hint="a model's inputs are made up")
        return []
    if len(functions) < len(found):
        other = models[found.index(None)]
        raise UsageError(f"{other} is no function of autosched.autotune", hint="measure models and functions apart")
    if used := [name for name, value in for_models.items() if value]:
        raise UsageError(f"{used[0]} is for models, not for your own functions")
    return functions


def bench_functions(
    functions: Sequence[AutotunedFunction],
    common: Common,
    inputs: Path | None,
    *,
    time_s: float,
    runs: int | None,
    percentiles: Sequence[float],
    run_as: Literal["latency", "throughput"],
) -> BenchReport:
    """Measure each function with the arguments of --inputs, or its example."""
    from autosched.driver import TuneOptions
    from autosched.driver.bench.entry import joined
    from autosched.own.side_by_side import bench_call

    options = TuneOptions(threads=common.threads, run_as=run_as)
    reports = []
    for function in functions:
        values = arguments_of(function, inputs)
        found = found_for(function, values, common)
        with Waiting(f"measuring {function.__name__}", quiet=common.is_quiet):
            reports.append(
                bench_call(function, values, found, time_s=time_s, runs=runs, percentiles=percentiles, options=options)
            )
    return joined(reports)
