"""A random forest of scikit-learn, loaded when the first one is trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.tuner.cost_model.target import clip_log_times

TREES = 60


class Forest:
    """Extremely randomised trees on clipped logarithmic times; their disagreement is the uncertainty.

    Source: Geurts, Ernst, Wehenkel 2006, Extremely randomized trees.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.best = 0.0
        self.error = 1.0  # mean square of what the trees err on trials that they were not grown on
        self.explained = 0.0  # share of the targets' variance that they foresee on such trials; below 0: none
        self._model: Any = None

    def fit(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Train on configurations [n, columns] and their logarithmic times [n]."""
        self.fit_values(numbers, clip_log_times(log_s))

    def fit_values(self, numbers: np.ndarray, target: np.ndarray) -> None:
        """Train on values that stay as they are [n]."""
        from sklearn.ensemble import ExtraTreesRegressor

        self.best = float(target.min())
        options = {"max_features": 0.5, "bootstrap": True, "oob_score": True, "random_state": self.seed, "n_jobs": 1}
        self._model = ExtraTreesRegressor(TREES, **options)
        self._model.fit(numbers, target)
        self.error = float(np.mean((self._model.oob_prediction_ - target) ** 2))
        self.explained = 1 - self.error / max(float(np.var(target)), 1e-12)

    def mean(self, numbers: np.ndarray) -> np.ndarray:
        """The mean alone [n]."""
        return np.asarray(self._model.predict(numbers.astype(np.float32)))

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the predicted time [n], in the units of the target."""
        points = numbers.astype(np.float32)
        every = np.stack([tree.predict(points) for tree in self._model.estimators_])
        return every.mean(axis=0), every.std(axis=0)
