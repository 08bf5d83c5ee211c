"""Products of queries, keys and values that are one, each columns of it."""

import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.expr import Tuple, TupleGetItem
from autosched.relax.transform import DeadCodeElimination, SplitProducts
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()


def _split(build) -> list[str]:
    before = graph({"x": (2, 7, 5)}, build)
    after = DeadCodeElimination()(SplitProducts()(before))
    assert_same_results(before, after)
    return calls(after)


def _turned(bb, x, dims=(3, 2, 32), axes=(2, 0, 3, 1, 4), bias=True):
    product = bb.emit(op.matmul(x, W(5, 192)))
    if bias:
        product = bb.emit(op.add(W(192), product))
    return bb.emit(op.permute_dims(bb.emit(op.reshape(product, (2, 7, *dims))), axes))


def _parts(bb, x, cut, axis, n=3):
    found = bb.emit(op.split(x, cut, axis=axis))
    return Tuple(tuple(bb.emit(op.exp(bb.emit(TupleGetItem(found, i)))) for i in range(n)))


@pytest.mark.parametrize(
    ("dims", "axes", "axis"),
    [((3, 2, 32), (2, 0, 3, 1, 4), 0), ((2, 3, 32), (0, 2, 1, 3, 4), 3), ((3, 64), (0, 2, 1, 3), -3)],
)
@pytest.mark.parametrize("bias", [True, False])
def test_splits(dims, axes, axis, bias):
    if axes[axis] != 2 + dims.index(3):
        axis = axes.index(2 + dims.index(3))
    names = _split(lambda bb, x: _parts(bb, _turned(bb, x, dims, axes, bias), 3, axis))
    assert names.count("matmul") == 3 and "split" not in names


@pytest.mark.parametrize("mode", ["raise", "clip", "nan"])
def test_takes(mode):
    def build(bb, x):
        turned = _turned(bb, x)
        parts = (bb.emit(op.take(turned, relax.const(np.int64(i)), axis=0, mode=mode)) for i in (0, 1, -1))
        return Tuple(tuple(bb.emit(op.exp(p)) for p in parts))

    names = _split(build)
    assert names.count("matmul") == 3 and names.count("take") == (mode != "raise")


def test_others_stay():
    def read_twice(bb, x):
        turned = _turned(bb, x)
        return Tuple((*_parts(bb, turned, 3, 0).fields, bb.emit(op.exp(turned))))

    def taken_and_read(bb, x):
        turned = _turned(bb, x)
        return Tuple((bb.emit(op.take(turned, relax.const(np.int64(1)), axis=0)), bb.emit(op.exp(turned))))

    others = (
        read_twice, taken_and_read,
        lambda bb, x: _parts(bb, _turned(bb, x), [1], 0, 2),  # parts of several
        lambda bb, x: _parts(bb, _turned(bb, x, axes=(2, 0, 3, 4, 1)), 3, 0),  # columns that are moved one by one
        lambda bb, x: _parts(bb, _turned(bb, x, (3, 16, 4), (1, 0, 2, 3, 4)), 7, 0, 7),  # rows
        lambda bb, x: _parts(bb, _turned(bb, x, (12, 4, 4)), 12, 0, 12),  # few columns each
    )  # fmt: skip
    assert all(_split(build).count("matmul") == 1 for build in others)
