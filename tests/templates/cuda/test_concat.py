"""Concatenation and rows taken by position on GPUs: right for all shapes, and whole vectors where there are any."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.testing.gpu import run_in_all_ways
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


def check(shapes: list[tuple[int, ...]], axis: int, dtype: str, template: str, config: Config | None = None) -> None:
    tensors = [te.placeholder(shape, dtype=dtype, name=f"x{n}") for n, shape in enumerate(shapes)]
    func = create_prim_func([*tensors, topi.concatenate(tensors, axis)])
    assert default_config(func, TARGET).template == template
    rng = np.random.default_rng(0)
    inputs = [rng.integers(0, 2 if dtype == "bool" else 99, shape).astype(dtype) for shape in shapes]
    expected = np.concatenate(inputs, axis)
    scheduled = apply_config(func, config or default_config(func, TARGET), TARGET).func
    for way, (found,) in run_in_all_ways(scheduled, TARGET, inputs, [np.zeros_like(expected)]):
        np.testing.assert_array_equal(found, expected, err_msg=f"{config} {way}")


@spread(3, "dtype", ["float32", "float16", "bfloat16", "int8", "int32", "int64", "bool", "float64"])
def test_types(dtype: str) -> None:
    config = Config("concat", {"block_size": 64, "vector": 4})
    check([(2, 4, 3, 7), (2, 8, 3, 7), (2, 4, 3, 7)], 1, dtype, "concat", config)


@pytest.mark.parametrize(
    "shapes, axis, template",
    [
        ([(4, 7), (8, 7)], 0, "concat"),
        ([(3, 5, 3), (3, 4, 3)], 1, "elementwise"),  # no whole vectors
        ([(3, 8), (3, 4)], -1, "elementwise"),  # vectors of the last axis
        ([(2, 4, 3)] * 5, 1, "concat"),
        ([(1, 4, 5)], 1, "elementwise"),
    ],
)
def test_shapes_and_axes(shapes: list[tuple[int, ...]], axis: int, template: str) -> None:
    check(shapes, axis, "float32", template)


def test_many_inputs_are_searched() -> None:
    check([(4, 3)] * 20, 0, "int32", "concat", Config("concat", {"block_size": 32, "vector": 4}))


def test_what_is_elementwise_around_it_is_one_launch() -> None:
    x, y = te.placeholder((2, 4, 3), name="x"), te.placeholder((2, 8, 3), name="y")
    func = create_prim_func([x, y, topi.negative(topi.concatenate([topi.add(x, x), y], 1))])
    assert default_config(func, TARGET).template == "concat"
    a, b = np.arange(24, dtype="f").reshape(2, 4, 3), -np.arange(48, dtype="f").reshape(2, 8, 3)
    scheduled = apply_config(func, Config("concat", {"block_size": 32, "vector": 4}), TARGET).func
    for way, (found,) in run_in_all_ways(scheduled, TARGET, [a, b], [np.zeros((2, 12, 3), "f")]):
        np.testing.assert_array_equal(found, -np.concatenate([2 * a, b], 1), err_msg=way)
    assert len(compile_func(scheduled, TARGET, name="kernel").kernel.launches) == 1


def test_vectors_are_one_access() -> None:
    """Channels of odd images, and rows of float16 by positions of int64: 16 bytes at once."""
    x, y = te.placeholder((8, 640, 7, 7), name="x"), te.placeholder((8, 640, 7, 7), name="y")
    joined = create_prim_func([x, y, topi.concatenate([x, y], 1)])
    table, at = te.placeholder((30_000, 768), dtype="float16", name="t"), te.placeholder((4, 1024), "int64", name="i")
    rows = create_prim_func([table, at, topi.take(table, at, 0)])
    for func, vector in ((joined, 4), (rows, 8)):
        config = default_config(func, TARGET)
        assert config["vector"] == vector and space_for(func, TARGET).contains(config)
        ptx = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel.ptx
        assert "st.global.v4" in ptx and "ld.global.nc.v4" in ptx
        assert not [line for line in ptx.splitlines() if "st.global" in line and ".v4" not in line]


@pytest.mark.parametrize("dtype, width", [("float16", 24), ("int8", 33), ("bool", 16)])
def test_rows_by_position(dtype: str, width: int) -> None:
    x, at = te.placeholder((11, width), dtype=dtype, name="x"), te.placeholder((2, 5), "int64", name="at")
    func = create_prim_func([x, at, topi.take(x, at, 0, mode="clip")])
    rng = np.random.default_rng(0)
    table, places = rng.integers(0, 2, (11, width)).astype(dtype), rng.integers(-3, 15, (2, 5))
    expected = table[np.clip(places, 0, 10)]
    for config in (default_config(func, TARGET), Config("elementwise", {"block_size": 32, "vector": 8})):
        scheduled = apply_config(func, config, TARGET).func
        for way, (found,) in run_in_all_ways(scheduled, TARGET, [table, places], [np.zeros_like(expected)]):
            np.testing.assert_array_equal(found, expected, err_msg=f"{config} {way}")
