"""Operators of ONNX in NumPy, for nodes that libraries compute: those that models have."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.frontend.onnx.library import LibraryCall, library

Array = np.ndarray[Any, Any]


@library("NonZero")
def non_zero(call: LibraryCall, x: Array) -> Array:
    """[rank, count]: the positions of what is not zero; a scalar has rank 0."""
    return np.stack(np.nonzero(x)).astype(np.int64) if x.ndim else np.zeros((0, int(bool(x))), np.int64)


@library("Compress")
def compress(call: LibraryCall, x: Array, condition: Array) -> Array:
    """The elements, or slices along an axis, where a condition holds."""
    axis = call.attributes.get("axis")
    return np.compress(condition, x, axis=axis)


@library("Shape")
def shape(call: LibraryCall, x: Array) -> Array:
    """A part of the shape."""
    start, end = call.attributes.get("start", 0), call.attributes.get("end", x.ndim)
    return np.asarray(x.shape[slice(start, end)], np.int64)


@library("Size")
def size(call: LibraryCall, x: Array) -> Array:
    """The number of elements."""
    return np.asarray(x.size, np.int64)


@library("Identity")
def identity(call: LibraryCall, x: Any) -> Any:
    """The value itself, a sequence or nothing too."""
    return (x,)
