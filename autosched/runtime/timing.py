"""Repeated timing with TVM's rules for `number`, `repeat` and `min_repeat_ms`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError


@dataclass(frozen=True, slots=True, init=False)
class BenchmarkResult:
    """Seconds per call of each repeat, and their statistics; `std` is the population's."""

    results: tuple[float, ...]
    mean: float
    median: float
    min: float
    max: float
    std: float

    def __init__(self, results: Sequence[float]):
        put = object.__setattr__
        put(self, "results", tuple(float(seconds) for seconds in results))
        for name in ("mean", "median", "min", "max", "std"):
            put(self, name, float(getattr(np, name)(self.results)))

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = " ".join(f"{f'{name} (ms)':^12}" for name in names)
        body = " ".join(f"{getattr(self, name) * 1000:^12.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{body}\n"


def check_counts(action: str, **counts: object) -> None:
    """Refuse what is no positive integer. Raises InvalidTypeError and InvalidValueError naming the argument."""
    for name, count in counts.items():
        if isinstance(count, bool) or not hasattr(count, "__index__"):
            raise InvalidTypeError(f"{action}: {name} is a {type(count).__name__}, not an int")
        if int(count) < 1:
            raise InvalidValueError(f"{action}: {name}={count}", hint="it is 1 or more")


class MeasureOptions(TypedDict, total=False):
    """What TVM's time evaluators take of the arguments of `measure`."""

    number: int
    repeat: int
    min_repeat_ms: float
    limit_zero_time_iterations: int
    cooldown_interval_ms: float
    repeats_to_cooldown: int


def measure(
    run: Callable[[int], object],
    *,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: float = 0,
    repeats_to_cooldown: int = 1,
    prepare: Callable[[], object] | None = None,
    timer: Callable[[int], float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> BenchmarkResult:
    """Time `run(number)`, which makes `number` calls, after one call that is not timed.

    repeat         measurements, each divided by its number of calls
    min_repeat_ms  where a measurement takes less, `number` grows (also for the later ones) and it is made again
    prepare        called before each measurement, outside its time
    timer          makes that number of calls and gives the seconds that they took, where a device has its own clock
    Source         TVM's RPC time evaluator. Raises InvalidValueError if number or repeat is below 1.
    """
    check_counts("measure", number=number, repeat=repeat)
    run(1)
    results = []
    for index in range(repeat):
        if prepare is not None:
            prepare()
        zero_times = 0
        while True:
            if timer is not None:
                duration_ms = timer(number) * 1e3
            else:
                start = clock()
                run(number)
                duration_ms = (clock() - start) * 1e3
            if duration_ms == 0:
                zero_times += 1
            if duration_ms >= min_repeat_ms or (duration_ms == 0 and zero_times >= limit_zero_time_iterations):
                break
            per_call_ms = duration_ms / number
            wanted = min_repeat_ms / per_call_ms + 1 if per_call_ms else 0.0
            number = int(max(wanted, number * 1.618))  # the golden ratio, from TVM
        results.append(duration_ms / 1e3 / number)
        if cooldown_interval_ms > 0 and index % max(repeats_to_cooldown, 1) == 0:
            sleep(cooldown_interval_ms / 1e3)
    return BenchmarkResult(results)
