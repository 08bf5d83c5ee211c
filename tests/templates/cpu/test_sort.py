"""Sorting on CPUs: the same positions and bits as the reference has, for ties, NaN, all lengths and axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

import autosched
from autosched import relax, te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.relax import op
from autosched.relax.op.sort import _order
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.tir import PrimFunc
from autosched.topi.sort import argsort, take_along
from tests.relax.transform.graphs import graph
from tests.spread import cover, spread

TARGET = Target("cpu")


def data_of(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers with many ties and some large ones; among floats NaN of both signs, infinities and both zeros."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shape).astype(np.int8).astype(dtype)
    flat = x.reshape(-1)
    if "int" in dtype:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        flat[::5], flat[1::7], flat[3::11] = low, high, rng.integers(low, high, flat[3::11].shape, dtype)
    elif dtype != "bool":
        flat[::5], flat[1::7], flat[2::9] = np.nan, -0.0, -np.array(np.nan, dtype)
        flat[3::11], flat[4::13], flat[5::17] = np.inf, -np.inf, rng.standard_normal(flat[5::17].shape).astype(dtype)
        flat[6::19] = np.finfo("float32").tiny / 8 if dtype.endswith(("32", "64")) else 1e-7  # a denormal
    return x


def order_of(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """As `relax.op.argsort` says it, also for the largest integers, whose negatives do not exist."""
    if x.dtype.kind in "iub":
        turned = np.flip(x, axis) if descending else x
        found = np.argsort(turned, axis=axis, kind="stable")
        return x.shape[axis] - 1 - np.flip(found, axis) if descending else found
    return _order(x.astype("float64"), axis, descending)


def sort_func(
    shape: tuple[int, ...], axis: int, descending: bool, dtype: str, count: int | None, places: str = "int32"
) -> PrimFunc:
    x = te.placeholder(shape, dtype=dtype, name="x")
    order = argsort(x, axis, descending, places, count)
    return create_prim_func([x, order, take_along(x, order, axis)], index_dtype_override="int64")


def check(func: PrimFunc, config: Config, axis: int, descending: bool) -> None:
    source, order, values = func.buffers
    x = data_of(source.const_shape(), source.dtype)
    expected = np.take(order_of(x, axis, descending), np.arange(order.const_shape()[axis]), axis)
    found, sorted_values = (np.full(b.const_shape(), 1, b.dtype) for b in (order, values))
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
    Module({"k": kernel}, native_object(), threads=1)(x, found, sorted_values)
    np.testing.assert_array_equal(found, expected, err_msg=str(config))
    assert sorted_values.tobytes() == np.take_along_axis(x, expected, axis).tobytes(), str(config)


@cover(
    (
        "dtype",
        [
            *("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "uint32"),
            *("int64", "uint64", "bool"),
        ],
    ),
    ("descending", [False, True]),
    together=1,
)
def test_types(dtype: str, descending: bool) -> None:
    func = sort_func((3, 300), 1, descending, dtype, None)
    config = default_config(func, TARGET)
    assert config.template == "sort"
    check(func, config, 1, descending)


@spread(
    2,
    "shape, axis, count",
    [((2, 33, 3), 1, 5), ((33, 4), 0, None), ((300,), 0, 7), ((300,), 0, 299), ((2, 3000), 1, None), ((5000,), 0, 40)],
)
def test_shapes_axes_and_counts(shape: tuple[int, ...], axis: int, count: int | None) -> None:
    func = sort_func(shape, axis, True, "float32", count, "int64")
    config = default_config(func, TARGET)
    assert config.template == "sort"
    check(func, config, axis, True)


@spread(3, "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint32", "int64", "bool"])
def test_few_of_many_are_found_by_a_bound(dtype: str) -> None:
    for shape, count, descending in (((3, 1000), 7, True), ((2, 130), 3, False)):
        func = sort_func(shape, 1, descending, dtype, count)
        config = default_config(func, TARGET)
        assert config["selects"] == 2
        check(func, config, 1, descending)


@spread(4, "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint32", "int64", "uint64", "bool"])
def test_few_are_kept_in_order(dtype: str) -> None:
    """Side by side along the last axis or another one, the last lines fewer; all of short lines too."""
    cases = (((70, 21), 1, 5), ((3, 21, 37), 1, 4), ((75, 7), 1, None), ((2, 5, 3), 1, 2), ((100, 2), 0, 4))
    for n, (shape, axis, count) in enumerate(cases):
        func = sort_func(shape, axis, n % 2 > 0, dtype, count)
        config = default_config(func, TARGET)
        assert config["selects"] == 3
        check(func, config, axis, n % 2 > 0)


def test_lines_of_several_threads_have_bounds_of_their_own() -> None:
    func = sort_func((40, 700), 1, True, "float32", 3)
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="k").kernel
    x = np.random.default_rng(0).standard_normal((40, 700)).astype("f4")
    order, values = np.zeros((40, 3), "i4"), np.zeros((40, 3), "f4")
    module = Module({"k": kernel}, native_object(), threads=4)
    for _ in range(20):
        module(x, order, values)
        np.testing.assert_array_equal(order, np.argsort(-x, 1, kind="stable")[:, :3])


@pytest.mark.parametrize("shape, axis", [((5, 300), 1), ((300, 41), 0)])
def test_drawn_configurations(shape: tuple[int, ...], axis: int) -> None:
    func = sort_func(shape, axis, False, "float32", 9)
    for config in [c for c in space_for(func, TARGET).sample(6, 3) if c.template == "sort"]:
        check(func, config, axis, False)


def test_equal_elements_keep_their_places() -> None:
    func = sort_func((2, 100), 1, True, "int32", None)
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="k").kernel
    order, values = np.zeros((2, 100), "i4"), np.zeros((2, 100), "i4")
    Module({"k": kernel}, native_object(), threads=2)(np.full((2, 100), 7, "i4"), order, values)
    assert (order == np.arange(100)).all() and (values == 7).all()


def test_what_is_around_it() -> None:
    """Keys that are computed, negative axes and several results, as models have them; lines of one."""
    x = np.random.default_rng(1).standard_normal((4, 40, 3)).astype("f4")

    def run(build: Callable[..., object], *shape: int) -> Any:
        return autosched.build(graph({"x": shape}, build), "cpu", threads=1)(x.reshape(shape))

    doubled = run(
        lambda bb, x: op.multiply(bb.emit(op.sort(bb.emit(op.negative(x)), axis=-2)), relax.const(2.0, "float32")),
        4,
        40,
        3,
    )
    np.testing.assert_array_equal(doubled, np.sort(-x, 1) * 2)
    values, places = run(lambda bb, x: op.topk(x, k=3, axis=-2, dtype="int64"), 4, 40, 3)
    np.testing.assert_array_equal(places, np.argsort(-x, axis=1, kind="stable")[:, :3])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))
    np.testing.assert_array_equal(run(lambda bb, x: op.argsort(x, axis=1), 480, 1), np.zeros((480, 1), "i4"))
