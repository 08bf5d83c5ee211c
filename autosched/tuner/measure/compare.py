"""What an interleaved comparison says: medians, and ratios to the first candidate with their intervals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from autosched.task import Measurement, Status
from autosched.tuner.measure.base import Compared, MeasureOptions
from autosched.tuner.measure.reference import CHECKED_AGAINST
from autosched.tuner.measure.sampling import median_interval


def judge(
    configs: Sequence[Any],
    times: Sequence[Sequence[float]],
    baseline: Sequence[float],
    how: Sequence[dict[str, Any]],
    checked_against: str = CHECKED_AGAINST,
) -> list[Compared]:
    """Make the result of rounds of times: times[i][round] of configs[i], and the baseline's."""
    found = []
    for config, own, facts in zip(configs, times, how, strict=True):
        ratios = [a / b for a, b in zip(own, baseline, strict=True)]
        low, high = median_interval(ratios)
        how_measured = {**facts, "interleaved": len(configs), "baseline_s": statistics.median(baseline)}
        measurement = Measurement(Status.OK, tuple(own), checked_against, how=how_measured)
        found.append(Compared(config, measurement, statistics.median(ratios), low, high))
    return found


def failed(config: Any, measurement: Measurement) -> Compared:
    """Make the result of a candidate without times."""
    infinite = float("inf")
    return Compared(config, measurement, infinite, infinite, infinite)


def facts(threads: int, options: MeasureOptions) -> dict[str, Any]:
    """Give the fields of `how` that hold for each candidate of a comparison."""
    return {"threads": threads, "cache": options.cache, **company(options)}


def company(options: MeasureOptions) -> dict[str, Any]:
    """Give what `how` says of other instances that ran meanwhile; nothing where there were none."""
    return {} if options.companions is None else {"as": options.run_as, "companions": options.companions}
