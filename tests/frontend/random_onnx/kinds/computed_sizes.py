"""Sizes that a model computes: from shapes, and from data."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.frontend.random_onnx.kinds.arrange import with_size
from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Size, Unfit, Value


def _size_of(m: Maker, x: Value, axis: int) -> Value:
    """One size, as a list of one integer."""
    shape = m.node("Shape", x, shape=(x.rank,), dtype="int64")
    return m.node("Gather", shape, m.ints(axis), shape=(1,), axis=0)


@kind(least_rank=2)
def reshape_by_shape(m: Maker, x: Value) -> None:
    """All behind the first axis made one, by the first size as it is when the model runs."""
    rows = _size_of(m, x, 0)
    wanted = m.node("Concat", rows, m.ints(-1), shape=(2,), axis=0)
    if 0 in x.shape:
        raise Unfit
    behind = x.shape[1]
    for d in x.shape[2:]:
        behind = behind * d
    m.node("Reshape", x, wanted, shape=(x.shape[0], behind))


@kind(least_rank=1)
def expand_to_shape(m: Maker, x: Value) -> None:
    """The first row in place of all."""
    row = m.node("Slice", x, m.ints(0), m.ints(1), m.ints(0), shape=with_size(x.shape, 0, 1))
    m.node("Expand", row, m.node("Shape", x, shape=(x.rank,), dtype="int64"), shape=x.shape)


@kind(("float32", "int64"), least_rank=1)
def positions(m: Maker, x: Value) -> None:
    """0, 1, … added along an axis."""
    axis = m.axis(x)
    size = m.node("Squeeze", _size_of(m, x, axis), m.ints(0), shape=())
    zero, one = (m.constant(v, "int64") for v in (0, 1))
    places = m.node("Range", zero, size, one, shape=(x.shape[axis],))
    if x.is_float:
        places = m.node("Cast", places, dtype=x.dtype, to=TensorProto.FLOAT)
    if behind := range(1, x.rank - axis):
        places = m.node("Unsqueeze", places, m.ints(*behind), shape=(x.shape[axis], *(1 for _ in behind)))
    m.node("Add", x, places)


@kind(least_rank=1)
def filled(m: Maker, x: Value) -> None:
    """A constant in the shape of a value."""
    shape = m.node("Shape", x, shape=(x.rank,), dtype="int64")
    value = numpy_helper.from_array(np.array([3], x.dtype))
    m.node("ConstantOfShape", shape, shape=x.shape, dtype=x.dtype, value=value)


@kind(("float32", "int64", "bool"), least_rank=1, weight=0.5)
def places_of_nonzero(m: Maker, x: Value) -> None:
    m.node("NonZero", m.node("Relu", x) if x.is_float else x, shape=(x.rank, Size(3)), dtype="int64")


@kind(("float32", "int32"), least_rank=1, weight=0.5)
def compress(m: Maker, x: Value) -> None:
    axis = m.axis(x)
    m.node("Compress", x, m.input(x.shape[axis : axis + 1], "bool"), shape=with_size(x.shape, axis, Size(2)), axis=axis)


@kind(("float32", "int64"), least_rank=1, weight=0.5)
def unique(m: Maker, x: Value) -> None:
    rounded = m.node("Round", x) if x.is_float else x
    m.results("Unique", [rounded], [((Size(3),), x.dtype), None, ((Size(3),), "int64")], sorted=1)
