"""Maxima and minima with `keep_nan`: NaN where an element is one, in every kind of loop; on GPUs too."""

from collections.abc import Callable

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule
from tests.spread import spread

pytestmark = pytest.mark.host(runs=True)

SHAPE = (3, 5, 37)
REDUCE = {"max": (topi.max, np.max), "min": (topi.min, np.min)}


def func_of(name: str, axes: tuple[int, ...], dtype: str, shape: tuple[int, ...] = SHAPE) -> PrimFunc:
    x = te.placeholder(shape, dtype, "x")
    return te.create_prim_func([x, REDUCE[name][0](x, axes, keep_nan=True)], "int64")


def run(func: PrimFunc, x: np.ndarray, target: str = "cpu") -> np.ndarray:
    given = Target(target)
    applied = apply_config(func, default_config(func, given), given)
    out = np.zeros(func.buffers[-1].const_shape(), x.dtype)
    Module({"k": compile_func(applied.func, given, name="k").kernel}, native_object(), threads=2)(x, out)
    return out


def hard(dtype: str, seed: int) -> np.ndarray:
    """Numbers with NaN of both signs and infinities among them, in some rows alone or first or last."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(SHAPE).astype(dtype)
    x[rng.random(SHAPE) < 0.02] = np.nan
    x[rng.random(SHAPE) < 0.02] = -np.nan
    x[rng.random(SHAPE) < 0.05] = rng.choice([np.inf, -np.inf])
    x[0, 0], x[1, 1, 0], x[1, 2, -1], x[2, 3] = np.nan, np.nan, np.nan, -np.inf
    return x


@pytest.mark.parametrize("name", REDUCE)
@spread(2, "axes", [(2,), (1,), (0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_reductions(name: str, axes: tuple[int, ...], dtype: str) -> None:
    for seed in range(3):
        x = hard(dtype, seed)
        np.testing.assert_array_equal(run(func_of(name, axes, dtype), x), REDUCE[name][1](x, axis=axes))


def test_without_it_a_nan_is_passed_over() -> None:
    x = te.placeholder((4, 40), name="x")
    given = np.random.default_rng(0).standard_normal((4, 40)).astype("f4")
    given[:, 7] = np.nan
    got = run(te.create_prim_func([x, topi.max(x, 1)], "int64"), given)
    np.testing.assert_array_equal(got, np.nanmax(given, axis=1))


def rfactored(sch: Schedule) -> None:
    (k,) = sch.get_loops("x_red")[1:]
    sch.rfactor(sch.split(k, [None, 8])[1], 0)


def vectorised(sch: Schedule) -> None:
    i, k = sch.get_loops("x_red")
    sch.vectorize(sch.split(i, [None, 4])[1])
    sch.unroll(k)


@pytest.mark.parametrize("schedule", [rfactored, vectorised])
def test_schedules(schedule: Callable[[Schedule], None]) -> None:
    x = np.random.default_rng(0).standard_normal((16, 24)).astype("f4")
    x[np.arange(0, 16, 3), np.arange(0, 16, 3)] = np.nan
    sch = Schedule(func_of("max", (1,), "float32", (16, 24)))
    schedule(sch)
    out = np.zeros(16, "f4")
    Module({"k": compile_func(sch.func, Target("cpu"), name="k").kernel}, native_object(), threads=1)(x, out)
    np.testing.assert_array_equal(out, x.max(1))


@pytest.mark.parametrize("blocked", [False, True])
def test_pooling(blocked: bool) -> None:
    shape = (2, 2, 9, 11, 4) if blocked else (2, 3, 9, 11)
    x = te.placeholder(shape, name="x")
    given = np.random.default_rng(1).standard_normal(shape).astype("f4")
    given[np.random.default_rng(2).random(shape) < 0.03] = np.nan
    given[0, 0, :2, :2] = -np.inf  # with padding around
    pooled = topi.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False, keep_nan=True)
    got = run(te.create_prim_func([x, pooled], "int64"), given)
    padded = np.pad(given, [(0, 0), (0, 0), (1, 1), (1, 1), *[(0, 0)] * blocked], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(got, windows.max((-1, -2)))


@pytest.mark.parametrize("axes", [(1,), (0,)])
def test_on_gpus(axes: tuple[int, ...]) -> None:
    target = Target("nvidia/nvidia-h100")
    func = func_of("max", axes, "float32", (70, 300))
    scheduled = apply_config(func, default_config(func, target), target).func
    x = np.random.default_rng(3).standard_normal((70, 300)).astype("f4")
    x[::7, 11], x[3, ::13] = np.nan, np.nan
    out = np.zeros(func.buffers[-1].const_shape(), "f4")
    run_serially(scheduled, x, out)
    np.testing.assert_array_equal(out, x.max(axis=axes))
