"""Elements at positions."""

from __future__ import annotations

import numpy as np

from tests.frontend.random_onnx.kinds.arrange import with_size
from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Size, Unfit, Value

ADDED = ("float32", "int32", "int64")


@kind(least_rank=1, weight=2)
def gather(m: Maker, x: Value) -> None:
    axis = m.axis(x)
    size, dtype = x.shape[axis], m.choose("int64", "int32")
    if size < 1:
        raise Unfit
    shape = tuple(m.size() for _ in range(m.random.randint(0, 2)))
    if m.chance(0.5) and not isinstance(size, Size):
        places = m.constant(m.numbers.integers(-size, size, shape), dtype)
    else:
        places = m.input(shape, dtype, -size if not isinstance(size, Size) else 0, size)
    m.node("Gather", x, places, shape=(*x.shape[:axis], *shape, *x.shape[axis + 1 :]), axis=axis)


@kind(least_rank=1)
def gather_elements(m: Maker, x: Value) -> None:
    axis = m.axis(x)
    if x.shape[axis] < 1:
        raise Unfit
    shape = with_size(x.shape, axis, m.size())
    m.node("GatherElements", x, m.input(shape, "int64", 0, x.shape[axis]), shape=shape, axis=axis)


@kind(("float32", "float16", "int32", "int64", "bool"), least_rank=1)
def gather_nd(m: Maker, x: Value) -> None:
    batch = m.random.randint(0, min(1, x.rank - 1))
    n = m.random.randint(1, x.rank - batch)
    indexed = x.shape[batch : batch + n]
    if 0 in indexed or any(isinstance(d, Size) for d in indexed):
        raise Unfit
    shape = (*x.shape[:batch], *(m.size() for _ in range(m.random.randint(0, 1))))
    if any(isinstance(d, Size) for d in shape):
        raise Unfit
    places = np.stack([m.numbers.integers(-d, d, shape) for d in indexed], -1)
    m.node("GatherND", x, m.constant(places), shape=(*shape, *x.shape[batch + n :]), batch_dims=batch)


@kind(ADDED, least_rank=1)
def scatter_elements(m: Maker, x: Value) -> None:
    """No place twice, as the order of updates is open."""
    if not x.is_known or 0 in x.shape:
        raise Unfit
    axis = m.axis(x)
    count = m.random.randint(1, x.shape[axis])
    places = np.argsort(m.numbers.random(x.shape), axis).take(range(count), axis)
    how = m.choose("none", "add", "mul", "max", "min")
    m.node("ScatterElements", x, m.constant(places, "int64"), m.other(places.shape, x.dtype), axis=axis, reduction=how)


@kind(ADDED, least_rank=1)
def scatter_nd(m: Maker, x: Value) -> None:
    n = m.random.randint(1, x.rank)
    indexed = x.shape[:n]
    if 0 in indexed or any(isinstance(d, Size) for d in indexed):
        raise Unfit
    total = int(np.prod(indexed))
    count = m.random.randint(1, min(total, 50))
    places = np.stack(np.unravel_index(m.numbers.permutation(total)[:count], indexed), -1)
    how = m.choose("none", "add", "mul", "max", "min")
    m.node("ScatterND", x, m.constant(places), m.other((count, *x.shape[n:]), x.dtype), reduction=how)


@kind(("int64",), least_rank=1, most_rank=3)
def one_hot(m: Maker, x: Value) -> None:
    axis = m.random.randint(0, x.rank)
    shape = (*x.shape[:axis], 7, *x.shape[axis:])
    values = m.constant([0, 1], m.choose("float32", "int64"))
    m.node("OneHot", x, m.constant(7, "int64"), values, shape=shape, dtype=values.dtype, axis=axis)
