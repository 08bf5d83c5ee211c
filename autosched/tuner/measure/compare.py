"""How finalists are compared: checked, timed in turn, and checked further where they may win; by whoever runs them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

from autosched.errors import InvalidValueError
from autosched.task import ConfigLike, Measurement, Task
from autosched.tuner.measure.base import Built, Candidate, Compared, Failed, MeasureOptions
from autosched.tuner.measure.reference import CHECKED_AGAINST
from autosched.tuner.measure.runner import threads_of
from autosched.tuner.measure.sampling import judge

NEAR = 1.1  # what takes so many times the fastest one's time may still be the best one inside a model
_EXTRA_SEEDS_S = 3.0  # what checking a finalist on further inputs may take

InTurn = Callable[[Sequence[Built], int], list[list[float]] | Measurement]


def build_finalists(
    task: Task,
    configs: Sequence[ConfigLike],
    build: Callable[[Sequence[Candidate]], Iterable[Built | Failed]],
    check: Callable[[Built], Measurement | None],
) -> tuple[dict[int, Compared], dict[int, Built]]:
    """(by position the failures, what was built and found right). Raises InvalidValueError for no configuration."""
    if not configs:
        raise InvalidValueError("no configuration to compare")
    candidates = [Candidate(task, config) for config in configs]
    failures: dict[int, Compared] = {}
    good: dict[int, Built] = {}
    for outcome in build(candidates):
        position = next(i for i, c in enumerate(candidates) if c is outcome.candidate)
        failure = outcome.measurement if isinstance(outcome, Failed) else check(outcome)
        if failure is not None:
            failures[position] = Compared(configs[position], failure)
        elif isinstance(outcome, Built):
            good[position] = outcome
    return failures, good


def check_winners(
    found: Sequence[Compared], built: Sequence[Built], check: Callable[[Built], Measurement | None], *, has_first: bool
) -> list[Compared]:
    """Check on further inputs what may win: what is not surely behind the fastest. What fails there has failed.

    has_first  whether the first of them is the baseline; where not, that has failed
    Where nothing comes near the baseline nothing is checked: it is what is used already, and float64 references of all
    tasks of a model take seconds. Where something fails, the others may win too.
    """
    good = [i for i, one in enumerate(found) if one.measurement.is_ok]
    fastest = min((found[i].ratio for i in good), default=math.inf)
    near = [i for i in good if found[i].low <= NEAR * fastest]
    if near == [0] and has_first:
        return list(found)
    failures = {i: check(built[i]) for i in near}
    if any(failures.values()):
        failures |= {i: check(built[i]) for i in good if i not in failures}
    failed = {i: failure for i, failure in failures.items() if failure is not None}
    return [Compared(one.config, failed[i]) if i in failed else one for i, one in enumerate(found)]


def check_on_seeds(
    check: Callable[[int], Measurement | None], seeds: Sequence[int], reference_s: Callable[[], float]
) -> Measurement | None:
    """Check on several inputs, on fewer of them where making references takes long; gives the first failure."""
    end = time.monotonic() + _EXTRA_SEEDS_S
    for seed in seeds:
        if time.monotonic() + reference_s() > end:
            break
        if (failure := check(seed)) is not None:
            return failure
    return None


def time_in_turn(
    in_turn: InTurn,
    built: Sequence[Built],
    rounds: int,
    options: MeasureOptions,
    checked_against: str = CHECKED_AGAINST,
) -> list[Compared]:
    """Time them in turn; where that fails, each with the first one alone, so that only the culprit fails."""

    def several(some: Sequence[Built]) -> list[Compared]:
        configs: list[ConfigLike] = [one.candidate.config for one in some]
        times = in_turn(some, rounds)
        if not isinstance(times, Measurement):
            how = [options.facts(threads_of(one, options)) for one in some]
            return judge(configs, times, times[0], how, checked_against)
        if len(some) == 1:
            return [Compared(configs[0], times)]
        first, *others = some
        alone = several([first])
        if not alone[0].measurement.is_ok:
            return [*alone, *several(others)]
        if len(others) == 1:
            return [*alone, Compared(configs[1], times)]
        return [*alone, *(several([first, other])[1] for other in others)]

    return several(built)
