"""Python values as TVM's runtime holds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.runtime.array import array


class ShapeTuple(tuple[int, ...]):
    """A shape as an argument of a function."""

    def __new__(cls, shape: Any = ()) -> ShapeTuple:
        return super().__new__(cls, (int(s) for s in shape))


class String(str):
    """A text."""


def convert(value: object) -> Any:
    """The value as functions take it: lists as tuples, NumPy arrays as arrays, the rest as it is."""
    if isinstance(value, np.ndarray):
        return array(value)
    return tuple(map(convert, value)) if isinstance(value, list | tuple) else value
