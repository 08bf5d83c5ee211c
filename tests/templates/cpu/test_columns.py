"""Reductions beside the innermost axis: every place of the axes, types, ragged tiles, long columns in pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.registry import templates_for
from autosched.tir import PrimFunc

TARGET = Target("cpu")


def function(shape: tuple[int, ...], dtype: str, compute: Callable) -> PrimFunc:
    x = te.placeholder(shape, dtype, name="x")
    return te.create_prim_func([x, compute(x)])


def check(func: PrimFunc, reference: Callable, rtol: float = 1e-5) -> None:
    """Compare with NumPy's in float64, on one thread and on two."""
    config = default_config(func, TARGET)
    assert config.template == "columns"
    apply_config(func, config, TARGET)  # of a function alone, `build` runs the loops as they are where this is refused
    given, result = func.buffers
    values = np.random.default_rng(0).uniform(-2, 3, given.const_shape()).astype(given.dtype)
    expected = np.asarray(reference(values.astype("float64")))
    for threads in (1, 2):
        out = np.empty(result.const_shape(), result.dtype)
        autosched.build(func, threads=threads)(values, out)
        np.testing.assert_allclose(out, expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis", "keepdims", "dtype"),
    [
        ((25, 100), 0, False, "float32"), ((25, 131), -2, True, "int32"), ((3, 5, 7, 20), 1, True, "float64"),
        ((5, 7, 130), (0, 1), False, "float32"), ((5, 7, 3, 9), (2, 0), False, "int64"),
        ((9, 4, 1), 0, False, "float32"),
        ((1, 6), 0, True, "float32"), ((4, 1, 6), 1, False, "float32"), ((2, 3, 2), 1, False, "int8"),
    ],
)  # fmt: skip
def test_sums(shape, axis, keepdims, dtype) -> None:
    func = function(shape, dtype, lambda x: topi.sum(x, axis, keepdims))
    check(func, lambda x: x.sum(axis, keepdims=keepdims))


@pytest.mark.parametrize("reduce", ["max", "min", "mean"])
def test_other_reductions(reduce) -> None:
    func = function((3, 11, 37), "float32", lambda x: getattr(topi, reduce)(x, 1, True))
    check(func, lambda x: getattr(x, reduce)(1, keepdims=True))


@pytest.mark.parametrize(("shape", "axis"), [((25, 100), 0), ((3, 13, 7, 20), 1), ((2, 4, 9, 5), 2), ((19, 6, 1), 0)])
def test_softmax(shape, axis) -> None:
    def softmax(x):
        powers = np.exp(x - x.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    check(function(shape, "float32", lambda x: topi.nn.softmax(x, axis)), softmax)
    logarithms = function(shape, "float32", lambda x: topi.nn.log_softmax(x, axis))
    check(logarithms, lambda x: np.log(softmax(x)))


def test_normalisation_and_variance() -> None:
    def unit(x):
        return topi.divide(x, topi.sqrt(topi.sum(topi.multiply(x, x), 0, True)))

    check(function((25, 30), "float32", unit), lambda x: x / np.sqrt((x * x).sum(0, keepdims=True)))
    check(function((25, 30), "float32", lambda x: topi.variance(x, 0)), lambda x: x.var(0))


@pytest.mark.parametrize(
    ("shape", "axis"), [((4001, 128), 0), ((1, 8000, 50), 1), ((300, 7, 300), (0, 1)), ((100, 100, 8), (0, 1))]
)
def test_few_long_columns_are_cut_into_pieces(shape, axis) -> None:
    check(function(shape, "float32", lambda x: topi.mean(x, axis, True)), lambda x: x.mean(axis, keepdims=True))
    check(function(shape, "float32", lambda x: topi.max(x, axis)), lambda x: x.max(axis))


@pytest.mark.parametrize("width", [16, 64, 256])
def test_every_width(width) -> None:
    func = function((9, 70), "float32", lambda x: topi.nn.softmax(x, 0))
    module = autosched.build(apply_config(func, Config("columns", {"width": width}), TARGET).func)
    values = np.random.default_rng(0).standard_normal((9, 70)).astype("float32")
    out = np.empty_like(values)
    module(values, out)
    powers = np.exp(values - values.max(0))
    np.testing.assert_allclose(out, powers / powers.sum(0), rtol=1e-5)


def test_what_others_take() -> None:
    """Rows with what keepdims leaves behind them, windows, products, and functions with results beside the last."""
    x, w = te.placeholder((6, 9), name="x"), te.placeholder((9, 8), name="w")
    k = te.reduce_axis((0, 9), "k")
    h = te.reduce_axis((0, 2), "h")
    rows = te.create_prim_func([x, topi.sum(x, 1, True)])
    product = te.create_prim_func([x, w, te.compute((6, 8), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k))])
    windows = te.create_prim_func([x, te.compute((5, 9), lambda i, j: te.max(x[i + h, j], axis=h))])
    total = topi.sum(x, 0, True)
    two = te.create_prim_func([x, total, topi.divide(x, total)])
    for func in (rows, product, windows, two):
        assert "columns" not in [t.name for t, _ in templates_for(func, TARGET)]
