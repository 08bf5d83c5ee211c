"""Running sums and products on CPUs: every axis and length, types, what is around them."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.relax import op
from autosched.runtime import Module
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.tir import PrimFunc
from autosched.topi.sort import cumprod, cumsum
from tests.relax.transform.graphs import graph
from tests.spread import cover

TARGET = Target("cpu")


def sums(shape: tuple[int, ...], axis: int, exclusive: bool, dtype: str = "float32", reverse: bool = False) -> PrimFunc:
    x = te.placeholder(shape, dtype=dtype, name="x")
    return create_prim_func([x, cumsum(x, axis, exclusive, reverse)])


def run(func: PrimFunc, config: object, x: np.ndarray) -> np.ndarray:
    out = np.full(x.shape, 99).astype(x.dtype)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
    Module({"k": kernel}, native_object(), threads=1)(x, out)
    return out


def expected(x: np.ndarray, axis: int, exclusive: bool) -> np.ndarray:
    wide = x.astype("int64")
    return (np.cumsum(wide, axis) - (wide if exclusive else 0)).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "int64", "uint8"])
def test_types(dtype: str) -> None:
    """Small whole numbers, whose sums are exact in every type and order."""
    func = sums((3, 37), 1, dtype == "int8", dtype)
    config = default_config(func, TARGET)
    assert config.template == "scan"
    x = np.random.default_rng(0).integers(0, 4, (3, 37)).astype(dtype)
    np.testing.assert_array_equal(run(func, config, x), expected(x, 1, dtype == "int8"))


@cover(
    (
        "shape, axis",
        [
            ((16,), 0),
            ((2, 11), 0),
            ((37, 7), 1),
            ((17, 139), 0),
            ((2, 17, 3, 50), 1),
            ((7, 1, 20), 2),
            ((5, 33, 9), 1),
            ((2, 17, 64), 1),
            ((40, 130), 0),
            ((19, 2, 3, 5), 0),
        ],
    ),
    ("exclusive, reverse", [(False, False), (True, False), (False, True), (True, True)]),
    together=1,
)
def test_shapes_and_axes(shape: tuple[int, ...], axis: int, exclusive: bool, reverse: bool) -> None:
    func = sums(shape, axis, exclusive, reverse=reverse)
    x = np.random.default_rng(1).integers(-3, 4, shape).astype("f")
    wanted = np.flip(expected(np.flip(x, axis), axis, exclusive), axis) if reverse else expected(x, axis, exclusive)
    configs = [default_config(func, TARGET), *space_for(func, TARGET).sample(2, 3)]
    for config in configs:
        np.testing.assert_array_equal(run(func, config, x), wanted, err_msg=str(config))


def test_a_model_scans_its_first_axis_once() -> None:
    """Not by windows, which would sum up all elements before each one."""
    func = sums((32, 139), 0, False)
    config = default_config(func, TARGET)
    assert config.template == "scan"
    assert config["width"] % TARGET.lanes("float32") == 0
    x = np.random.default_rng(3).integers(-3, 4, (32, 139)).astype("f")
    np.testing.assert_array_equal(run(func, config, x), np.cumsum(x, 0))


def test_products_nan_and_long_sums() -> None:
    x = te.placeholder((2, 70), name="x")
    func = create_prim_func([x, cumprod(x, 1, False)])
    values = np.random.default_rng(2).uniform(0.8, 1.25, (2, 70)).astype("f")
    values[1, 40] = np.nan
    np.testing.assert_allclose(run(func, default_config(func, TARGET), values), np.cumprod(values, 1), rtol=1e-5)
    ones = np.full((1 << 18,), 0.1, "f")
    found = run(sums(ones.shape, 0, False), default_config(sums(ones.shape, 0, False), TARGET), ones)
    np.testing.assert_allclose(found, np.cumsum(ones.astype("d")), rtol=1e-6)


def test_what_is_element_wise_around_is_computed_with_it() -> None:
    def build(bb, x, y):
        total = bb.emit(op.cumsum(bb.emit(op.multiply(x, y)), axis=1))
        return op.add(bb.emit(op.exp(bb.emit(op.negative(total)))), y)

    module = graph({"x": (4, 50), "y": (4, 50)}, build)
    x, y = (np.random.default_rng(n).uniform(0, 1, (4, 50)).astype("f") for n in range(2))
    got = autosched.build(module, target="cpu")(x, y).numpy()
    np.testing.assert_allclose(got, np.exp(-np.cumsum(x * y, 1)) + y, rtol=1e-5)
