"""Running sums and products on GPUs: every axis and length, types, several blocks for a line."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from autosched.tir.expr import select
from autosched.topi.sort import cumprod, cumsum
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


def sums(shape: tuple[int, ...], axis: int, exclusive: bool, dtype: str = "float32", reverse: bool = False) -> PrimFunc:
    x = te.placeholder(shape, dtype=dtype, name="x")
    return create_prim_func([x, cumsum(x, axis, exclusive, reverse)], index_dtype_override="int64")  # as models have it


def check(func: PrimFunc, config: Config, axis: int, exclusive: bool, reverse: bool = False) -> None:
    """Small whole numbers, whose sums are exact in every type and order."""
    x = np.random.default_rng(0).integers(-3, 4, func.buffers[0].const_shape()).astype(func.buffers[0].dtype)
    along = np.flip(x, axis) if reverse else x
    expected = np.cumsum(along.astype("int64"), axis) - (along.astype("int64") if exclusive else 0)
    expected = np.flip(expected, axis) if reverse else expected
    out = np.full(x.shape, 99).astype(x.dtype)
    for way, (found,) in run_in_all_ways(apply_config(func, config, TARGET).func, TARGET, [x], [out]):
        np.testing.assert_array_equal(found, expected.astype(x.dtype), err_msg=f"{config} {way}")


@spread(3, "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int32", "int64"])
def test_types(dtype: str) -> None:
    func = sums((3, 37), 1, dtype == "int8", dtype)
    config = default_config(func, TARGET)
    assert config.template == "scan"
    check(func, config, 1, dtype == "int8")


@spread(2, "shape, axis", [((1,), 0), ((7, 1, 3), 1), ((5, 33, 9), 1), ((2, 3, 64), 2), ((40, 5), 0)])
@pytest.mark.parametrize("exclusive", [False, True])
def test_shapes_and_axes(shape: tuple[int, ...], axis: int, exclusive: bool) -> None:
    func = sums(shape, axis, exclusive)
    check(func, default_config(func, TARGET), axis, exclusive)


@spread(2, "shape, axis", [((3, 33), 1), ((2, 64), 1), ((40, 5), 0), ((3, 7, 5), 1)])
@pytest.mark.parametrize("exclusive", [False, True])
def test_from_the_end_on(shape: tuple[int, ...], axis: int, exclusive: bool) -> None:
    func = sums(shape, axis, exclusive, reverse=True)
    config = default_config(func, TARGET)
    assert config.template == "scan"
    check(func, config, axis, exclusive, True)
    parts = {"along": 4, "together": 2, "items": 2, "parts": 4}
    check(func, Config("scan", parts), axis, exclusive, True)


@spread(3, "shape, axis", [((700,), 0), ((3, 203), 1), ((203, 3), 0)])
def test_several_blocks_share_a_line(shape: tuple[int, ...], axis: int) -> None:
    func = sums(shape, axis, axis == 1)
    for config in (
        {"along": 8, "together": 2, "items": 2, "parts": 8},
        {"along": 1, "together": 1, "items": 4, "parts": 4},
    ):
        check(func, Config("scan", config), axis, axis == 1)


def test_drawn_configurations() -> None:
    func = sums((3, 301), 1, False)
    configs = [c for c in space_for(func, TARGET).sample(2, 20) if c.template == "scan"]
    assert len(configs) > 1
    for config in configs[:2]:
        check(func, config, 1, False)


def test_products_and_what_is_elementwise_around_them() -> None:
    x = te.placeholder((3, 45), name="x")
    func = create_prim_func([x, topi.negative(cumprod(topi.add(x, x), 1, True))])
    config = default_config(func, TARGET)
    assert config.template == "scan"
    data = np.random.default_rng(0).uniform(0.3, 0.7, (3, 45)).astype("f")
    expected = -np.cumprod(np.insert(2 * data.astype("float64"), 0, 1, 1), 1)[:, :-1]
    for way, (found,) in run_in_all_ways(
        apply_config(func, config, TARGET).func, TARGET, [data], [np.zeros((3, 45), "f")]
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=way)


def test_nan_and_infinity_reach_what_follows_them_alone() -> None:
    func = sums((1, 70), 1, False)
    x = np.ones((1, 70), "f")
    x[0, 20], x[0, 50] = np.inf, np.nan
    for _, (found,) in run_in_all_ways(
        apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, [x], [np.zeros((1, 70), "f")]
    ):
        np.testing.assert_array_equal(found, np.cumsum(x, 1))


def test_few_long_lines_keep_the_device_busy() -> None:
    func = sums((2, 1_000_000), 1, False)
    config = default_config(func, TARGET)
    assert config["parts"] * 2 >= TARGET.gpu.sm_count
    assert space_for(func, TARGET).contains(config)


def test_elements_are_read_and_written_in_vectors() -> None:
    func = sums((64, 4096), 1, False)
    scheduled = apply_config(func, default_config(func, TARGET), TARGET).func
    ptx = compile_func(scheduled, TARGET, name="kernel").kernel.ptx
    assert "ld.global.nc.v4.f32" in ptx and "st.global.v4.f32" in ptx


def test_conditions_of_other_kinds_are_no_scans() -> None:
    x = te.placeholder((3, 7), name="x")
    k = te.reduce_axis((0, 7), "k")
    for condition in (lambda b: k.var + 2 > b, lambda b: k.var + 1 <= b):
        out = te.compute((3, 7), lambda a, b: te.sum(select(condition(b), x[a, k], 0.0), axis=k))  # noqa: B023
        assert all(t.name != "scan" for t, _ in templates_for(create_prim_func([x, out]), TARGET))
