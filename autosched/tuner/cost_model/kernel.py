"""The covariance of a search space: how alike the times of two configurations are expected to be.

Each knob has a Matern 5/2 kernel over its own columns (log2, power of two within, …) with one length scale a column.
The covariance is a sum of three: their product (everything may interact), their mean (knobs act on their own) and the
mean over pairs of knobs. The last two let few trials say much about configurations that are far from all of them.

As a knob has few candidates, its kernel is a small table; a matrix between thousands of configurations is a product
of one-hot matrices with these tables.

Source: Rasmussen, Williams 2006, section 4.2; Duvenaud, Nickisch, Rasmussen 2011, Additive Gaussian processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

ROOT5 = float(np.sqrt(5.0))
ONE_HOT = 1024  # candidates of all knobs together up to which one-hot matrices are used
PARTS = 3  # product, single knobs, pairs of knobs

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Points:
    """Configurations for the kernel: positions [n, knobs] and further numbers [n, extras], both of scaled columns."""

    codes: np.ndarray
    extras: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: np.ndarray | slice) -> Points:
        return Points(self.codes[index], self.extras[index])


class FitForm(Protocol):
    """Covariances between a few trials, as a function of the parameters."""

    def covariance(self, parameters: Parameters) -> tuple[np.ndarray, Gradient]:
        """Covariances without noise [n, n], and what gives the derivatives of sum(outer * covariance) by the
        logarithms of lengths and amplitudes, for any `outer` [n, n]."""
        ...


@dataclass(frozen=True)
class Parameters:
    """What is fitted, as natural logarithms: a vector and the views of it that have names."""

    vector: np.ndarray
    parts: int = PARTS  # of the covariance, each with a variance

    @property
    def lengths(self) -> np.ndarray:
        """Length scale of each column, in deviations of that column."""
        return np.asarray(np.exp(self.vector[: -self.parts - 1]))

    @property
    def amplitudes(self) -> np.ndarray:
        """Variance of each part."""
        return np.asarray(np.exp(self.vector[-self.parts - 1 : -1]))

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return float(np.exp(self.vector[-1]))


class SpaceKernel:
    """Covariances of configurations.

    tables  per knob the scaled numbers of its candidates [candidates, columns], at least one column
    extras  how many further columns there are (hints), each like a knob of its own
    """

    parts, expected_variance = PARTS, 0.4  # how many, and what each is expected to vary before anything is measured

    def __init__(self, tables: Sequence[np.ndarray], extras: int = 0):
        self.tables, self.extras = tuple(tables), extras
        widths = [table.shape[1] for table in self.tables]
        self.owner = np.repeat(np.arange(len(widths) + extras), [*widths, *[1] * extras])  # of each column: its knob
        self.n_columns, self.n_groups = len(self.owner), len(widths) + extras
        self._ends = np.cumsum([0, *widths])
        self.is_one_hot = sum(len(table) for table in self.tables) <= ONE_HOT

    def fitted_to(self, points: Points) -> FitForm:
        """The covariances between a few trials, for finding parameters."""
        return FitKernel(self, points)

    def numbers(self, points: Points) -> np.ndarray:
        """The scaled columns [n, columns]."""
        blocks = [table[points.codes[:, i]] for i, table in enumerate(self.tables)]
        return np.concatenate([*blocks, points.extras], axis=1)

    def one_hot(self, points: Points, dtype: type[np.floating] = np.float32) -> np.ndarray:
        """A one for the candidate of each knob [n, candidates of all knobs]; empty where they are too many."""
        if not self.is_one_hot:
            return np.zeros((len(points), 0), dtype=dtype)
        sizes = [len(table) for table in self.tables]
        hot = np.zeros((len(points), sum(sizes)), dtype=dtype)
        starts = np.cumsum([0, *sizes])[:-1]
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            hot[np.arange(len(points)), start + points.codes[:, i] % size] = 1.0
        return hot

    def cross(self, parameters: Parameters, a: Points, hot: np.ndarray, b: Points) -> np.ndarray:
        """Covariances [len(a), len(b)]; `hot` is `one_hot(a)`, and its dtype that of the answer."""
        kind = hot.dtype.type
        lengths, amplitudes = parameters.lengths, parameters.amplitudes.astype(kind)
        logs = [self._log_table(i, lengths, b).astype(kind) for i in range(len(self.tables))]
        product, first, squares = self._sums(a, hot, logs, len(b))
        for i in range(self.extras):
            column = len(self.owner) - self.extras + i
            log = _log_matern(np.abs(a.extras[:, i, None] - b.extras[None, :, i]) / lengths[column]).astype(kind)
            value = np.exp(log)
            product, first, squares = product + log, first + value, squares + value * value
        n = self.n_groups
        pairs = (first * first - squares) / kind(max(n * (n - 1), 1))
        covariance: np.ndarray = amplitudes[0] * np.exp(product) + amplitudes[1] / kind(n) * first
        covariance += amplitudes[2] * pairs
        return covariance

    def _log_table(self, knob: int, lengths: np.ndarray, b: Points) -> np.ndarray:
        table, columns = self.tables[knob], slice(self._ends[knob], self._ends[knob + 1])
        apart = np.abs(table[:, None, :] - table[b.codes[:, knob]][None, :, :]) / lengths[columns]
        return np.asarray(_log_matern(apart).sum(axis=-1))

    def _sums(
        self, a: Points, hot: np.ndarray, logs: Sequence[np.ndarray], n: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums over knobs of the logarithm, of the value and of the value's square [len(a), n]."""
        if self.is_one_hot and logs:
            log = np.concatenate(logs)
            value = np.exp(log)
            return hot @ log, hot @ value, hot @ (value * value)
        product, first, squares = (np.zeros((len(a), n), dtype=hot.dtype) for _ in range(3))
        for i, log in enumerate(logs):
            own = log[a.codes[:, i]]
            value = np.exp(own)
            product, first, squares = product + own, first + value, squares + value * value
        return product, first, squares


def _log_matern(distance: np.ndarray) -> np.ndarray:
    """Logarithm of the Matern 5/2 kernel at distances in length scales."""
    r = ROOT5 * distance
    return np.asarray(np.log1p(r + r * r / 3) - r)


class Pairs:
    """The pairs of different trials: what is the same for (i, j) and (j, i) is computed once."""

    def __init__(self, n: int):
        self.n = n
        self.first, self.second = np.triu_indices(n, k=1)

    def __len__(self) -> int:
        return len(self.first)

    def matrix(self, values: np.ndarray, diagonal: float) -> np.ndarray:
        """The symmetric matrix with these values of pairs [n, n]."""
        whole = np.empty((self.n, self.n))
        whole[self.first, self.second] = whole[self.second, self.first] = values
        whole[np.diag_indices(self.n)] = diagonal
        return whole

    def weights(self, outer: np.ndarray) -> np.ndarray:
        """What each pair counts in a sum over the whole symmetric matrix `outer`."""
        return 2 * outer[self.first, self.second]


class FitKernel:
    """The same covariances between a few trials, with their derivatives, for fitting; everything float64.

    Trials share the candidates of a knob: its kernel is computed between candidates, and looked up for pairs of trials.
    """

    def __init__(self, kernel: SpaceKernel, points: Points):
        self.kernel, self.pairs = kernel, Pairs(len(points))
        self._apart: list[np.ndarray] = []  # of each group: distances of what it tells apart [columns, entries]
        self._entry: list[np.ndarray] = []  # and the entry of each pair
        for knob, table in enumerate(kernel.tables):
            known, code = np.unique(points.codes[:, knob], return_inverse=True)
            numbers = table[known].T
            self._apart.append(ROOT5 * np.abs(numbers[:, :, None] - numbers[:, None, :]).reshape(len(numbers), -1))
            self._entry.append(code[self.pairs.first] * len(known) + code[self.pairs.second])
        for extra in points.extras.T:
            self._apart.append(ROOT5 * np.abs(extra[self.pairs.first] - extra[self.pairs.second])[None, :])
            self._entry.append(np.arange(len(self.pairs)))

    def covariance(self, parameters: Parameters) -> tuple[np.ndarray, Gradient]:
        """As `FitForm` has it."""
        n, amplitudes = self.kernel.n_groups, parameters.amplitudes
        value, slopes = self._values(parameters.lengths)
        first = value.sum(axis=0)
        pairs = (first * first - (value * value).sum(axis=0)) / max(n * (n - 1), 1)
        parts = np.stack([value.prod(axis=0), first / n, pairs])

        def gradient(outer: np.ndarray) -> np.ndarray:
            weights = self.pairs.weights(outer)
            shared = (first - value) * (amplitudes[2] * 2 / max(n * (n - 1), 1)) + amplitudes[1] / n
            shared = (shared * value + amplitudes[0] * parts[0]) * weights
            by_lengths = [
                slope @ np.bincount(entry, one, slope.shape[1])
                for slope, entry, one in zip(slopes, self._entry, shared, strict=True)
            ]
            return np.concatenate([*by_lengths, amplitudes * (parts @ weights + np.trace(outer) * self._alone)])

        return self.pairs.matrix(amplitudes @ parts, float(amplitudes @ self._alone)), gradient

    @property
    def _alone(self) -> np.ndarray:
        """The parts at distance 0: there are no pairs of one knob."""
        return np.array([1.0, 1.0, float(self.kernel.n_groups > 1)])

    def _values(self, lengths: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Each group's kernel for all pairs [groups, pairs], and per group the derivative of its logarithm by the
        logarithms of its lengths [columns, entries]."""
        values, slopes = np.empty((len(self._apart), len(self.pairs))), []
        ends = np.cumsum([len(apart) for apart in self._apart])[:-1]
        for i, (apart, own) in enumerate(zip(self._apart, np.split(lengths, ends), strict=True)):
            r = apart / own[:, None]
            polynomial = 1 + r + r * r / 3
            slopes.append(r * r * (1 + r) / (3 * polynomial))
            values[i] = np.exp((np.log(polynomial) - r).sum(axis=0))[self._entry[i]]
        return values, slopes
