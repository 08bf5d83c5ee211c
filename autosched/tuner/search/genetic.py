"""A genetic algorithm: parents win tournaments, children mix their knobs and change some.

Source: Holland 1975, Adaptation in natural and artificial systems; with tournaments after Goldberg, Deb 1991.
"""

from __future__ import annotations

import numpy as np

from autosched.tuner.search.base import BaseSearch

POPULATION = 20  # the fastest so far, which may become parents
TOURNAMENT = 3
MUTATION = 0.8  # probability that a child is moved to one of its neighbours
ATTEMPTS = 20  # pairs of parents for each child before a random one takes its place


class GeneticSearch(BaseSearch):
    """Children of the fastest configurations; those that break a constraint or were tried are not born."""

    name = "genetic"

    def propose(self, n: int) -> np.ndarray:
        """Up to `n` children that are open; fewer where mixing gives nothing new."""
        parents = self.history.best_rows(POPULATION)
        if len(parents) < 2:
            return self.pool.random(n)
        children: dict[bytes, np.ndarray] = {}
        for _ in range(ATTEMPTS * n):
            child = self._child(parents)
            if child is not None and not self.pool.is_taken(child):
                children.setdefault(child.tobytes(), child)
                if len(children) == n:
                    break
        return np.array(list(children.values()), dtype=np.int32).reshape(-1, parents.shape[1])

    def _child(self, parents: np.ndarray) -> np.ndarray | None:
        mother, father = (parents[self.rng.integers(len(parents), size=TOURNAMENT).min()] for _ in range(2))
        mixed = np.where(self.rng.random(len(mother)) < 0.5, mother, father) if mother[0] == father[0] else mother
        child = mixed if self.space.valid_rows(mixed[None, :])[0] else mother
        if self.rng.random() < MUTATION:
            near = self.space.neighbour_rows(child)
            if not len(near):
                return None
            child = near[self.rng.integers(len(near))]
        return np.ascontiguousarray(child, dtype=np.int32)
