"""Simulated annealing: several chains walk from neighbour to neighbour, ever less willing to go uphill.

Source: Kirkpatrick, Gelatt, Vecchi 1983, Optimization by simulated annealing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.space import ConfigSpace
from autosched.tuner.search.base import START, BaseSearch

CHAINS = 8
HOT = 0.5  # difference of logarithmic times that is forgiven with probability 1/e at the start
COOLING = 0.985  # of the temperature, per trial


@dataclass
class Chain:
    """Where one walk stands."""

    row: np.ndarray
    log_s: float


class AnnealingSearch(BaseSearch):
    """Random neighbours of `CHAINS` walks; a failed neighbour is never walked to."""

    name = "annealing"

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START, **more: object):
        super().__init__(space, seed=seed, start=start, **more)  # type: ignore[arg-type]
        self._chains: list[Chain] = []
        self._walker: dict[bytes, int] = {}  # of proposed rows: the chain that asked
        self._turn, self._seen = 0, 0

    @property
    def temperature(self) -> float:
        """How much slower, in logarithmic time, a step may be to be taken with probability 1/e."""
        return HOT * float(COOLING ** len(self.history))

    def learn(self) -> None:
        """Walk on to the answers, or stay; what no chain asked for replaces the worst chain if it is better."""
        for row, log_s in zip(self.history.rows[self._seen :], self.history.log_s[self._seen :], strict=True):
            number = self._walker.pop(row.tobytes(), None)
            if not np.isfinite(log_s):
                continue
            if number is not None:
                chain = self._chains[number]
                if self.rng.random() < np.exp(min(0.0, (chain.log_s - log_s) / self.temperature)):
                    self._chains[number] = Chain(row, float(log_s))
            elif len(self._chains) < CHAINS:
                self._chains.append(Chain(row, float(log_s)))
            else:
                worst = max(range(CHAINS), key=lambda i: self._chains[i].log_s)
                if log_s < self._chains[worst].log_s:
                    self._chains[worst] = Chain(row, float(log_s))
        self._seen = len(self.history)

    def propose(self, n: int) -> np.ndarray:
        """A random open neighbour of each chain in turn; a chain without one starts anew at random."""
        rows: list[np.ndarray] = []
        chosen: set[bytes] = set()
        for _ in range(4 * n):
            if len(rows) == n or not self._chains:
                break
            self._turn = (self._turn + 1) % len(self._chains)
            row = self._step(self._chains[self._turn].row, chosen)
            if row is not None:
                rows.append(row)
                chosen.add(row.tobytes())
                self._walker[row.tobytes()] = self._turn
        return np.array(rows, dtype=np.int32).reshape(len(rows), len(self.space.knobs))

    def _step(self, row: np.ndarray, chosen: set[bytes]) -> np.ndarray | None:
        near = self.space.neighbour_rows(row)
        for i in self.rng.permutation(len(near)):
            if not self.pool.is_taken(near[i]) and near[i].tobytes() not in chosen:
                return np.ascontiguousarray(near[i], dtype=np.int32)
        return None
