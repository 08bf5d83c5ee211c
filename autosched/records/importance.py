"""Which knobs decide a task's time, from the trials alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.records.record import Record
from autosched.task import Trial

LEAST_TIMES = 8  # below, chance alone makes any knob look important
HOW = (
    "share of the variance of the logarithm of the time that the knob's value alone explains (correlation ratio), "
    "corrected for what as many groups explain by chance"
)


def knob_importance(records: Sequence[Record | Trial]) -> list[tuple[str, float]]:
    """Each knob with its share in [0, 1], the largest first; empty with fewer than eight times.

    The share is eta squared, adjusted for the number of distinct values (Kelley 1935, epsilon squared). A configuration
    without the knob counts as a value of its own.
    """
    good = [record for record in records if record.measurement.is_ok]
    if len(good) < LEAST_TIMES:
        return []
    times = np.log([record.measurement.median_s for record in good])
    total = float(((times - times.mean()) ** 2).sum())
    names = dict.fromkeys(name for record in good for name in record.config.knobs)
    columns = {"template": [record.config.template for record in good]}
    columns |= {name: [repr(record.config.knobs.get(name)) for record in good] for name in names}
    found = [(name, _epsilon_squared(values, times, total)) for name, values in columns.items() if len(set(values)) > 1]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _epsilon_squared(values: Sequence[str], times: np.ndarray, total: float) -> float:
    n, groups = len(times), sorted(set(values))
    if total <= 0 or n <= len(groups):
        return 0.0
    number = {value: i for i, value in enumerate(groups)}
    index = np.array([number[value] for value in values])
    counts = np.bincount(index)
    means = np.bincount(index, weights=times) / counts
    within = float(((times - means[index]) ** 2).sum())
    return max(0.0, 1.0 - (within / (n - len(groups))) / (total / (n - 1)))
