"""Python values as TVM's runtime holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsInt, TypeAlias

import numpy as np

from autosched.runtime.array import array

# What functions of a virtual machine take and give: an array, a tuple of values, a shape, a number, a text, None.
Value: TypeAlias = Any


class ShapeTuple(tuple[int, ...]):
    """A shape as an argument of a function."""

    def __new__(cls, shape: Iterable[SupportsInt] = ()) -> ShapeTuple:
        return super().__new__(cls, (int(s) for s in shape))


class String(str):
    """A text."""


def convert(value: object) -> Value:
    """The value as functions take it: lists as tuples, NumPy arrays as arrays, the rest as it is."""
    if isinstance(value, np.ndarray):
        return array(value)
    return tuple(map(convert, value)) if isinstance(value, list | tuple) else value
