"""What a model would not propose: the best with one knob changed to a candidate that was hardly tried.

A smooth model takes a candidate between two bad ones for bad. Where a search in a large space has found nothing better
for a while, some of its proposals go round the best, knob by knob and candidate by candidate, whatever the model says.
"""

from __future__ import annotations

import numpy as np

from autosched.tuner.search.base import History
from autosched.tuner.search.pool import Pool

STALLED = 24  # trials since the best one
SHARE = 0.25  # of the proposals of a search that has stalled


class Variation:
    """Decides how many proposals are such, and makes them."""

    def __init__(self, pool: Pool, history: History):
        self._pool, self._history = pool, history
        self._owed = 0.0

    def rows(self, n: int) -> np.ndarray:
        """Open rows for a part of `n` proposals; none while the search gets on."""
        history = self._history
        if not np.isfinite(history.best_log_s) or len(history) - 1 - int(np.nanargmin(history.log_s)) < STALLED:
            self._owed = 0.0
            return history.rows[:0]
        self._owed += SHARE * n
        count = int(self._owed)
        self._owed -= count
        (best,) = history.best_rows(1)
        near = self._pool.untaken(self._pool.space.neighbour_rows(best))
        changed = (near != best).argmax(axis=1)
        tried = np.array([(history.rows[:, k] == row[k]).sum() for row, k in zip(near, changed, strict=True)])
        order = np.lexsort((self._pool.rng.random(len(near)), tried))
        return near[order[:count]]
