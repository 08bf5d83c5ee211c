"""Scatter on CPUs: what meets at one place is joined in order, overwriting updates leave the last one."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.errors import IndexOutOfRangeError
from autosched.relax.op.registry import get_op
from autosched.relax.op.scatter import _nd_reference, _scatter
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.tir import PrimFunc
from autosched.tir.expr import IntImm

TARGET = Target("cpu")


def func_of(
    name: str, data: tuple[int, ...], indices: tuple[int, ...], updates: tuple[int, ...], dtype: str, **attrs: object
) -> PrimFunc:
    shapes = ((data, dtype, "data"), (indices, "int64", "indices"), (updates, dtype, "updates"))
    tensors = [te.placeholder([IntImm(s, "int64") for s in shape], dtype=t, name=n) for shape, t, n in shapes]
    return create_prim_func([*tensors, get_op(name).compute(*tensors, **attrs)])


def inputs_of(func: PrimFunc, size: int) -> list[np.ndarray]:
    """Small whole numbers, whose sums are exact, and positions that meet."""
    rng = np.random.default_rng(0)
    data, indices, updates = func.buffers[:3]
    low, high = (1, 3) if data.dtype != "bool" else (0, 2)
    x, u = (rng.integers(low, high, b.const_shape()).astype(b.dtype) for b in (data, updates))
    return [x, rng.integers(-size, size, indices.const_shape()), u]


def run(func: PrimFunc, config: Config, inputs: list[np.ndarray]) -> np.ndarray:
    out = np.full(func.buffers[3].const_shape(), 1).astype(func.buffers[3].dtype)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
    Module({"k": kernel}, native_object(), threads=2)(*inputs, out)
    return out


def check(func: PrimFunc, inputs: list[np.ndarray], expected: np.ndarray) -> None:
    config = default_config(func, TARGET)
    assert config.template == "scatter"
    for each in [config, *(c for c in space_for(func, TARGET).sample(2, 3) if c.template == "scatter" and c != config)]:
        np.testing.assert_array_equal(run(func, each, inputs), expected, err_msg=str(each))


@pytest.mark.parametrize(
    "reduction, dtype",
    [("update", "float32"), ("add", "float32"), ("mul", "float32"), ("min", "int32"), ("max", "float64"),
     ("add", "int64"), ("update", "bool"), ("update", "float16")],
)  # fmt: skip
@pytest.mark.parametrize("axis", [0, 1])
def test_along_an_axis(reduction: str, dtype: str, axis: int) -> None:
    data, indices = ((5, 6), (5, 19)) if axis else ((6, 8), (19, 8))
    func = func_of("scatter_elements", data, indices, indices, dtype, axis=axis, reduction=reduction, mode="raise")
    inputs = inputs_of(func, 6)
    check(func, inputs, _scatter(*inputs, axis, reduction, "raise"))


@pytest.mark.parametrize("reduction", ["update", "add"])
def test_fewer_updates_than_lines_and_an_outer_axis(reduction: str) -> None:
    func = func_of(
        "scatter_elements", (7, 3, 4), (12, 2, 3), (12, 2, 3), "float32", axis=0, reduction=reduction, mode="clip"
    )
    inputs = inputs_of(func, 9)
    check(func, inputs, _scatter(*inputs, 0, reduction, "clip"))


@pytest.mark.parametrize("reduction, depth", [("update", 2), ("update", 1), ("add", 1), ("add", 3), ("max", 2)])
def test_by_vectors_of_positions(reduction: str, depth: int) -> None:
    data = (4, 3, 24)
    func = func_of(
        "scatter_nd", data, (2, 11, depth), (2, 11, *data[depth:]), "float32", reduction=reduction, mode="raise"
    )
    inputs = inputs_of(func, 3)
    check(func, inputs, _nd_reference(*inputs, reduction, "raise"))


def test_nan_wins_and_infinities_stay() -> None:
    func = func_of("scatter_elements", (3,), (12,), (12,), "float32", axis=0, reduction="max", mode="raise")
    updates = np.array([1, np.nan, -np.inf, -np.inf] * 3, "f4")
    places = np.array([0, 1, 2, 2] * 3)
    out = run(func, default_config(func, TARGET), [np.full(3, -np.inf, "f4"), places, updates])
    old = run(func, Config("elementwise", {"width": 16}), [np.full(3, -np.inf, "f4"), places, updates])
    np.testing.assert_array_equal(out, old)
    assert out[0] == 1 and out[2] == -np.inf


def test_positions_out_of_range_are_reported_and_write_nothing() -> None:
    func = func_of("scatter_elements", (5,), (40,), (40,), "float32", axis=0, reduction="add", mode="raise")
    places = np.zeros(40, "i8")
    places[7] = 5
    with pytest.raises(IndexOutOfRangeError):
        run(func, default_config(func, TARGET), [np.zeros(5, "f4"), places, np.ones(40, "f4")])


@pytest.mark.parametrize("reduction", ["update", "add", "max"])
def test_what_is_computed_of_the_result(reduction: str) -> None:
    """What is element-wise behind it too."""
    data, indices, updates = (
        te.placeholder([IntImm(n, "int64") for n in shape], dtype=dtype, name=name)
        for shape, dtype, name in (((7, 33), "float32", "data"), ((50, 2), "int64", "indices"), ((50,), "float32", "u"))
    )
    found = get_op("scatter_nd").compute(data, indices, updates, reduction=reduction, mode="raise")
    doubled = te.compute((7, 33), lambda i, j: found(i, j) * 2.0 - data(i, j), name="doubled")
    func = create_prim_func([data, indices, updates, doubled])
    x, places, u = inputs_of(func, 7)
    check(func, [x, places, u], _nd_reference(x, places, u, reduction, "raise") * 2 - x)


def test_the_result_and_what_is_computed_of_it() -> None:
    x = te.placeholder([IntImm(20, "int64")], dtype="float32", name="x")
    at = te.placeholder([IntImm(30, "int64")], dtype="int64", name="at")
    u = te.placeholder([IntImm(30, "int64")], dtype="float32", name="u")
    found = get_op("scatter_elements").compute(x, at, u, axis=0, reduction="update", mode="raise")
    twice = te.compute((20,), lambda i: found(i) * 2.0, name="twice")
    func = create_prim_func([x, at, u, found, twice])
    rng = np.random.default_rng(1)
    values, places, new = rng.standard_normal(20).astype("f4"), rng.integers(-20, 20, 30), np.arange(30, dtype="f4")
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="k").kernel
    out, doubled = np.empty(20, "f4"), np.empty(20, "f4")
    Module({"k": kernel}, native_object(), threads=2)(values, places, new, out, doubled)
    expected = _scatter(values, places, new, 0, "update", "raise")
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(doubled, 2 * expected)
