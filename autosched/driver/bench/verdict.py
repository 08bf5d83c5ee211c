"""Says which of two measured programs is faster, by how much, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.driver.bench.rounds import Timing, median_interval


@dataclass(frozen=True)
class Comparison:
    """How many times longer `second` takes than `first`: the median over rounds and its 95 % interval."""

    first: str
    second: str
    ratio: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out "equally fast"."""
        return not self.low <= 1 <= self.high

    @property
    def text(self) -> str:
        """The verdict in words."""
        half = (self.high - self.low) / 2
        if not self.is_clear:
            return f"{self.first} and {self.second}: no difference found at ± {100 * half:.1f} %"
        if self.ratio >= 1:
            return f"{self.first} is {_with_interval(self.ratio, half)} times faster than {self.second}"
        half = (1 / self.low - 1 / self.high) / 2
        return f"{self.second} is {_with_interval(1 / self.ratio, half)} times faster than {self.first}"


def _with_interval(value: float, half: float) -> str:
    digits = 2 if half >= 0.005 else 3
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def compare(first: Timing, second: Timing) -> Comparison:
    """Compare two programs of one `measure` round by round: what slowed both down cancels out."""
    ratios: np.ndarray = second.round_medians_s / first.round_medians_s
    low, high = median_interval(ratios)
    return Comparison(first.program.name, second.program.name, float(np.median(ratios)), low, high)
