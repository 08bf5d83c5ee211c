"""Bayesian optimisation: a Gaussian process on clipped logarithmic times, expected improvement over all candidates.

Batches are picked by kriging believer: what was picked counts as measured with its predicted time, which lowers the
uncertainty around it.
"""

from __future__ import annotations

import numpy as np

from autosched.space import ConfigSpace
from autosched.tuner.cost_model import (
    Feasibility,
    GaussianProcess,
    clip_log_times,
    expected_improvement,
    likely,
    one_thread,
)
from autosched.tuner.search.base import START, BaseSearch

CANDIDATES = 4000  # configurations of a large space that are judged at each step
REFIT = 8  # new trials after which the length scales are fitted again
ITERATIONS = 12  # steps of such a fit, which starts from the one before
FIRST_ITERATIONS = 60


class GaussianProcessSearch(BaseSearch):
    """Proposes what is expected to improve most on the best known."""

    name = "gp"

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START):
        super().__init__(space, seed=seed, start=start)
        self.feasibility = Feasibility(seed)
        self._model: GaussianProcess | None = None
        self._fitted_on = 0  # trials at the last fit of the length scales
        self._is_trained = False
        self._best = 0.0

    def learn(self) -> None:
        """The models are trained when they are asked the next time."""
        self._is_trained = False

    def _trained(self) -> GaussianProcess | None:
        history, ok = self.history, self.history.ok
        if int(ok.sum()) < 4:
            return None
        if self._model is None:
            sample = self.pool.candidates(history.best_rows(0), CANDIDATES)[1]
            self._model = GaussianProcess(np.concatenate([sample, history.numbers]).std(axis=0))
        if not self._is_trained:
            target = clip_log_times(history.log_s[ok])
            self._best = float(target.min())
            first = self._fitted_on == 0
            refit = first or len(history) >= self._fitted_on + REFIT
            iterations = (FIRST_ITERATIONS if first else ITERATIONS) if refit else 0
            self._model.fit(history.numbers[ok], target, iterations)
            self._fitted_on = len(history) if refit else self._fitted_on
            self.feasibility.fit(history.numbers, ok)
            self._is_trained = True
        return self._model

    def propose(self, n: int) -> np.ndarray:
        """The best by expected improvement times probability of success, each lowering the uncertainty near it."""
        with one_thread():
            return self._propose(n)

    def _propose(self, n: int) -> np.ndarray:
        model = self._trained()
        rows, numbers = self.pool.candidates(self.history.best_rows(24), CANDIDATES)
        if model is None or not len(rows):
            return self.pool.random(n)
        success = self.feasibility.predict(numbers)
        runs = likely(success, n)
        rows, numbers, success = rows[runs], numbers[runs], success[runs]
        mean, variance, white = model.predict(numbers)
        best, picked = self._best, list[int]()
        shares: list[np.ndarray] = []  # of each picked one: its effect on all others' covariances
        for _ in range(min(n, len(rows))):
            gain = expected_improvement(mean, np.sqrt(variance), best) * success
            gain[picked] = -1.0
            i = int(np.argmax(gain))
            picked.append(i)
            covariance = model.covariance(numbers, white, i) - sum((s * s[i] for s in shares), np.zeros(len(rows)))
            share = covariance / np.sqrt(variance[i] + model.noise)
            shares.append(share)
            variance = np.maximum(variance - share * share, 1e-12)
            best = min(best, float(mean[i]))
        return np.take(rows, picked, axis=0)
