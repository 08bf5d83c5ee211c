"""What all search strategies share, so that each file holds only its own idea of what to try next.

A search sees configurations and outcomes, nothing of kernels. It never proposes a configuration twice, proposes the
space's default first, takes trials that it did not ask for (from records), and ends when the space is used up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from autosched.space import Config, ConfigSpace
from autosched.task import Status, Trial
from autosched.tuner.cost_model import Hint
from autosched.tuner.search.pool import Pool, spread

START = 16  # configurations that are tried before a model is asked
SPREAD_FROM = 1000  # random configurations from which those that lie far apart are taken
HINTED = 4  # more than these: the best by the records of others, where there are such
LOOKED_AT = 6  # the best by such a record that it looks closer at: scheduling one takes 10 to 150 ms
LEAST_GAIN = 0.02  # of the time for each e-fold of trials: luck that is left when nothing improves any more
CHANCES = 2  # how often a configuration is proposed whose trial was lost


class Search(Protocol):
    """A strategy: `ask` gives configurations, `tell` takes their outcomes."""

    def ask(self, n: int) -> Sequence[Config]:
        """Up to `n` new configurations; none when the space is exhausted."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from trials, also from those that were not asked for."""
        ...

    def expected_gain(self, n: int) -> float:
        """The share of the best time that `n` more trials are expected to save, from 0 to 1."""
        ...


class History:
    """The trials so far as arrays: rows of positions, numbers for models, natural logarithm of times (nan: failed)."""

    def __init__(self, pool: Pool):
        self.rows = np.zeros((0, len(pool.space.knobs)), dtype=np.int32)
        self.numbers = pool.encode(self.rows)
        self.log_s = np.zeros(0)
        self._pool = pool

    def add(self, rows: np.ndarray, log_s: Sequence[float]) -> None:
        """Append trials."""
        self.rows = np.concatenate([self.rows, rows])
        self.numbers = np.concatenate([self.numbers, self._pool.encode(rows)])
        self.log_s = np.concatenate([self.log_s, np.asarray(log_s, dtype=float)])

    def __len__(self) -> int:
        return len(self.log_s)

    @property
    def ok(self) -> np.ndarray:
        """Which trials have a time, [n] bool."""
        return np.isfinite(self.log_s)

    @property
    def best_log_s(self) -> float:
        """The best logarithmic time; infinite where nothing was measured yet."""
        return float(np.min(self.log_s[self.ok], initial=np.inf))

    def best_rows(self, n: int) -> np.ndarray:
        """The `n` fastest rows, fastest first."""
        ok = np.flatnonzero(self.ok)
        return self.rows[ok[np.argsort(self.log_s[ok], kind="stable")[:n]]]


class BaseSearch(ABC):
    """A strategy by its `propose`; the rest of the interface follows.

    space  where it searches;   seed  equal seeds and equal answers give equal proposals
    start  how many configurations are spread over the space before `propose` is asked, beside the best by the hints
    hints  what the records of others say: columns for the models and first samples, never an order to follow
    """

    name = ""

    def __init__(self, space: ConfigSpace, *, seed: int = 0, start: int = START, hints: Sequence[Hint] = ()):
        self.space, self.hints = space, tuple(hint for hint in hints if hint.is_telling)
        self.start = HINTED + self.spread_beside(start) if self.hints else start
        self.rng = np.random.default_rng(seed)
        self.pool = Pool(space, self.rng, hints=self.hints)
        self.history = History(self.pool)
        self._hinted = HINTED if self.hints else 0
        self._waiting = space.to_rows(space.starting_points() if space.count() else ())
        self._asked: dict[str, int] = {}  # in flight or lost: how often it was proposed
        self._latest: dict[str, np.ndarray] = {}  # what was proposed last and is in flight: its row

    # ---- the interface

    def ask(self, n: int) -> Sequence[Config]:
        """Up to `n` configurations that were neither proposed nor reported before; none when the space is exhausted."""
        rows = self._next_rows(max(n, 0))
        configs = self.space.to_configs(rows)
        for config in configs:
            self._asked[config.key] = self._asked.get(config.key, 0) + 1
        self._latest = {config.key: row for config, row in zip(configs, rows, strict=True)}
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from trials; those of configurations that are not in the space, or known already, are passed over."""
        rows, log_s = [], []
        for trial in trials:
            if trial.config not in self.space:
                continue
            row = self.space.to_rows([trial.config])[0]
            self._latest.pop(trial.config.key, None)
            if trial.measurement.status is Status.LOST:
                self._lose(trial.config, row)
                continue
            if self.pool.is_taken(row) and trial.config.key not in self._asked:
                continue
            self._asked.pop(trial.config.key, None)
            self.pool.take(row[None, :])
            rows.append(row)
            log_s.append(float(np.log(trial.median_s)) if trial.is_ok else np.nan)
        if rows:
            self.history.add(np.array(rows), log_s)
            self.learn()

    def expected_gain(self, n: int) -> float:
        """The share of the best time that `n` more trials are expected to save, from 0 to 1.

        The default looks at the improvement so far: with m trials behind, n more bring about log(1 + n/m) new bests,
        each as large as the latest ones were on average; 2 % per e-fold of trials where nothing improved lately.
        """
        log_s = self.history.log_s[self.history.ok]
        left = min(n, self.pool.left)
        if left == 0:
            return 0.0
        if len(log_s) < 4:
            return 0.3
        best = np.minimum.accumulate(log_s)
        steps = -np.diff(best)
        half = len(best) // 2
        recent = float(steps[half:].sum()) / np.log(len(best) / max(half, 1))  # gain per e-fold of trials
        recent = max(recent, LEAST_GAIN)
        return float(1 - np.exp(-min(recent * np.log1p(left / len(best)), 3.0)))

    # ---- for strategies

    @property
    def in_flight(self) -> np.ndarray:
        """Rows that were proposed last and whose outcome is not known yet: they are measured whatever comes now."""
        return np.array(list(self._latest.values()), dtype=np.int32).reshape(-1, len(self.space.knobs))

    def spread_beside(self, start: int) -> int:
        """How many of the `start` configurations are spread although hints say which are good."""
        return start

    @abstractmethod
    def propose(self, n: int) -> np.ndarray:
        """Up to `n` open rows of the pool, the most promising first; what is missing is drawn at random."""

    def learn(self) -> None:  # noqa: B027 - a strategy without a model has nothing to do
        """Called after new trials are in the history."""

    # ---- inside

    def _next_rows(self, n: int) -> np.ndarray:
        parts = [np.zeros((0, len(self.space.knobs)), dtype=np.int32)]
        while len(self._waiting) and n > 0:  # defaults first
            row, self._waiting = self._waiting[:1], self._waiting[1:]
            if not self.pool.is_taken(row[0]):
                n -= self._accept(row, n, parts)
        if n > 0 and self._hinted and self.pool.n_taken < self.start:
            found = self._accept(self._best_by_hints(min(n, self._hinted)), n, parts)
            n, self._hinted = n - found, self._hinted - found
        if n > 0 and self.pool.n_taken < self.start:
            n -= self._accept(self._spread(min(n, self.start - self.pool.n_taken)), n, parts)
        if n > 0 and self.pool.left:
            n -= self._accept(self.propose(n), n, parts)
        if n > 0 and self.pool.left:
            self._accept(self.pool.random(n), n, parts)
        return np.concatenate(parts)

    def _accept(self, rows: np.ndarray, n: int, parts: list[np.ndarray]) -> int:
        """Take the rows that are open out of the pool into `parts`, and give their number."""
        keep: list[np.ndarray] = []
        for row in rows:
            if len(keep) < n and not self.pool.is_taken(row):
                self.pool.take(row[None, :])
                keep.append(row)
        if keep:
            parts.append(np.array(keep))
        return len(keep)

    def _spread(self, n: int) -> np.ndarray:
        """`n` open rows far from each other and from all that were tried; of those of a random half, at most 1000."""
        rows = self.pool.random(min(SPREAD_FROM, max(n, self.pool.left // 2)))
        known = self.space.encode_rows(self.pool.taken_rows())
        return rows[list(spread(self.space.encode_rows(rows), n, known, self.rng))]

    def _best_by_hints(self, n: int) -> np.ndarray:
        """`n` open rows that the hints in turn call the fastest."""
        rows, numbers = self.pool.candidates(self.history.best_rows(8), 4000)
        columns = numbers[:, len(self.space.columns) :].T
        tops = [np.argsort(column, kind="stable")[:LOOKED_AT] for column in columns]
        closer = [hint.closer(self.space, rows[top]) for hint, top in zip(self.hints, tops, strict=True)]
        orders = [top[np.argsort(score, kind="stable")][:n] for top, score in zip(tops, closer, strict=True)]
        merged = dict.fromkeys(int(i) for turn in zip(*orders, strict=True) for i in turn)
        return np.take(rows, list(merged)[:n], axis=0)

    def _lose(self, config: Config, row: np.ndarray) -> None:
        """A lost trial says nothing: the configuration may come again, but not for ever."""
        if 0 < self._asked.get(config.key, 0) < CHANCES:
            self.pool.give_back(row)
