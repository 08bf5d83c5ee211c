"""The `reduction` template: results of several rows, axes of a single element, long sums in parts."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes  # noqa: F401  (NumPy's bfloat16)
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.topi import reduction
from autosched.tuner.measure.make_reference import make_reference
from tests.spread import cover

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")

TARGET = Target("cuda -arch=sm_80")


def a_product() -> PrimFunc:
    a, b = te.placeholder((7, 67), name="A"), te.placeholder((67, 13), name="B")
    return create_prim_func([a, b, topi.relu(topi.matmul(a, b))])


def a_strided_convolution() -> PrimFunc:
    data, weight = te.placeholder((1, 40, 9, 9), name="data"), te.placeholder((5, 40, 1, 1), name="weight")
    return create_prim_func([data, weight, topi.relu(topi.nn.conv2d(data, weight, 2, 0, 1, "NCHW"))])


@pytest.mark.parametrize("func", [a_product(), a_strided_convolution()], ids=["rows", "single elements"])
@pytest.mark.parametrize("knobs", [(1, 64, 1), (8, 64, 1), (32, 32, 1), (4, 128, 4)])
def test_results_behind_a_sum_stay_with_their_threads(func: PrimFunc, knobs: tuple[int, int, int]) -> None:
    config = Config("reduction", dict(zip(("shared", "block_size", "vector"), knobs, strict=True)))
    scheduled = apply_config(func, config, TARGET).func
    kernel = compile_func(scheduled, TARGET, name="kernel").kernel
    assert kernel.resources.shared_bytes <= 4 * config["block_size"]  # a part of a sum for each thread at most
    reference = make_reference(func)
    inputs = [np.asarray(x) for x in reference.inputs]
    for order in ("serially", "late", "ahead"):
        out = np.full(func.buffers[-1].const_shape(), np.nan, np.float32)
        if order == "serially":
            run_serially(scheduled, *inputs, out)
        else:
            emulate.run_kernel(kernel, [*inputs, out], order=order)
        np.testing.assert_allclose(out, reference.outputs[0].reshape(out.shape), rtol=1e-4, atol=1e-5)


def reduced(shape: tuple[int, ...], compute: Callable[[te.Tensor], te.Tensor], dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(shape, dtype=dtype, name="x")
    return create_prim_func([x, compute(x)])


CUT = {
    "all": ((701, 41), lambda x: topi.sum(x), "float32"),
    "all of a row": ((4099,), lambda x: topi.max(x), "float32"),
    "mean of images": ((2, 5, 30, 32), lambda x: topi.mean(x, (2, 3)), "float32"),
    "statistics of channels": ((2, 5, 30, 32), lambda x: topi.variance(x, (0, 2, 3)), "float32"),
    "columns": ((901, 64), lambda x: topi.sum(x, 0), "float32"),
    "three columns": ((2001, 3), lambda x: topi.min(x, 0), "float32"),
    "few rows": ((3, 2003), lambda x: topi.relu(topi.sum(x, 1, True)), "float32"),
    "squares": ((3, 2048), lambda x: topi.sqrt(topi.sum(topi.multiply(x, x), 1)), "float32"),
    "product": ((1, 3000), lambda x: topi.prod(x), "float64"),
    "NaN": ((2, 2048), lambda x: topi.max(x, None, False, True), "float32"),
    "halves": ((64, 512), lambda x: topi.sum(x), "float16"),
    "halves, far": ((512, 64), lambda x: topi.mean(x, 0), "bfloat16"),
    "bytes": ((31, 100), lambda x: topi.max(x), "int8"),
    "integers": ((3, 9, 91), lambda x: topi.sum(x, (0, 2)), "int32"),
}


@cover(("case", [*CUT]), ("knobs", [(32, 64, 4, 4), (8, 64, 1, 8)]), together=1)
def test_parts_of_long_sums_are_combined(case: str, knobs: tuple[int, ...]) -> None:
    func = reduced(*CUT[case])
    config = Config("reduction", dict(zip(("shared", "block_size", "vector", "sum_parts"), knobs, strict=True)))
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel
    assert len(kernel.launches) >= 2
    reference = make_reference(func)
    inputs = [np.asarray(x) for x in reference.inputs]
    expected = reference.outputs[0]
    if case == "NaN":
        inputs[0][1, 1031], expected = np.nan, np.full_like(expected, np.nan)
    tolerance = {"float16": 2e-3, "bfloat16": 1e-2}.get(CUT[case][2], 2e-5)
    for order in ("late", "ahead"):
        out = np.full(func.buffers[-1].const_shape(), 77, func.buffers[-1].dtype)
        emulate.run_kernel(kernel, [*inputs, out], order=order)
        found, wanted = out.astype(float), expected.astype(float).reshape(out.shape)
        atol = tolerance * float(np.max(np.abs(wanted), initial=1, where=~np.isnan(wanted)))
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=atol)


def test_sums_of_halves_are_rounded_once() -> None:
    func = reduced((4096,), lambda x: topi.sum(x), "float16")
    config = Config("reduction", {"shared": 32, "block_size": 32, "vector": 1, "sum_parts": 8})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel
    x, out = np.zeros(4096, np.float16), np.zeros((), np.float16)
    x[:512], x[512:1024], x[3] = 4, -4, 5  # the first part has 2049, which is no float16
    emulate.run_kernel(kernel, [x, out])
    assert out == 1


@pytest.mark.parametrize("vector", [1, 4])
def test_a_thread_that_sums_halves_alone_rounds_them_once(vector: int) -> None:
    """Rounded at every step, ones in bfloat16 add up to 256 at most."""
    func = reduced((600, 64), lambda x: topi.sum(x, 0), "bfloat16")
    config = Config("reduction", {"shared": 1, "block_size": 32, "vector": vector, "sum_parts": 1})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel
    assert len(kernel.launches) == 1
    out = np.zeros(64, "bfloat16")
    emulate.run_kernel(kernel, [np.ones((600, 64), "bfloat16"), out])
    assert (out == 600).all()


def test_what_a_sum_begins_with_counts_once() -> None:
    x, k = te.placeholder((2, 1024), name="x"), te.reduce_axis((0, 1024), "k")
    func = create_prim_func([x, te.compute((2,), lambda i: te.sum(x[i, k], axis=k, init=5.0))])
    config = Config("reduction", {"shared": 32, "block_size": 32, "vector": 1, "sum_parts": 4})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel
    out = np.zeros(2, np.float32)
    emulate.run_kernel(kernel, [np.ones((2, 1024), np.float32), out])
    np.testing.assert_array_equal(out, 1029)


H200 = Target("nvidia/nvidia-h200")
LONG = {
    "all": ((8192, 4096), lambda x: topi.mean(x)),
    "few rows": ((4, 10_000_000), lambda x: topi.sum(x, 1)),
    "images": ((1, 64, 512, 512), lambda x: topi.mean(x, (2, 3))),
    "three columns": ((1_000_000, 3), lambda x: topi.sum(x, 0)),
    "columns": ((8192, 4096), lambda x: topi.sum(x, 0)),
}


@pytest.mark.parametrize("case", LONG)
def test_long_sums_of_few_results_have_blocks_for_the_whole_device(case: str) -> None:
    func = reduced(*LONG[case])
    config = default_config(func, H200)
    assert config.template == "reduction" and space_for(func, H200).contains(config)
    kernel = compile_func(apply_config(func, config, H200).func, H200, name="kernel").kernel
    first, _ = kernel.launches
    assert np.prod(first.grid) >= 2 * H200.gpu.sm_count


def test_sums_that_one_launch_does_stay_one() -> None:
    for shape in (8192, 4096), (3, 1000), (256, 512):
        assert default_config(reduced(shape, lambda x: topi.sum(x, 1)), H200).template == "rows"
    assert default_config(reduced((9, 9), lambda x: topi.sum(x)), H200)["sum_parts"] == 1


@pytest.mark.parametrize("shape, axis", [((2, 700), 1), ((703, 3), 0)])
@pytest.mark.parametrize("find", ["argmax", "argmin"])
def test_parts_of_an_argmax_find_the_first_of_equals(shape: tuple[int, int], axis: int, find: str) -> None:
    func = reduced(shape, lambda x: getattr(reduction, find)(x, axis))
    config = default_config(func, TARGET)
    assert config["sum_parts"] > 1 and space_for(func, TARGET).contains(config)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel
    rng = np.random.default_rng(0)
    for extra in ((), (np.nan,), (np.inf, -np.inf)):
        x = rng.integers(-3, 4, shape).astype(np.float32)
        for value in extra:
            x[tuple(rng.integers(0, n, 4) for n in shape)] = value
        out = np.zeros(func.buffers[-1].const_shape(), np.int64)
        emulate.run_kernel(kernel, [x, out])
        np.testing.assert_array_equal(out, getattr(np, find)(x, axis))
