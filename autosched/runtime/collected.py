"""What the steps of a loop have collected: values of one shape, which become one array at its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.errors import ShapeError
from autosched.runtime.array import NDArray, array


class Collected:
    """Values in order."""

    def __init__(self) -> None:
        self._values: list[NDArray] = []

    def append(self, value: NDArray) -> Collected:
        """Add a value; gives the collection itself, so that what follows is computed after it."""
        self._values.append(value)
        return self

    def stacked(self, shape: Sequence[int], dtype: str) -> NDArray:
        """All values along a new first axis; `shape` and `dtype` are those of each where there are none.

        Raises ShapeError for values of several shapes.
        """
        if not self._values:
            return array(np.zeros((0, *shape), dtype))
        if len(shapes := {value.shape for value in self._values}) > 1:
            raise ShapeError(f"the steps of a loop give parts of the shapes {sorted(map(list, shapes))}")
        return array(np.stack([value.view() for value in self._values]))
