"""Rows that run together, and rows that are larger than the cache, which ask for the next one while they compute."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.ir.node import preorder
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import For, PrimFunc, as_int
from autosched.tir.schedule import Schedule
from autosched.topi.testing import layer_norm_python

HASWELL = Target("llvm -mcpu=haswell -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")


def _scheduled(*shape: int) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    return apply_config(func, default_config(func, HASWELL), HASWELL).func


def _prefetches(func: PrimFunc) -> list[dict[str, int]]:
    found = [n.annotations.get("prefetch") for n in preorder(func.body) if isinstance(n, For)]
    return [{str(getattr(k, "value", k)): int(v) for k, v in x.items()} for x in found if x]


@pytest.mark.parametrize(
    ("rows", "length", "expected"), [(512, 512, [{"x": 2 * 16}]), (8, 512, []), (64, 256, []), (65536, 16, [{"x": 8}])]
)
def test_softmax_asks_for_the_next_rows(rows, length, expected) -> None:
    assert _prefetches(_scheduled(rows, length)) == expected


@pytest.mark.parametrize("shape", [(192, 49, 49), (8, 6, 100), (8, 2, 100), (64, 30), (61, 49)])
def test_rows_that_run_together_are_computed_once(shape) -> None:
    """Whole parts of the innermost row axis: a piece that crossed its end would compute all rows on both sides."""
    sch = Schedule(_scheduled(*shape))
    for block in ("T_softmax_exp", "T_softmax_norm"):
        extents = [as_int(sch.get(loop).extent) for loop in sch.get_loops(block)]
        assert math.prod(extents) < 1.5 * math.prod(shape)  # the last vector of a row may be ragged


@pytest.mark.parametrize("shape", [(61, 49), (7, 17), (3, 5, 21), (9, 200), (1, 10)])
def test_rows_that_are_no_whole_groups(shape) -> None:
    x = te.placeholder(shape, name="x")
    built = autosched.build(te.create_prim_func([x, topi.nn.softmax(x)]))
    given = np.random.default_rng(1).standard_normal(shape).astype("float32")
    out = autosched.nd.array(np.full(shape, np.nan, "float32"))
    built(autosched.nd.array(given), out)
    power = np.exp(given.astype("float64") - given.max(-1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), power / power.sum(-1, keepdims=True), rtol=1e-6)


def _check(shape: tuple[int, ...], dtype: str, compute: Callable, reference: Callable) -> None:
    """Compare a function of the template with NumPy's in float64, on one thread and on two."""
    x = te.placeholder(shape, dtype, name="x")
    func = te.create_prim_func([x, compute(x)])
    assert default_config(func, Target("cpu")).template == "rows"
    values = np.random.default_rng(0).uniform(-2, 3, shape).astype(dtype)
    expected = np.asarray(reference(values.astype("float64")))
    for threads in (1, 2):
        out = np.empty(expected.shape, dtype)
        autosched.build(func, threads=threads)(values, out)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis", "keepdims", "dtype"),
    [
        ((33, 17), (0, 1), True, "float32"), ((32, 64), (0, 1), False, "int32"), ((103,), 0, False, "float64"),
        ((3, 5, 7, 9), (2, 3), True, "float32"), ((3, 5, 7, 9), (-1, 0), False, "int64"),
        ((4, 1, 30), (1, 2), True, "float32"),
        ((1, 1), (0, 1), True, "float32"), ((3, 5, 7, 9), (0, 2, 3), True, "float32"),
        ((2, 3, 4, 5), None, False, "float32"),
    ],
)  # fmt: skip
def test_several_axes_are_one(shape, axis, keepdims, dtype) -> None:
    _check(shape, dtype, lambda x: topi.sum(x, axis, keepdims), lambda x: x.sum(axis, keepdims=keepdims))


@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3)])
def test_variance_over_several_axes(axes) -> None:
    _check((3, 2, 5, 9), "float32", lambda x: topi.variance(x, axes, True), lambda x: x.var(axes, keepdims=True))


def test_what_hangs_on_rows_of_several_axes() -> None:
    def normalised(x, mean, std):
        return (x - mean) / std

    _check(
        (3, 2, 5, 9), "float32",
        lambda x: topi.divide(topi.subtract(x, topi.mean(x, (2, 3), True)), topi.sqrt(topi.variance(x, (2, 3), True))),
        lambda x: normalised(x, x.mean((2, 3), keepdims=True), x.std((2, 3), keepdims=True)),
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 13, 4, 1), (1, 13, 1, 4), (13, 1, 1, 4), (2, 13, 8, 1)])
def test_rows_with_an_axis_of_one(shape) -> None:
    """It has no loop where a reduction runs in its row: the loop before must not be taken for it."""
    x, *scale = (te.placeholder(s, name=n) for s, n in zip((shape, shape[2:], shape[2:]), "xgb", strict=True))
    func = te.create_prim_func([x, *scale, topi.layer_norm(x, *scale, (2, 3), 1e-5, True, True)])
    func = apply_config(func, default_config(func, HASWELL), HASWELL).func
    random = np.random.default_rng(0)
    data, gamma, beta = (random.standard_normal(s).astype("float32") for s in (shape, shape[2:], shape[2:]))
    out = np.empty(shape, "float32")
    autosched.build(func)(data, gamma, beta, out)
    np.testing.assert_allclose(out, layer_norm_python(data, gamma, beta, (2, 3)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize(("shape", "axis"), [((100003,), (0,)), ((2, 33, 1024), (1, 2)), ((256, 128), (0, 1))])
def test_few_long_rows_are_cut_into_pieces(shape, axis, reduce) -> None:
    _check(
        shape,
        "float32",
        lambda x: getattr(topi, reduce)(x, axis, True),
        lambda x: getattr(x, reduce)(axis, keepdims=True),
    )


def test_pieces_keep_nan() -> None:
    values = np.zeros((2, 40000), "float32")
    values[1, 39999] = np.nan
    x = te.placeholder(values.shape, name="x")
    out = np.empty((2,), "float32")
    autosched.build(te.create_prim_func([x, topi.max(x, 1, keep_nan=True)]), threads=2)(values, out)
    np.testing.assert_array_equal(out, [0, np.nan])


def test_softmax_of_one_row() -> None:
    _check(
        (1003,), "float32", lambda x: topi.nn.softmax(x, 0), lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    )


@pytest.mark.parametrize("length", [16, 37, 130])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_a_nan_in_any_lane_is_kept(length, dtype, reduce) -> None:
    """A row for each place of a NaN, and one without; infinities of both signs beside it."""
    values = np.random.default_rng(0).standard_normal((length + 1, length)).astype(dtype)
    values[:, 3], values[:, 5] = np.inf, -np.inf
    values[range(length), range(length)] = np.nan
    x = te.placeholder(values.shape, dtype, name="x")
    out = np.empty((length + 1,), dtype)
    autosched.build(te.create_prim_func([x, getattr(topi, reduce)(x, 1, keep_nan=True)]))(values, out)
    np.testing.assert_array_equal(out, getattr(values, reduce)(1))


@pytest.mark.parametrize("shape", [(5, 17, 21), (2, 33, 49), (3, 6, 10)])
def test_the_last_part_of_the_innermost_row_axis_may_be_shorter(shape) -> None:
    _check(shape, "float32", lambda x: topi.max(x, 2), lambda x: x.max(2))
    _check(
        shape, "float32", lambda x: topi.nn.softmax(x, 2),
        lambda x: np.exp(x - x.max(2, keepdims=True)) / np.exp(x - x.max(2, keepdims=True)).sum(2, keepdims=True),
    )  # fmt: skip
