"""Exhaustive search in the order of the space: no model; for spaces that the budget covers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autosched.tuner.search.base import BaseSearch


class GridSearch(BaseSearch):
    """Every valid configuration once, in the order of the candidates, the default first."""

    name = "grid"
    _order: Iterator[np.ndarray] | None = None

    def propose(self, n: int) -> np.ndarray:
        """The next `n` rows that were not tried."""
        if self._order is None:
            self._order = (row for rows in self.space.chunks() for row in rows)
        found: list[np.ndarray] = []
        for row in self._order:
            if not self.pool.is_taken(row):
                found.append(row)
                if len(found) == n:
                    break
        return np.array(found, dtype=np.int32).reshape(len(found), len(self.space.knobs))

    def _spread(self, n: int) -> np.ndarray:
        return self.propose(n)
