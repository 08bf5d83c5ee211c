"""Reductions, positions of the largest, sorting, running sums."""

from __future__ import annotations

import numpy as np

from tests.frontend.random_onnx.kinds.arrange import with_size
from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import FLOATS, Maker, Shape, Unfit, Value

# fmt: off
OF_FLOATS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceLogSumExp", "ReduceSumSquare",
    "ReduceProd",
)
# fmt: on


def _without(shape: Shape, axes: list[int], keep: int) -> list[int]:
    return [1 if n in axes else d for n, d in enumerate(shape) if keep or n not in axes]


@kind((*FLOATS, "int32", "int64"), least_rank=1, weight=3)
def reduction(m: Maker, x: Value) -> None:
    axes, keep = sorted(m.random.sample(range(x.rank), m.random.randint(1, x.rank))), m.random.randint(0, 1)
    op = m.choose(*OF_FLOATS) if x.is_float else m.choose("ReduceSum", "ReduceMax", "ReduceMin")
    if x.dtype == "float16" and op == "ReduceProd":
        raise Unfit
    m.node(op, x, m.ints(*axes), shape=_without(x.shape, axes, keep), keepdims=keep)


@kind(("float32", "float64", "int8", "uint8", "int32", "int64"), least_rank=1)
def position_of_largest(m: Maker, x: Value) -> None:
    axis, keep = m.axis(x), m.random.randint(0, 1)
    m.node(m.choose("ArgMax", "ArgMin"), x, shape=_without(x.shape, [axis], keep), dtype="int64", axis=axis,
           keepdims=keep, select_last_index=m.random.randint(0, 1))  # fmt: skip


@kind(("float32", "float64", "int64", "int32"), least_rank=1)
def largest(m: Maker, x: Value) -> None:
    axis = m.axis(x, known=True)
    if x.shape[axis] < 1:
        raise Unfit
    count = m.random.randint(1, x.shape[axis])
    shape = with_size(x.shape, axis, count)
    results = [(shape, x.dtype), (shape, "int64")]
    m.results("TopK", [x, m.ints(count)], results, axis=axis, largest=m.random.randint(0, 1))


@kind(("float32", "float64", "int32", "int64"), least_rank=1)
def running_sum(m: Maker, x: Value) -> None:
    axis = m.constant(np.int64(m.axis(x) - m.choose(0, x.rank)))
    m.node("CumSum", x, axis, exclusive=m.random.randint(0, 1), reverse=m.random.randint(0, 1))


@kind(FLOATS, least_rank=1, weight=2)
def softmax(m: Maker, x: Value) -> None:
    m.node(m.choose("Softmax", "LogSoftmax"), x, axis=m.random.randrange(-x.rank, x.rank))


@kind(("float32",), least_rank=1)
def hardmax(m: Maker, x: Value) -> None:
    m.node("Hardmax", x, axis=m.random.randrange(-x.rank, x.rank))
