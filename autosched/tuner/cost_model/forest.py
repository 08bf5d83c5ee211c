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
        self._model: Any = None

    def fit(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Train on configurations [n, columns] and their logarithmic times [n]."""
        self.fit_values(numbers, clip_log_times(log_s))

    def fit_values(self, numbers: np.ndarray, target: np.ndarray) -> None:
        """Train on values that stay as they are [n]."""
        from sklearn.ensemble import ExtraTreesRegressor

        self.best = float(target.min())
        self._model = ExtraTreesRegressor(TREES, min_samples_leaf=1, random_state=self.seed, n_jobs=1)
        self._model.fit(numbers, target)

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the predicted time [n], in the units of the target."""
        points = numbers.astype(np.float32)
        every = np.stack([tree.predict(points) for tree in self._model.estimators_])
        return every.mean(axis=0), every.std(axis=0)
