"""Boosted trees: XGBoost regressors, loaded when the first one is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.tuner.cost_model.target import clip_log_times


@dataclass(frozen=True, slots=True)
class BoostOptions:
    """How the boosted trees are grown."""

    rounds: int = 60
    depth: int = 4
    rate: float = 0.15
    members: int = 4  # models on resampled trials, whose disagreement is the uncertainty


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
