"""Search guided by a random forest, after SMAC: expected improvement by the spread of the trees.

Source: Hutter, Hoos, Leyton-Brown 2011, Sequential model-based optimization for general algorithm configuration.
"""

from __future__ import annotations

import numpy as np

from autosched.tuner.cost_model import Forest
from autosched.tuner.search.surrogate import SurrogateSearch


class ForestSearch(SurrogateSearch):
    """Proposes what the forest expects to improve on the best, apart from each other within a batch."""

    name = "forest"

    def train(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Fit the forest."""
        self.model = Forest(self.seed)
        self.model.fit(numbers, log_s)

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and deviation [n], and the best of the trials, all as the forest sees them."""
        mean, deviation = self.model.predict(numbers)
        return mean, deviation, self.model.best
