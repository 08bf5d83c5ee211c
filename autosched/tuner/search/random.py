"""Uniform random search: no model, no memory; the yardstick for every other strategy."""

from __future__ import annotations

import numpy as np

from autosched.tuner.search.base import BaseSearch


class RandomSearch(BaseSearch):
    """Valid configurations drawn uniformly, none twice."""

    name = "random"

    def propose(self, n: int) -> np.ndarray:
        """`n` open rows drawn uniformly."""
        return self.pool.random(n)

    def _spread(self, n: int) -> np.ndarray:
        return self.pool.random(n)
