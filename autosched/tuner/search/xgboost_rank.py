"""Search guided by boosted trees that learn to rank, after AutoTVM's XGBoost tuner.

Source: Chen et al. 2018, Learning to optimize tensor programs.

What is different: failed configurations train a classifier instead of counting as slow, the disagreement of an
ensemble gives an expected improvement, and the whole of a small space is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.space import ConfigSpace
from autosched.tuner.cost_model import BoostedTrees, BoostOptions, Hint
from autosched.tuner.search.base import START
from autosched.tuner.search.surrogate import SurrogateSearch


class XGBoostSearch(SurrogateSearch):
    """Proposes what the trees rank first or are unsure about, apart from each other within a batch."""

    name = "xgboost"

    def __init__(
        self,
        space: ConfigSpace,
        *,
        seed: int = 0,
        start: int = START,
        hints: Sequence[Hint] = (),
        options: BoostOptions | None = None,
    ):
        super().__init__(space, seed=seed, start=start, hints=hints)
        self.model = BoostedTrees(options, seed)

    def train(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Fit the ensemble."""
        self.model.fit(numbers, log_s)

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and deviation [n], and the best of the trials, all as the ensemble sees them."""
        mean, deviation = self.model.predict(numbers)
        return mean, deviation, self.model.best
