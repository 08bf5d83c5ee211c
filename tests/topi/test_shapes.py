"""Index arithmetic of reshapes, and axes."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.errors import ShapeError
from autosched.ir.node import preorder
from autosched.te import create_prim_func
from autosched.tir import FloorDiv, FloorMod
from autosched.tir.evaluate import evaluate


@pytest.mark.parametrize(
    ("old", "new", "divisions"),
    [
        ((2, 3, 4), (2, 12), 2),  # the last two joined: j // 4 and j % 4
        ((2, 12), (2, 3, 4), 0),  # split: j * 4 + k
        ((6,), (1, 6, 1), 0),
        ((2, 1, 5), (2, 5), 0),
        ((4, 6), (8, 3), 2),
    ],
)
def test_reshape_is_simplified(old: tuple[int, ...], new: tuple[int, ...], divisions: int) -> None:
    x = te.placeholder(old, name="x")
    func = create_prim_func([x, topi.reshape(x, new)], "int64")
    count = sum(isinstance(n, FloorDiv | FloorMod) for n in preorder(func.root.body) if not isinstance(n, type(None)))
    reads = 2  # the value and the declared region
    assert count <= divisions * reads
    data = np.arange(np.prod(old), dtype="f").reshape(old)
    np.testing.assert_array_equal(evaluate(func, [data])[0], data.reshape(new))


@pytest.mark.parametrize("axis", [2, -1, [-1]])
def test_one_axis_counts_from_either_end(axis):
    x = te.placeholder((3, 4, 5), name="x")
    for made, shape in [
        (topi.argmax(x, axis), (3, 4)),
        (topi.argmin(x, axis, keepdims=True), (3, 4, 1)),
        (topi.softmax(x, axis), (3, 4, 5)),
        (topi.concatenate([x, x], axis), (3, 4, 10)),
    ]:
        assert tuple(map(int, made.shape)) == shape


@pytest.mark.parametrize("axis", [3, -4, [0, 1]])
@pytest.mark.parametrize("f", [topi.argmax, topi.softmax, topi.log_softmax, lambda x, a: topi.concatenate([x, x], a)])
def test_axes_that_are_not_there(f, axis):
    with pytest.raises(ShapeError, match="ax"):
        f(te.placeholder((3, 4, 5), name="x"), axis)


def test_dimensions_of_one():
    x = te.placeholder((1, 4, 1), name="x")
    assert [tuple(map(int, t.shape)) for t in (topi.squeeze(x), topi.squeeze(x, -1), topi.squeeze(x, [0, 2]))] == [
        (4,), (1, 4), (4,)
    ]  # fmt: skip
    with pytest.raises(ShapeError, match="dimension 1 has 4 elements"):
        topi.squeeze(x, 1)
    shapes = [tuple(map(int, topi.expand_dims(x, a).shape)) for a in (-1, 0, [0, 4], [-1])]
    assert shapes == [(1, 4, 1, 1), (1, 1, 4, 1), (1, 1, 4, 1, 1), (1, 4, 1, 1)]
    with pytest.raises(ShapeError, match="axis 4 of a result of 4 dimensions"):
        topi.expand_dims(x, 4)
