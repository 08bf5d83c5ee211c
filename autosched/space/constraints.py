"""What must hold between knobs, and the groups of knobs that constraints tie together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.space.expression import Expression, Value, parse_expression
from autosched.space.knob import Knob

QUICK_TRIES = 2000  # combinations that are drawn to see whether listing is worth a try
TRIES = 20_000  # … to estimate a count: one in ten valid is known to 2 %
RARE = 0.05  # a smaller share is estimated once more, with ten times as many


@dataclass(frozen=True)
class Constraint:
    """An expression that must be true; `because` says why, for messages and documents."""

    expression: Expression
    because: str = ""

    def __str__(self) -> str:
        return self.expression.text


def constraint(text: str, because: str = "") -> Constraint:
    """Read a constraint from text. Raises SpaceError if it is no expression."""
    return Constraint(parse_expression(text), because)


def holds(constraints: Sequence[Constraint], values: Mapping[str, object], n: int) -> np.ndarray:
    """Which of `n` combinations satisfy all constraints; `values` holds an array [n, …] per knob."""
    mask = np.ones(n, dtype=bool)
    for item in constraints:
        mask &= np.broadcast_to(np.asarray(item.expression(values), dtype=bool), n)
    return mask


class Group:
    """Knobs that constraints tie together, independent of all other knobs of their space.

    Its valid combinations are listed where the list never grows beyond `limit` rows while it is built knob by knob;
    otherwise they are found by rejection, and counted by estimate.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        columns: Sequence[int],
        constraints: Sequence[Constraint],
        values: Mapping[str, Value],
        limit: int,
    ):
        self.knobs, self.columns, self.constraints = tuple(knobs), tuple(columns), tuple(constraints)
        self.values, self.limit = values, limit
        self._listed = False
        self._table: np.ndarray | None = None
        self._estimate: int | None = None
        self._members: np.ndarray | None = None  # of a recorded space: the index of every listed row, sorted

    @property
    def table(self) -> np.ndarray | None:
        """All valid combinations as positions, [n, knobs] int32; None where there are too many to list."""
        if not self._listed:
            self._table, self._listed = None if self._is_surely_large() else self._list(), True
        return self._table

    def _is_surely_large(self) -> bool:
        """Whether a quick sample leaves no doubt that there are more than `limit` valid combinations."""
        if self.combinations <= 4 * self.limit:
            return False
        return self._share(QUICK_TRIES) * self.combinations > 4 * self.limit

    def _share(self, tries: int) -> float:
        """The share of random combinations that are valid, found by so many tries."""
        return float(self.valid(self._draw(np.random.default_rng(0), tries)).mean())

    def use_table(self, rows: np.ndarray) -> None:
        """Take the listed combinations as the valid ones (a recorded space)."""
        self._table, self._listed = rows.astype(np.int32), True
        self._members = np.sort(self._index(self._table))

    def _index(self, rows: np.ndarray) -> np.ndarray:
        """One int64 per row, different for different rows."""
        index = np.ravel_multi_index(tuple(rows.T.astype(np.int64)), [len(k.values) for k in self.knobs])
        return np.asarray(index)

    def _list(self) -> np.ndarray | None:
        rows = np.zeros((1, 0), dtype=np.int32)
        bound: set[str] = set()
        waiting = list(self.constraints)
        for position, knob in enumerate(self.knobs):
            size = len(knob.values)
            if len(rows) * size > 4 * self.limit:
                return None
            rows = np.concatenate(
                [np.repeat(rows, size, axis=0), np.tile(np.arange(size, dtype=np.int32), len(rows))[:, None]], axis=1
            )
            bound.add(knob.name)
            ready = [c for c in waiting if c.expression.names <= bound | set(self.values)]
            waiting = [c for c in waiting if c not in ready]
            if ready:
                rows = rows[holds(ready, self._bind(rows, position + 1), len(rows))]
            if len(rows) > self.limit:
                return None
        return rows

    def _bind(self, rows: np.ndarray, n_knobs: int) -> dict[str, Value]:
        return {**self.values, **{k.name: k.array[rows[:, i]] for i, k in enumerate(self.knobs[:n_knobs])}}

    def valid(self, rows: np.ndarray) -> np.ndarray:
        """Which rows of positions satisfy the constraints, [n] bool."""
        if self._members is not None:
            return np.isin(self._index(rows), self._members)
        if not self.constraints:
            return np.ones(len(rows), dtype=bool)
        return holds(self.constraints, self._bind(rows, len(self.knobs)), len(rows))

    @property
    def combinations(self) -> int:
        """How many combinations there are, valid or not."""
        product = 1
        for knob in self.knobs:
            product *= len(knob.values)
        return product

    def count(self) -> tuple[int, bool]:
        """How many valid combinations there are, and whether that is exact."""
        if self.table is not None:
            return len(self.table), True
        if self._estimate is None:
            share = self._share(TRIES)
            if share < RARE:
                share = self._share(10 * TRIES)
            self._estimate = max(1, round(self.combinations * share))
        return self._estimate, False

    def _draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.stack([rng.integers(0, len(k.values), n, dtype=np.int32) for k in self.knobs], axis=1)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Up to `n` valid rows, drawn uniformly with replacement; fewer only where rejection hardly finds any."""
        if self.table is not None:
            return self.table[rng.integers(0, len(self.table), n)] if len(self.table) else self.table
        found: list[np.ndarray] = []
        missing, tries = n, max(1024, 2 * n)
        for _ in range(40):
            rows = self._draw(rng, tries)
            rows = rows[self.valid(rows)][:missing]
            found.append(rows)
            missing -= len(rows)
            if missing <= 0:
                break
            tries = min(4 * tries, 200_000)
        return np.concatenate(found)

    def rows(self) -> Iterator[np.ndarray]:
        """All valid rows, in chunks, in the order of the candidates."""
        if self.table is not None:
            yield self.table
            return
        sizes = [len(k.values) for k in self.knobs]
        total, chunk = self.combinations, 1 << 16
        for start in range(0, total, chunk):
            index = np.arange(start, min(start + chunk, total), dtype=np.int64)
            rows = np.stack(np.unravel_index(index, sizes), axis=1).astype(np.int32)
            yield rows[self.valid(rows)]


def make_groups(
    knobs: Sequence[Knob], constraints: Sequence[Constraint], values: Mapping[str, object], limit: int
) -> tuple[Group, ...]:
    """Divide the knobs into groups such that no constraint reaches across two of them."""
    owner = list(range(len(knobs)))
    position = {knob.name: i for i, knob in enumerate(knobs)}
    for item in constraints:
        tied = {owner[position[name]] for name in item.expression.names if name in position}
        if tied:
            owner = [min(tied) if o in tied else o for o in owner]
    groups = []
    for root in sorted(set(owner)):
        columns = [i for i, o in enumerate(owner) if o == root]
        names = {knobs[i].name for i in columns}
        own = [c for c in constraints if c.expression.names & names]
        groups.append(Group([knobs[i] for i in columns], columns, own, values, limit))
    return tuple(groups)
