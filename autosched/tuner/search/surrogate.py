"""What tree-based strategies share: a model of times, one of failures, expected improvement, variety in a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.space import ConfigSpace
from autosched.tuner.cost_model import Feasibility, Hint, expected_improvement, likely
from autosched.tuner.search.base import START, BaseSearch

CANDIDATES = 4000  # configurations of a large space that are judged at each step
RANDOM_SHARE = 0.05  # of the proposals; keeps the search from closing in on what the model happens to like
LEAST_TRIALS = 4  # with a time, before a model is trained


class SurrogateSearch(BaseSearch):
    """A strategy by its model: `train` and `predict`."""

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START, hints: Sequence[Hint] = ()):
        super().__init__(space, seed=seed, start=start, hints=hints)
        self.seed = seed
        self.model: Any = None
        self.feasibility = Feasibility(seed)
        self._is_trained = False

    @abstractmethod
    def train(self, numbers: np.ndarray, log_s: np.ndarray) -> None:
        """Fit the model to configurations [n, columns] and their logarithmic times [n]."""

    @abstractmethod
    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and deviation of each candidate [n], and the best trial, in the model's own units; lower is faster."""

    def learn(self) -> None:
        """The models are trained when they are asked the next time."""
        self._is_trained = False

    def propose(self, n: int) -> np.ndarray:
        """The best by expected improvement times probability of success, picked one by one for variety."""
        history = self.history
        rows, numbers = self.pool.candidates(history.best_rows(24), CANDIDATES)
        if int(history.ok.sum()) < LEAST_TRIALS or not len(rows):
            return self.pool.random(n)
        if not self._is_trained:
            self.train(history.numbers[history.ok], history.log_s[history.ok])
            self.feasibility.fit(history.numbers, history.ok)
            self._is_trained = True
        success = self.feasibility.predict(numbers)
        runs = likely(success, n)
        rows, numbers, success = rows[runs], numbers[runs], success[runs]
        picked = pick_apart(expected_improvement(*self.predict(numbers)) * success, numbers, n)
        chosen: np.ndarray = np.take(rows, picked, axis=0)
        for i in np.flatnonzero(self.rng.random(len(chosen)) < RANDOM_SHARE):
            chosen[i] = rows[self.rng.integers(len(rows))]
        return chosen


def pick_apart(score: np.ndarray, numbers: np.ndarray, n: int) -> list[int]:
    """Positions of `n` candidates: each time the best score, after lowering the scores of what is near to the picked.

    score  [m], not negative;  numbers  [m, columns]
    """
    top = np.argsort(-score, kind="stable")[: max(50 * n, 200)]
    left = score[top].astype(float)
    scale = numbers.std(axis=0)
    points = numbers[top] / np.where(scale == 0, 1.0, scale)
    picked: list[int] = []
    for _ in range(min(n, len(top))):
        i = int(np.argmax(left))
        picked.append(int(top[i]))
        distance2 = ((points - points[i]) ** 2).sum(axis=1)
        left *= 1 - 0.7 * np.exp(-distance2 / 0.5)
        left[i] = -1.0
    return picked
