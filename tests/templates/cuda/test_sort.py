"""Sorting on GPUs: the same positions and bits as the reference has, for ties, NaN, all lengths and axes."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

from autosched import te, topi
from autosched.relax.op.sort import _order
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from autosched.tir.expr import select
from autosched.topi.sort import argsort, take_along
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


def data_of(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers with many ties; among floats NaN, infinities and both zeros."""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int8).astype(dtype)
    if "float" in dtype:
        flat = x.reshape(-1)
        flat[::5], flat[1::7], flat[3::11] = np.nan, -0.0, np.inf
    return x


def sort_func(
    shape: tuple[int, ...], axis: int, descending: bool, dtype: str, count: int | None, places: str = "int32"
) -> PrimFunc:
    x = te.placeholder(shape, dtype=dtype, name="x")
    order = argsort(x, axis, descending, places, count)
    return create_prim_func([x, order, take_along(x, order, axis)], index_dtype_override="int64")  # as models have it


def check(func: PrimFunc, config: Config, axis: int, descending: bool) -> None:
    source, order, values = func.buffers
    x = data_of(source.const_shape(), source.dtype)
    expected = _order(x, axis, descending)
    expected = np.take(expected, np.arange(order.const_shape()[axis]), axis)
    outputs = [np.full(b.const_shape(), 1, b.dtype) for b in (order, values)]
    for way, (found, sorted_values) in run_in_all_ways(apply_config(func, config, TARGET).func, TARGET, [x], outputs):
        np.testing.assert_array_equal(found, expected, err_msg=f"{config} {way}")
        assert sorted_values.tobytes() == np.take_along_axis(x, expected, axis).tobytes(), f"{config} {way}"


@spread(3, "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int32", "int64", "bool"])
def test_types(dtype: str) -> None:
    func = sort_func((3, 37), 1, dtype in ("float32", "bool"), dtype, None)
    config = default_config(func, TARGET)
    assert config.template == "sort"
    check(func, config, 1, dtype in ("float32", "bool"))


@spread(
    2,
    "shape, axis, count",
    [((1,), 0, None), ((5, 1, 3), 1, None), ((2, 33, 3), 1, 5), ((33, 4), 0, None), ((300,), 0, 7)],
)
def test_shapes_axes_and_counts(shape: tuple[int, ...], axis: int, count: int | None) -> None:
    func = sort_func(shape, axis, True, "float32", count, "int64")
    check(func, default_config(func, TARGET), axis, True)


@spread(3, "count", [None, 3, 100])
def test_long_lines_are_merged(count: int | None) -> None:
    func = sort_func((2, 333), 1, False, "float32", count)
    check(func, Config("sort", {"chunk": 64, "along": 16, "together": 1}), 1, False)


def test_drawn_configurations() -> None:
    func = sort_func((5, 300), 1, True, "float16", 50)
    configs = [c for c in space_for(func, TARGET).sample(3, 20) if c.template == "sort"]
    assert len(configs) > 1
    for config in configs[:2]:
        check(func, config, 1, True)


def test_what_is_elementwise_around_it() -> None:
    x = te.placeholder((4, 21), name="x")
    order = argsort(topi.negative(x), 1, False, "int32")
    func = create_prim_func([x, topi.add(order, order)])
    config = default_config(func, TARGET)
    assert config.template == "sort"
    data = data_of((4, 21), "float32")
    for way, (found,) in run_in_all_ways(
        apply_config(func, config, TARGET).func, TARGET, [data], [np.zeros((4, 21), "int32")]
    ):
        np.testing.assert_array_equal(found, 2 * _order(-data, 1, False), err_msg=way)


def test_a_line_takes_time_that_is_not_quadratic() -> None:
    """A block of the default sorts in log2(n)² / 2 steps; the general form counts n * n comparisons."""
    func = sort_func((1, 100_000), 1, False, "float32", None)
    ((template, anchor), *_) = templates_for(func, TARGET)
    config = template.default(anchor, TARGET)
    assert template.name == "sort" and config["chunk"] >= 1024
    assert template.space(anchor, TARGET).contains(config)


def test_what_is_no_sort_is_left_alone() -> None:
    """Ranks that count something else are sums."""
    x = te.placeholder((3, 7), name="x")
    k, j = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 7), "j")
    ranks = te.compute((3, 7), lambda a, b: te.sum(select(x[a, j] > x[a, b] + 1, 1, 0), axis=j), name="r")
    found = te.compute((3, 7), lambda a, b: te.sum(select(ranks[a, k] == b, 1, 0), axis=k), name="o")
    func = create_prim_func([x, found])
    assert all(t.name != "sort" for t, _ in templates_for(func, TARGET))


def test_too_much_shared_memory_is_refused_before_anything_is_measured() -> None:
    func = sort_func((3, 40_000), 1, False, "float32", None)
    space = space_for(func, TARGET)
    assert not space.contains(Config("sort", {"chunk": 16384, "along": 1024, "together": 2}))
