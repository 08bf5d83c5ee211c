"""Positions of extreme elements in vectors: the first of equals, of NaN where there is one, of infinities alone."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.target import Target
from autosched.templates import default_config
from autosched.templates.classify import blocks_of, is_reduction
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.tir.expr import select
from autosched.topi import reduction
from tests.spread import spread

TARGET = Target("cpu")
FIND = ["argmax", "argmin"]


def positions(values: np.ndarray, find: str, axis: int, keepdims: bool = False) -> np.ndarray:
    """By a kernel, on two threads."""
    x = te.placeholder(values.shape, str(values.dtype), name="x")
    func = te.create_prim_func([x, getattr(reduction, find)(x, axis, keepdims)])
    assert default_config(func, TARGET).template in ("rows", "short_rows", "columns")
    out = np.full(func.buffers[1].const_shape(), 99, "int64")
    autosched.build(func, threads=2)(values, out)
    return out


@spread(
    4,
    "shape, axis",
    [((4, 100), 1), ((16, 5), 1), ((25, 70), 0), ((3, 9, 4, 5), 1), ((1, 40000), 1), ((3000, 20), 0), ((5, 1), 1),
     ((4, 1, 6), 1)],
)  # fmt: skip
@pytest.mark.parametrize("find", FIND)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
def test_first_of_equals(shape, axis, find, dtype) -> None:
    values = np.random.default_rng(0).integers(0, 5, shape).astype(dtype)
    np.testing.assert_array_equal(positions(values, find, axis), getattr(values, find)(axis))


@pytest.mark.parametrize("find", FIND)
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinities(find, axis) -> None:
    values = np.random.default_rng(0).standard_normal((37, 70)).astype("float32")
    values[5:9, 3:60] = np.nan
    values[20] = values[:, 65] = -np.inf
    values[21] = values[:, 66] = np.inf
    values[22] = values[:, 67] = np.nan
    values[30, 2], values[30, 1] = 0.0, -0.0
    np.testing.assert_array_equal(positions(values, find, axis, True), getattr(values, find)(axis, keepdims=True))


@pytest.mark.parametrize("fill", [-np.inf, np.inf, np.nan, 0.0])
def test_nothing_but_one_value(fill) -> None:
    values = np.full((3, 40), fill, "float32")
    for find in FIND:
        assert not positions(values, find, 1).any()
        assert not positions(values, find, 0).any()


def test_pairs_of_another_rule_stay_as_they_are() -> None:
    """The last of equals wins; both results are wanted; the value is."""
    x = te.placeholder((4, 30), name="x")
    k = te.reduce_axis((0, 30), "k")

    def last(a, b):
        first = a[1] > b[1]
        return select(first, a[0], b[0]), select(first, a[1], b[1])

    best = te.comm_reducer(last, lambda i, v: (te.const(-1, i), te.min_value(v)))
    at, value = te.compute((4,), lambda i: best((k.var, x[i, k]), axis=k), name="best")
    for results in ([at, value], [value], [at]):
        func = te.create_prim_func([x, *results])
        assert in_two_reductions(func) is func


def test_two_reductions_of_one_value_each() -> None:
    x = te.placeholder((4, 30), name="x")
    found = in_two_reductions(te.create_prim_func([x, reduction.argmax(x, 1)]))
    reductions = [b for b in blocks_of(found) if is_reduction(b)]
    assert [b.name_hint for b in reductions] == ["x_red_temp_value", "x_red_temp"]
    assert [b.writes[0].buffer.dtype for b in reductions] == ["float32", "int32"]
    assert dict(reductions[0].annotations) == {"keep_nan": 1}
