"""What a search expects of times before it has measured: the hints' expectation, corrected by the trials so far.

A hint says by how much the logarithm of a configuration's time is above the best. Its weight starts at one, shared
between hints, and is fitted to the trials like a regression that knows some trials of weight one beforehand. What is
left of the times beside it is for the models to explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.tuner.cost_model.target import Clipping

BELIEF = 4.0  # trials, spread like the space, that the expected weights count as much as
SURPRISE = 0.5  # deviation of what a hint does not know, of the deviation of what it says
SURPRISE_BELIEF = 4.0  # trials that this counts as much as


@dataclass(frozen=True, slots=True)
class Expectation:
    """How logarithmic times become the target of models: clipped, less what hints say, with mean 0 and deviation 1."""

    weights: np.ndarray  # of each hint
    clipping: Clipping

    @staticmethod
    def of(log_s: np.ndarray, hinted: np.ndarray, spread: np.ndarray, reach: float) -> Expectation:
        """Fit to trials.

        hinted  what the hints say of each trial [n, hints];  spread  deviations of what they say of the space [hints]
        reach   the largest difference that they tell: times within it of the best are not clipped
        """
        clipping = Clipping.of(log_s)
        if not hinted.shape[1]:
            return Expectation(np.zeros(0), clipping)
        limit = max(clipping.limit, float(log_s.min()) + reach)
        clipped, apart = np.minimum(log_s, limit), hinted - hinted.mean(axis=0)
        prior = np.diag(BELIEF * np.maximum(spread, 1e-6) ** 2)
        expected = np.full(len(spread), 1 / len(spread))
        weights = np.linalg.solve(apart.T @ apart + prior, apart.T @ (clipped - clipped.mean()) + prior @ expected)
        left = clipped - hinted @ weights
        surprise = SURPRISE_BELIEF * float((SURPRISE * spread).max()) ** 2
        variance = (float(((left - left.mean()) ** 2).sum()) + surprise) / (len(left) + SURPRISE_BELIEF)
        return Expectation(weights, Clipping(limit, float(left.mean()), float(np.sqrt(max(variance, 1e-12)))))

    def targets(self, log_s: np.ndarray, hinted: np.ndarray) -> np.ndarray:
        """What models learn of trials [n]."""
        return np.asarray(self.clipping(log_s) - self.expected(hinted))

    def expected(self, hinted: np.ndarray) -> np.ndarray:
        """What is to be added to a model's answer, in its units [n]."""
        return np.asarray(hinted @ self.weights / self.clipping.deviation)
