"""Search guided by boosted trees, after AutoTVM's XGBoost tuner.

Source: Chen et al. 2018, Learning to optimize tensor programs.

What is different: times enter as clipped logarithms, failed configurations train a classifier instead of counting as
slow, the disagreement of an ensemble gives an expected improvement, and the whole of a small space is judged.
"""

from __future__ import annotations

import numpy as np

from autosched.space import ConfigSpace
from autosched.tuner.cost_model import BoostedTrees, BoostOptions, Feasibility, expected_improvement, likely
from autosched.tuner.search.base import START, BaseSearch

CANDIDATES = 4000  # configurations of a large space that are judged at each step
RANDOM_SHARE = 0.05  # of the proposals; keeps the search from closing in on what the model happens to like


class XGBoostSearch(BaseSearch):
    """Proposes what the model expects to improve on the best, apart from each other within a batch."""

    name = "xgboost"

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START, options: BoostOptions | None = None):
        super().__init__(space, seed=seed, start=start)
        self.model = BoostedTrees(options, seed)
        self.feasibility = Feasibility(seed)
        self._is_trained = False

    def learn(self) -> None:
        """The models are trained when they are asked the next time."""
        self._is_trained = False

    def _train(self) -> bool:
        history = self.history
        if int(history.ok.sum()) < 4:
            return False
        if not self._is_trained:
            self.model.fit(history.numbers[history.ok], history.log_s[history.ok])
            self.feasibility.fit(history.numbers, history.ok)
            self._is_trained = True
        return True

    def propose(self, n: int) -> np.ndarray:
        """The best by expected improvement times probability of success, picked one by one for variety."""
        rows, numbers = self.pool.candidates(self.history.best_rows(24), CANDIDATES)
        if not self._train() or not len(rows):
            return self.pool.random(n)
        success = self.feasibility.predict(numbers)
        runs = likely(success, n)
        rows, numbers, success = rows[runs], numbers[runs], success[runs]
        mean, deviation = self.model.predict(numbers)
        score = expected_improvement(mean, deviation, self.model.best) * success
        picked = pick_apart(score, numbers, n)
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
