"""How everything here is timed: repeats until a median is known well enough, turns in rounds, ratios with intervals."""

from __future__ import annotations

import functools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.task import Measurement, Status
from autosched.tuner.measure.base import Compared, MeasureOptions
from autosched.tuner.measure.reference import CHECKED_AGAINST

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

LEAST_ROUNDS = 6  # from here on an order statistic can be a 95 % interval of a median
_LEAST_REPEATS = 3
_MOST_CALLS = 10_000_000
_LONG_S = 0.02  # a repeat that takes so long and …
_FAR = 2.0  # … so many times the best time is enough to be sure
_BEHIND = 1.03  # a median that is surely so many times the best time need not be known better


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds per call of each repeat, and how they came about."""

    times_s: tuple[float, ...]
    number: int  # calls in a repeat
    was_cut: bool  # clearly worse than the best, so not measured to the end

    @property
    def interval(self) -> float:
        """Half the width of the median's 95 % interval, as a share of the median."""
        low, high = median_interval(self.times_s)
        return (high - low) / 2 / statistics.median(self.times_s)


def median_interval(values: Iterable[float]) -> tuple[float, float]:
    """Bound the median of what the values were drawn from, with 95 % confidence, whatever its distribution.

    The interval lies between two order statistics. With fewer than LEAST_ROUNDS values it is the whole range, and less
    sure.
    """
    ordered = sorted(values)
    skip = _values_below(len(ordered))
    return float(ordered[skip]), float(ordered[len(ordered) - 1 - skip])


@functools.cache
def _values_below(n: int) -> int:
    """How many of n values lie below the median with a probability of 2.5 %; a normal distribution for many values."""
    if n > 50:
        return math.floor(n / 2 - 0.98 * math.sqrt(n))
    below = 0
    while sum(math.comb(n, i) for i in range(below + 2)) <= 0.025 * 2**n:
        below += 1
    return below


def ratio_of_rounds(own: Iterable[float], baseline: Iterable[float]) -> tuple[float, float, float]:
    """Give the median of the ratios round by round, and its interval: what slowed both down cancels out."""
    ratios = [a / b for a, b in zip(own, baseline, strict=True)]
    return statistics.median(ratios), *median_interval(ratios)


def take_turns(number: int, turn: Callable[[int], object], is_done: Callable[[], bool], rng: random.Random) -> None:
    """Call `turn` with 0, 1, … number - 1 in a new random order each round, until `is_done` between two rounds."""
    order = list(range(number))
    while not is_done():
        rng.shuffle(order)
        for i in order:
            turn(i)


def calls_per_repeat(run: Callable[[int], object], repeat_s: float) -> int:
    """Find how many calls take `repeat_s`; warms everything up on the way."""
    number = 1
    while True:
        elapsed = time_calls(run, number)
        if elapsed >= repeat_s * 0.8 or number >= _MOST_CALLS:
            return max(1, round(number * min(1.25, repeat_s / elapsed))) if number > 1 else 1
        wanted = math.ceil(number * repeat_s / max(elapsed, 1e-9))
        number = min(_MOST_CALLS, max(number + 1, min(wanted, 100 * number)))


def time_calls(run: Callable[[int], object], number: int) -> float:
    """Give the seconds that `run(number)`, which makes `number` calls, takes in all.

    Where not everything that `run` does is to be counted, it gives the seconds itself, as a float.
    """
    start = time.perf_counter()
    counted = run(number)
    return counted if isinstance(counted, float) else time.perf_counter() - start


def sample(run: Callable[[int], object], options: MeasureOptions, best_s: float | None = None) -> Sample:
    """Time a kernel that has run before.

    run     makes so many calls
    best_s  the best time so far; None where there is none
    """
    number = calls_per_repeat(run, options.repeat_s)
    times: list[float] = []
    start = time.perf_counter()
    while True:
        times.append(time_calls(run, number) / number)
        is_far = best_s is not None and times[-1] > _FAR * options.cut_ratio * best_s
        if len(times) < _LEAST_REPEATS and not (is_far and times[-1] * number >= _LONG_S):
            continue
        if best_s is not None and min(times) > options.cut_ratio * best_s:
            return Sample(tuple(times), number, True)
        found = Sample(tuple(times), number, False)
        is_late = time.perf_counter() - start >= options.budget_s
        if is_late or (len(times) >= options.min_repeats and found.interval <= options.interval):
            return found
        if best_s is not None and len(times) >= LEAST_ROUNDS and median_interval(times)[0] > _BEHIND * best_s:
            return Sample(tuple(times), number, True)


def judge(
    configs: Sequence[object],
    times: Sequence[Sequence[float]],
    baseline: Sequence[float],
    how: Sequence[JsonObject],
    checked_against: str = CHECKED_AGAINST,
) -> list[Compared]:
    """Make the result of rounds of times: times[i][round] of configs[i], of the first rounds alone for some, and the
    baseline's, of all rounds.
    """
    found = []
    for config, own, facts in zip(configs, times, how, strict=True):
        how_measured = {**facts, "interleaved": len(configs), "baseline_s": statistics.median(baseline)}
        measurement = Measurement(Status.OK, tuple(own), checked_against, how=how_measured)
        found.append(Compared(config, measurement, *ratio_of_rounds(own, baseline[: len(own)])))
    return found
