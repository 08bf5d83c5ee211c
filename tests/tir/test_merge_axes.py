"""Axes that all accesses have side by side become one; others stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autosched import te
from autosched.te import Tensor
from autosched.tir import PrimFunc
from autosched.tir.expr import Var, maximum
from autosched.tir.function import specialize
from autosched.tir.interpret import interpret
from autosched.tir.merge_axes import merged_axes

H, W = Var("h", "int64"), Var("w", "int64")
VALUES = {H: 3, W: 5}


def func(body: Callable[[Tensor], Tensor]) -> PrimFunc:
    x = te.placeholder((2, H, W, 4), name="x")
    return te.create_prim_func([x, body(x)])


def test_an_image_is_one_line() -> None:
    one = func(lambda x: te.compute((8, H, W), lambda c, i, j: maximum(x[c // 4, i, j, c % 4], 0.0), name="y"))
    merged = merged_axes(one)
    assert [len(b.shape) for b in merged.buffers] == [3, 2]
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype("float32")
    found = np.zeros((8, 15), "float32")
    interpret(specialize(merged, VALUES), [x.reshape(2, 15, 4), found])
    np.testing.assert_array_equal(found, np.maximum(x.transpose(0, 3, 1, 2).reshape(8, 15), 0))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: te.compute((2, W, H), lambda n, j, i: x[n, i, j, 0], name="turned"),
        lambda x: te.compute((2, H - 1, W - 1), lambda n, i, j: x[n, i, j, 0], name="a_corner"),
        lambda x: te.compute((2, H, W), lambda n, i, j: x[1 - n, i, j, 0] + j, name="by_position"),
        lambda x: te.compute((2, H, W), lambda n, i, j: x[1 - n, i, j, 0] + x[n, 0, j, 1], name="by_row"),
    ],
)
def test_axes_that_stay(body: Callable[[Tensor], Tensor]) -> None:
    one = func(body)
    assert merged_axes(one) is one
