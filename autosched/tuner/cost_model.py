"""Models that rank configurations by the time they are expected to take.

Failures have no time, so they are kept out of the ranking and train a classifier of their own. XGBoost and
scikit-learn are loaded when a model is first trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

CLIP_QUANTILE = 0.6  # slower configurations all count as equally slow: their differences teach nothing


@dataclass(frozen=True, slots=True)
class BoostOptions:
    """How the boosted trees are grown."""

    rounds: int = 60
    depth: int = 4
    rate: float = 0.15
    members: int = 4  # models on resampled trials, whose disagreement is the uncertainty


def clip_log_times(log_s: np.ndarray, quantile: float = CLIP_QUANTILE) -> np.ndarray:
    """Logarithmic times, those above the quantile set to it, shifted and scaled to mean 0 and deviation 1."""
    clipped = np.minimum(log_s, np.quantile(log_s, quantile))
    deviation = float(clipped.std())
    return (clipped - clipped.mean()) / (deviation if deviation > 0 else 1.0)


class BoostedTrees:
    """An ensemble of XGBoost regressors on clipped logarithmic times."""

    def __init__(self, options: BoostOptions | None = None, seed: int = 0):
        self.options, self.seed = options or BoostOptions(), seed
        self._members: list[Any] = []
        self.best = 0.0

    def fit(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Train on configurations [n, columns] and their logarithmic times [n]."""
        import xgboost

        target = clip_log_times(log_s)
        self.best = float(target.min())
        rng = np.random.default_rng(self.seed)
        settings = {
            "objective": "reg:squarederror",
            "max_depth": self.options.depth,
            "eta": self.options.rate,
            "min_child_weight": 1,
            "lambda": 0.1,
            "colsample_bytree": 0.8,
            "tree_method": "exact",
            "nthread": 1,
            "verbosity": 0,
        }
        self._members = []
        for member in range(self.options.members):
            weight = rng.exponential(1.0, len(target))  # Bayesian bootstrap
            data = xgboost.DMatrix(numbers, label=target, weight=weight)
            self._members.append(
                xgboost.train({**settings, "seed": self.seed + member}, data, num_boost_round=self.options.rounds)
            )

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the predicted time [n], in the units of `clip_log_times`."""
        import xgboost

        data = xgboost.DMatrix(numbers)
        every = np.stack([member.predict(data) for member in self._members])
        return every.mean(axis=0), every.std(axis=0)


class Feasibility:
    """The probability that a configuration builds and runs; 1 for all while nothing has failed."""

    def __init__(self, seed: int = 0):
        self.seed = seed
        self._model: Any = None

    def fit(self, numbers: np.ndarray, ok: np.ndarray) -> None:
        """Train on configurations [n, columns] and whether they have a time [n] bool."""
        if ok.all() or not ok.any():
            self._model = None
            return
        from sklearn.ensemble import ExtraTreesClassifier

        self._model = ExtraTreesClassifier(60, min_samples_leaf=1, random_state=self.seed, n_jobs=1)
        self._model.fit(numbers, ok)

    def predict(self, numbers: np.ndarray) -> np.ndarray:
        """Probability of success [n]."""
        if self._model is None:
            return np.ones(len(numbers))
        return np.asarray(self._model.predict_proba(numbers)[:, 1])


def likely(success: np.ndarray, n: int) -> np.ndarray:
    """Positions of the candidates that will rather run than fail; the `n` likeliest where there are fewer than that."""
    chosen = np.flatnonzero(success >= 0.5)
    return chosen if len(chosen) >= n else np.argsort(-success, kind="stable")[:n]


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """How much lower than `best` a normal value is expected to be, counting 0 where it is higher; [n]."""
    from scipy.special import ndtr

    deviation = np.maximum(deviation, 1e-9)
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(deviation * (z * ndtr(z) + density))
