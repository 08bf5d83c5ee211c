"""Extremely randomised trees, grown and evaluated by functions that Numba compiles once a machine.

Source: Geurts, Ernst, Wehenkel 2006, Extremely randomized trees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


class ExtraTrees:
    """Trees that split at random places of randomly drawn columns, the best of them; leaves hold one target each.

    n_trees      how many
    share        of the columns, drawn anew for each split
    bootstrap    whether each tree sees a sample drawn with repetition; otherwise all see everything
    """

    def __init__(self, n_trees: int, share: float, *, bootstrap: bool = False, seed: int = 0):
        self.n_trees, self.share, self.bootstrap, self.seed = n_trees, share, bootstrap, seed

    def fit(self, numbers: np.ndarray, target: np.ndarray) -> ExtraTrees:
        """Grow the trees for rows [n, columns] and their targets [n]."""
        n, columns = numbers.shape
        random = np.random.default_rng(self.seed)
        size = (self.n_trees, n)
        self._rows = random.integers(n, size=size) if self.bootstrap else np.tile(np.arange(n), (self.n_trees, 1))
        nodes = (self.n_trees, max(2 * n - 1, 1))
        self._columns, self._below = np.full(nodes, -1, np.int32), np.zeros(nodes, np.int32)
        self._limits, self._values = np.zeros(nodes, np.float32), np.zeros(nodes)
        seeds = random.integers(1 << 63, size=self.n_trees, dtype=np.uint64)
        grow, _ = _compiled()
        tried = max(1, int(self.share * columns))
        inputs = np.ascontiguousarray(numbers, np.float32), np.ascontiguousarray(target, np.float64)
        grow(*inputs, self._rows.copy(), seeds, tried, self._columns, self._limits, self._below, self._values)
        return self

    def predict_each(self, numbers: np.ndarray) -> np.ndarray:
        """What each tree says of rows [n, columns]; [trees, n]."""
        result = np.empty((self.n_trees, len(numbers)))
        _, predict = _compiled()
        rows = np.ascontiguousarray(numbers, np.float32)
        predict(rows, self._columns, self._limits, self._below, self._values, result)
        return result

    def predict(self, numbers: np.ndarray) -> np.ndarray:
        """The mean of the trees for rows [n, columns]; [n]."""
        return np.asarray(self.predict_each(numbers).mean(axis=0))

    def predict_unseen(self, numbers: np.ndarray) -> np.ndarray:
        """For the rows that the trees were grown on, the mean of those that did not see the row; [n].

        NaN where each tree saw it.
        """
        unseen = np.ones((self.n_trees, len(numbers)), bool)
        np.put_along_axis(unseen, self._rows, False, axis=1)
        count = unseen.sum(axis=0)
        total = np.where(unseen, self.predict_each(numbers), 0.0).sum(axis=0)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _grow(
    numbers: np.ndarray,
    target: np.ndarray,
    rows: np.ndarray,
    seeds: np.ndarray,
    tried: int,
    columns: np.ndarray,
    limits: np.ndarray,
    below: np.ndarray,
    values: np.ndarray,
) -> None:
    """Grow a tree for each row of `rows`; the nodes below node i are below[i] and below[i] + 1, 0 for a leaf."""
    n_columns, n = numbers.shape[1], rows.shape[1]
    order = np.arange(n_columns)
    begins, ends, nodes = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
    for tree in range(rows.shape[0]):
        state, mine = seeds[tree], rows[tree]
        begins[0], ends[0], nodes[0] = 0, n, 0
        waiting, used = 1, 1
        while waiting > 0:
            waiting -= 1
            begin, end, node = begins[waiting], ends[waiting], nodes[waiting]
            total, least, most = 0.0, np.inf, -np.inf
            for i in range(begin, end):
                value = target[mine[i]]
                total += value
                least, most = min(least, value), max(most, value)
            values[tree, node] = total / (end - begin)
            if not least < most:
                continue
            best, best_column, best_limit = -np.inf, -1, np.float32(0)
            left_over, done = n_columns, 0
            while left_over > 0 and done < tried:
                state += _STEP
                word = (state ^ (state >> _SHIFTS[0])) * _FIRST
                word = (word ^ (word >> _SHIFTS[1])) * _SECOND
                chance = np.float64((word ^ (word >> _SHIFTS[2])) >> _SHIFTS[3]) / 9007199254740992.0
                at = min(int(chance * left_over), left_over - 1)
                column = order[at]
                left_over -= 1
                order[at], order[left_over] = order[left_over], column
                low = high = numbers[mine[begin], column]
                for i in range(begin + 1, end):
                    number = numbers[mine[i], column]
                    low, high = min(low, number), max(high, number)
                if not low < high:
                    continue
                done += 1
                state += _STEP
                word = (state ^ (state >> _SHIFTS[0])) * _FIRST
                word = (word ^ (word >> _SHIFTS[1])) * _SECOND
                chance = np.float64((word ^ (word >> _SHIFTS[2])) >> _SHIFTS[3]) / 9007199254740992.0
                limit = np.float32(low + chance * (high - low))
                if not limit < high:
                    limit = low
                left_sum, left_n = 0.0, 0
                for i in range(begin, end):
                    if numbers[mine[i], column] <= limit:
                        left_sum += target[mine[i]]
                        left_n += 1
                right_sum, right_n = total - left_sum, end - begin - left_n
                gain = left_sum * left_sum / left_n + right_sum * right_sum / right_n
                if gain > best:
                    best, best_column, best_limit = gain, column, limit
            if best_column < 0:
                continue
            middle, last = begin, end - 1
            while middle <= last:
                if numbers[mine[middle], best_column] <= best_limit:
                    middle += 1
                else:
                    mine[middle], mine[last] = mine[last], mine[middle]
                    last -= 1
            columns[tree, node], limits[tree, node], below[tree, node] = best_column, best_limit, used
            begins[waiting], ends[waiting], nodes[waiting] = begin, middle, used
            begins[waiting + 1], ends[waiting + 1], nodes[waiting + 1] = middle, end, used + 1
            waiting, used = waiting + 2, used + 2


def _predict(
    numbers: np.ndarray, columns: np.ndarray, limits: np.ndarray, below: np.ndarray, values: np.ndarray,
    result: np.ndarray,
) -> None:  # fmt: skip
    for row in range(result.shape[1]):  # a row stays in the cache meanwhile
        for tree in range(result.shape[0]):
            node = 0
            while below[tree, node] > 0:
                is_right = not numbers[row, columns[tree, node]] <= limits[tree, node]
                node = below[tree, node] + int(is_right)
            result[tree, row] = values[tree, node]


@functools.cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    import numba

    return numba.njit(cache=True, nogil=True)(_grow), numba.njit(cache=True, nogil=True)(_predict)
