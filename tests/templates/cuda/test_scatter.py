"""Scatter on GPUs: what meets at one place is joined in order, overwriting updates leave the last one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.errors import IndexOutOfRangeError, ScheduleError
from autosched.relax.op.registry import get_op
from autosched.relax.op.scatter import _nd_reference, _scatter
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, schedule_sizes, templates_for
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from autosched.tir.expr import IntImm, select
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


Size = int | str  # a known one, or the name of one that comes with the call


def func_of(
    name: str, data: Sequence[Size], indices: Sequence[Size], updates: Sequence[Size], dtype: str, **attrs: object
) -> PrimFunc:
    shapes = ((data, dtype, "data"), (indices, "int64", "indices"), (updates, dtype, "updates"))
    names = dict.fromkeys(s for shape in (data, indices, updates) for s in shape if isinstance(s, str))
    symbols = {s: te.var(s, dtype="int64") for s in names}
    tensors = [
        te.placeholder([symbols[s] if isinstance(s, str) else IntImm(s, "int64") for s in shape], dtype=t, name=n)
        for shape, t, n in shapes
    ]
    return create_prim_func([*tensors, get_op(name).compute(*tensors, **attrs)])


def inputs_of(func: PrimFunc, size: int) -> list[np.ndarray]:
    """Small whole numbers, whose sums are exact, and positions that meet."""
    rng = np.random.default_rng(0)
    data, indices, updates = func.buffers[:3]
    low, high = (1, 3) if data.dtype != "bool" else (0, 2)
    x, u = (rng.integers(low, high, b.const_shape()).astype(b.dtype) for b in (data, updates))
    return [x, rng.integers(-size, size, indices.const_shape()), u]


def check(func: PrimFunc, config: Config, inputs: list[np.ndarray], expected: np.ndarray) -> None:
    out = np.full(expected.shape, 1).astype(expected.dtype)
    for way, (found,) in run_in_all_ways(apply_config(func, config, TARGET).func, TARGET, inputs, [out]):
        np.testing.assert_array_equal(found, expected, err_msg=f"{config} {way}")


@spread(3,
    "reduction, dtype",
    [("update", "float32"), ("add", "float32"), ("mul", "float32"), ("min", "int32"), ("max", "float16"),
     ("add", "int64"), ("update", "bool")],
)  # fmt: skip
def test_along_an_axis(reduction: str, dtype: str) -> None:
    func = func_of("scatter_elements", (5, 6), (5, 19), (5, 19), dtype, axis=1, reduction=reduction, mode="raise")
    inputs = inputs_of(func, 6)
    config = default_config(func, TARGET)
    assert config.template == "scatter"
    check(func, config, inputs, _scatter(*inputs, 1, reduction, "raise"))


@pytest.mark.parametrize("reduction", ["update", "add"])
def test_fewer_updates_than_lines_and_an_outer_axis(reduction: str) -> None:
    func = func_of(
        "scatter_elements", (7, 3, 4), (12, 2, 3), (12, 2, 3), "float32", axis=0, reduction=reduction, mode="clip"
    )
    inputs = inputs_of(func, 9)
    expected = _scatter(*inputs, 0, reduction, "clip")
    check(func, default_config(func, TARGET), inputs, expected)


@spread(2, "reduction, depth", [("update", 2), ("update", 1), ("add", 1), ("max", 2)])
def test_by_vectors_of_positions(reduction: str, depth: int) -> None:
    data = (4, 3, 5)
    func = func_of(
        "scatter_nd", data, (2, 11, depth), (2, 11, *data[depth:]), "float32", reduction=reduction, mode="raise"
    )
    inputs = inputs_of(func, 3)
    config = default_config(func, TARGET)
    assert config.template == "scatter"
    check(func, config, inputs, _nd_reference(*inputs, reduction, "raise"))


def test_updates_of_several_parts() -> None:
    func = func_of("scatter_elements", (50,), (700,), (700,), "float32", axis=0, reduction="add", mode="raise")
    inputs = inputs_of(func, 50)
    config = Config("scatter", {"chunk": 256, "along": 64, "together": 1, "block_size": 32})
    check(func, config, inputs, _scatter(*inputs, 0, "add", "raise"))


def test_sums_are_added_in_order() -> None:
    """Floats whose sum depends on the order: the same bits as one after the other."""
    func = func_of("scatter_elements", (3,), (40,), (40,), "float32", axis=0, reduction="add", mode="raise")
    rng = np.random.default_rng(1)
    inputs = [
        np.zeros(3, "f"),
        rng.integers(0, 3, 40),
        (rng.standard_normal(40) * 10.0 ** rng.integers(-4, 5, 40)).astype("f"),
    ]
    check(func, default_config(func, TARGET), inputs, _scatter(*inputs, 0, "add", "raise"))


def test_many_updates_of_few_places_stay_a_sum_of_threads() -> None:
    func = func_of("scatter_elements", (3,), (4000,), (4000,), "float32", axis=0, reduction="add", mode="raise")
    assert default_config(func, TARGET).template != "scatter"


@spread(
    2,
    "data, indices, updates, reduction, dtype, has_template",
    [
        (("n",), ("n", 1), ("n",), "update", "int64", True),  # how a permutation is inverted
        (("m", 3), ("n", 1), ("n", 3), "add", "float32", True),
        ((3, 70), ("n", 2), ("n",), "max", "float16", True),
        ((7,), ("n", 1), ("n",), "add", "int32", False),  # a histogram
    ],
)
def test_an_open_number_of_updates(
    data: tuple[Size, ...], indices: tuple[Size, ...], updates: tuple[Size, ...], reduction: str, dtype: str,
    has_template: bool,
) -> None:  # fmt: skip
    """One kernel: the updates are sorted by launches of which a call makes as many as it needs."""
    func = func_of("scatter_nd", data, indices, updates, dtype, reduction=reduction, mode="raise")
    kernel = compile_func(schedule_sizes(func, TARGET).func, TARGET, name="kernel").kernel
    assert isinstance(kernel, CudaKernel) and kernel.sized is not None
    assert ("keys_sorted" in kernel.source) == has_template
    rng = np.random.default_rng(2)
    for n, m in ((1, 1), (37, 5), (1025, 600), (2500, 41)):
        at = kernel.at(tuple({"n": n, "m": m}[name] for name in kernel.sized.names))
        shapes = [arg.shape for arg in at.inputs]
        x, u = (rng.integers(1, 4, shapes[i]).astype(dtype) for i in (0, 2))
        positions = np.stack([rng.integers(-s, s, shapes[1][0]) for s in shapes[0][: shapes[1][1]]], axis=1)
        out = np.ones(shapes[0], dtype)
        for order in ("late", "ahead"):
            run_kernel(at, [x, positions, u, out], order=order)
            np.testing.assert_array_equal(out, _nd_reference(x, positions, u, reduction, "raise"), err_msg=f"{n} {m}")


def test_an_open_number_of_updates_beside_another_sum_has_no_kernel() -> None:
    n = te.var("n", dtype="int64")
    x, at = te.placeholder((n, 9), name="x"), te.placeholder((n,), dtype="int64", name="at")
    k, j = te.reduce_axis((0, n), "k"), te.reduce_axis((0, 9), "j")
    sums = te.compute((n,), lambda i: te.sum(x[i, j], axis=j))
    out = te.compute((n,), lambda i: te.sum(select(at[k] == i, sums[k], 0.0), axis=k))
    with pytest.raises(ScheduleError, match="compared with all of an open number of updates"):
        schedule_sizes(create_prim_func([x, at, out]), TARGET)


def test_other_values_of_misses_are_no_scatter() -> None:
    """Updates that miss add up to something, or change the result."""
    x, at = te.placeholder((20,), name="x"), te.placeholder((20,), dtype="int64", name="at")
    k = te.reduce_axis((0, 20), "k")
    for miss in (1.0, 0.0):
        out = te.compute((9,), lambda i: te.sum(select(at[k] == i, x[k], miss), axis=k))  # noqa: B023
        names = [t.name for t, _ in templates_for(create_prim_func([x, at, out]), TARGET)]
        assert ("scatter" in names) == (miss == 0.0)


def test_positions_out_of_range_are_reported() -> None:
    func = func_of("scatter_elements", (6,), (20,), (20,), "float32", axis=0, reduction="add", mode="raise")
    inputs = inputs_of(func, 6)
    inputs[1][7] = 6
    with pytest.raises(IndexOutOfRangeError, match="index 6 is out of range"):
        check(func, default_config(func, TARGET), inputs, inputs[0])
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="kernel").kernel
    with pytest.raises(IndexOutOfRangeError, match="index 6 is out of range"):
        run_kernel(kernel, [*inputs, inputs[0].copy()])
