"""The configurations that a search can still propose: all of a small space, samples and neighbours of a large one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.space import Config, ConfigSpace
from autosched.tuner.cost_model import Hint

LISTED = 20_000  # spaces with no more valid configurations are listed whole


class Pool:
    """Rows of positions that were not proposed yet, with their numbers for models.

    A space with at most `listed` valid configurations is held whole; of a larger one, candidates are drawn anew each
    time: random ones, and ones near to the best known.
    """

    def __init__(self, space: ConfigSpace, rng: np.random.Generator, listed: int = LISTED, hints: Sequence[Hint] = ()):
        self.space, self.rng, self.hints = space, rng, tuple(hints)
        self._taken: dict[bytes, None] = {}  # in the order of taking
        self.is_listed = space.count_is_exact and space.count() <= listed
        self._rows = space.all_rows() if self.is_listed else np.zeros((0, len(space.knobs)), dtype=np.int32)
        self._numbers = self.encode(self._rows)
        self._open = np.ones(len(self._rows), dtype=bool)
        self._index = {row.tobytes(): i for i, row in enumerate(self._rows)}

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Numbers for models: the space's columns, then one per hint."""
        columns = [self.space.encode_rows(rows), *(hint.scores(self.space, rows)[:, None] for hint in self.hints)]
        return np.concatenate(columns, axis=1)

    @property
    def n_taken(self) -> int:
        """How many rows were proposed or measured."""
        return len(self._taken)

    def taken_rows(self) -> np.ndarray:
        """The rows that were proposed or measured, in that order."""
        width = len(self.space.knobs)
        return np.frombuffer(b"".join(self._taken), dtype=np.int32).reshape(-1, width) if width else self._rows[:0]

    def take(self, rows: np.ndarray) -> None:
        """Never propose these rows again."""
        for row in rows:
            key = row.tobytes()
            self._taken[key] = None
            if self.is_listed:
                self._open[self._index[key]] = False

    def give_back(self, row: np.ndarray) -> None:
        """The row may be proposed again."""
        key = row.tobytes()
        self._taken.pop(key, None)
        if self.is_listed:
            self._open[self._index[key]] = True

    def is_taken(self, row: np.ndarray) -> bool:
        """Whether the row was proposed or measured before."""
        return row.tobytes() in self._taken

    @property
    def left(self) -> int:
        """How many configurations are left, exact where the count of the space is."""
        return int(self._open.sum()) if self.is_listed else max(0, self.space.count() - len(self._taken))

    def listing(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All rows of a listed space, their numbers, and which of them are open."""
        return self._rows, self._numbers, self._open

    def index_of(self, row: np.ndarray) -> int:
        """Where a row of a listed space stands in `listing`."""
        return self._index[row.tobytes()]

    def reference(self, n: int) -> np.ndarray:
        """Numbers of the whole listed space, or of about `n` random rows: how far each column spreads."""
        return self._numbers if self.is_listed else self.encode(self.space.sample_rows(np.random.default_rng(0), n))

    def random(self, n: int) -> np.ndarray:
        """Up to `n` different open rows, drawn uniformly; fewer only where no more are left."""
        if self.is_listed:
            return np.take(self._rows, self.rng.permutation(np.flatnonzero(self._open))[:n], axis=0)
        found = self.untaken(self.space.sample_rows(self.rng, n))
        for _ in range(10):
            if len(found) >= n:
                break
            more = self.untaken(self.space.sample_rows(self.rng, 4 * n))
            found = _unique(np.concatenate([found, more]))
        if not len(found) and self.left:
            found = self._first_open(n)
        return found[:n]

    def candidates(self, best: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Open rows that a model should judge, and their numbers.

        best  the best rows so far, best first
        Of a listed space all open rows; of another one about `n`: a third drawn at random, the others neighbours of
        the best, neighbours of those, and crossings of two of the best.
        """
        if self.is_listed:
            return self._rows[self._open], self._numbers[self._open]
        rows = [self.space.sample_rows(self.rng, n // 3)]
        near = [self.space.neighbour_rows(row) for row in best[:8]]
        rows += near
        close = np.concatenate([*near, np.zeros((0, self._rows.shape[1]), dtype=np.int32)])
        for row in close[self.rng.permutation(len(close))[:24]]:
            rows.append(self.space.neighbour_rows(row))
        rows.append(self._crossings(best, n // 3))
        found = self.untaken(_unique(np.concatenate(rows)))
        if len(found) > n:
            found = found[self.rng.permutation(len(found))[:n]]
        return found, self.encode(found)

    def _crossings(self, best: np.ndarray, n: int) -> np.ndarray:
        """Valid rows that take each knob from one of two of the best."""
        if len(best) < 2:
            return best[:0]
        mothers, fathers = (best[self.rng.integers(0, len(best), n)] for _ in range(2))
        mixed = np.where(self.rng.random(mothers.shape) < 0.5, mothers, fathers)
        mixed = mixed[mothers[:, 0] == fathers[:, 0]] if self.space.knobs[0].name == "template" else mixed
        return np.compress(self.space.valid_rows(mixed), mixed, axis=0)

    def untaken(self, rows: np.ndarray) -> np.ndarray:
        """Those of the rows that are open."""
        return np.compress([row.tobytes() not in self._taken for row in rows], rows, axis=0)

    def _first_open(self, n: int) -> np.ndarray:
        """The first open rows in the space's order, for when sampling meets only taken ones."""
        configs: list[Config] = []
        for config in self.space:
            if self.space.to_rows([config])[0].tobytes() not in self._taken:
                configs.append(config)
                if len(configs) == n:
                    break
        return self.space.to_rows(configs)


def _unique(rows: np.ndarray) -> np.ndarray:
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def spread(numbers: np.ndarray, n: int, chosen: np.ndarray, rng: np.random.Generator) -> Sequence[int]:
    """Positions of `n` rows that are far from each other and from `chosen` (maximin, one after the other).

    numbers  [candidates, columns];  chosen  [m, columns], may be empty
    """
    if not len(numbers):
        return []
    scale = numbers.std(axis=0)
    scale[scale == 0] = 1.0
    points, others = numbers / scale, chosen / scale
    nearest = np.full(len(points), np.inf)
    for other in others:
        nearest = np.minimum(nearest, ((points - other) ** 2).sum(axis=1))
    picked: list[int] = []
    for _ in range(min(n, len(points))):
        order = rng.random(len(points)) * 1e-9  # among equals, any
        i = int(np.argmax(nearest + order)) if np.isfinite(nearest).all() else int(rng.integers(len(points)))
        picked.append(i)
        nearest = np.minimum(nearest, ((points - points[i]) ** 2).sum(axis=1))
        nearest[picked] = -1.0
    return picked
