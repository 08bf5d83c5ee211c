"""A forest of extremely randomised trees over configurations."""

from __future__ import annotations

import numpy as np

from autosched.tuner.cost_model.extra_trees import ExtraTrees
from autosched.tuner.cost_model.target import clip_log_times

TREES = 60


class Forest:
    """Extremely randomised trees on clipped logarithmic times; their disagreement is the uncertainty."""

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.best = 0.0
        self.error = 1.0  # mean square of what the trees err on trials that they were not grown on
        self.explained = 0.0  # share of the targets' variance that they foresee on such trials; below 0: none
        self._model = ExtraTrees(TREES, 0.5, bootstrap=True, seed=seed)

    def fit(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Train on configurations [n, columns] and their logarithmic times [n]."""
        self.fit_values(numbers, clip_log_times(log_s))

    def fit_values(self, numbers: np.ndarray, target: np.ndarray) -> None:
        """Train on values that stay as they are [n]."""
        self.best = float(target.min())
        unseen = self._model.fit(numbers, target).predict_unseen(numbers)
        known = np.isfinite(unseen)
        self.error = float(np.mean((unseen[known] - target[known]) ** 2)) if known.any() else float(np.var(target))
        self.explained = 1 - self.error / max(float(np.var(target)), 1e-12)

    def mean(self, numbers: np.ndarray) -> np.ndarray:
        """The mean alone [n]."""
        return self._model.predict(numbers)

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the predicted time [n], in the units of the target."""
        every = self._model.predict_each(numbers)
        return every.mean(axis=0), every.std(axis=0)
