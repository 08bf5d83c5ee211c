"""TVM's key-value cache of a decoder: rows that are appended one after the other, in memory that doubles when full."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.errors import InvalidValueError, ShapeError
from autosched.runtime.array import NDArray
from autosched.runtime.ndarray import array


class AttentionKVCache:
    """The rows, and how many there are."""

    def __init__(self, first: NDArray, shape: Sequence[int], count: int):
        if not 0 <= count <= shape[0]:
            raise InvalidValueError(f"a cache of {shape[0]} rows cannot begin with {count}")
        self.rows = np.zeros(tuple(shape), str(first.dtype))
        self.rows[:count] = first.numpy()[:count]
        self.count = count

    def append(self, new: NDArray) -> AttentionKVCache:
        """Put rows behind the last. Raises ShapeError for rows of another shape."""
        rows = new.numpy()
        if rows.shape[1:] != self.rows.shape[1:]:
            raise ShapeError(f"rows of shape {rows.shape[1:]} do not fit a cache of rows {self.rows.shape[1:]}")
        end = self.count + len(rows)
        if end > len(self.rows):
            wider = np.zeros((max(end, 2 * len(self.rows)), *self.rows.shape[1:]), self.rows.dtype)
            wider[: self.count] = self.rows[: self.count]
            self.rows = wider
        self.rows[self.count : end] = rows
        self.count = end
        return self

    def view(self, shape: Sequence[int]) -> NDArray:
        """All rows. Raises ShapeError unless there are as many as `shape` says."""
        if tuple(shape) != (self.count, *self.rows.shape[1:]):
            raise ShapeError(f"the cache holds {(self.count, *self.rows.shape[1:])}, not {tuple(shape)}")
        return array(self.rows[: self.count])

    def clear(self) -> AttentionKVCache:
        """Forget all rows."""
        self.count = 0
        return self
