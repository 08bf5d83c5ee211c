"""Depthwise convolutions and pooling for GPUs: right in every type and size, each element of a window loaded once."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


def depthwise(
    shape: tuple[int, ...], kernel: int, stride: int, dilation: int = 1, times: int = 1, dtype: str = "float32"
) -> PrimFunc:
    """A depthwise convolution of [N, C, H, W] with padding, then relu."""
    data = te.placeholder(shape, dtype, name="D")
    weight = te.placeholder((shape[1] * times, 1, kernel, kernel), dtype, name="W")
    out = topi.nn.group_conv2d_nchw(data, weight, stride, kernel // 2 * dilation, dilation, shape[1])
    return create_prim_func([data, weight, topi.relu(out)])


def windows_of(x: np.ndarray, kernel: tuple[int, int], stride: int, dilation: int = 1) -> np.ndarray:
    """The windows of [N, C, H, W], [N, C, OH, OW, KH, KW]."""
    reach = tuple((k - 1) * dilation + 1 for k in kernel)
    every = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    return every[:, :, ::stride, ::stride, ::dilation, ::dilation]


def padded(x: np.ndarray, by: int, value: float = 0.0) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (by, by), (by, by)), constant_values=value)


def run_all(func: PrimFunc, inputs: list[np.ndarray], expected: np.ndarray, rows: tuple[int, ...], rtol: float) -> None:
    """The default and some numbers of rows to a thread, each in every way that there is."""
    config = default_config(func, TARGET)
    assert config.template == "window"
    dtype = func.buffers[-1].dtype
    for knobs in (config.knobs, *({"rows": n, "block_size": 64} for n in rows)):
        scheduled = apply_config(func, Config("window", knobs), TARGET).func
        for way, (out,) in run_in_all_ways(scheduled, TARGET, inputs, [np.full(expected.shape, 7, dtype)]):
            np.testing.assert_allclose(out.astype("d"), expected, rtol=rtol, atol=rtol, err_msg=f"{knobs} {way}")


@spread(
    2,
    "shape, kernel, stride, dilation, times, dtype",
    [
        ((2, 3, 9, 11), 3, 1, 1, 1, "float32"),
        ((1, 5, 10, 7), 3, 2, 1, 1, "float16"),
        ((1, 2, 13, 9), 5, 1, 1, 2, "float32"),
        ((1, 2, 11, 12), 3, 1, 2, 1, "bfloat16"),
    ],
    first=1,
)
def test_depthwise_convolutions(
    shape: tuple[int, ...], kernel: int, stride: int, dilation: int, times: int, dtype: str
) -> None:
    func = depthwise(shape, kernel, stride, dilation, times, dtype)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers[:2])
    found = windows_of(padded(x.astype("d"), kernel // 2 * dilation), (kernel, kernel), stride, dilation)
    expected = np.maximum(np.einsum("nchwij,cij->nchw", np.repeat(found, times, 1), w[:, 0].astype("d")), 0)
    run_all(func, [x, w], expected, (4,), {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[dtype])


@spread(
    2,
    "shape, kernel, dilation, times, rows",
    [((2, 3, 8, 12), 3, 1, 1, 4), ((1, 2, 10, 16), 5, 1, 2, 2), ((1, 2, 6, 8), 3, 2, 1, 3)],
)
def test_four_neighbours_to_a_thread(shape: tuple[int, ...], kernel: int, dilation: int, times: int, rows: int) -> None:
    func = depthwise(shape, kernel, 1, dilation, times)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.const_shape()).astype("f") for b in func.buffers[:2])
    found = windows_of(padded(x.astype("d"), kernel // 2 * dilation), (kernel, kernel), 1, dilation)
    expected = np.maximum(np.einsum("nchwij,cij->nchw", np.repeat(found, times, 1), w[:, 0].astype("d")), 0)
    scheduled = apply_config(func, Config("window", {"rows": rows, "columns": 4, "block_size": 64}), TARGET).func
    for way, (out,) in run_in_all_ways(scheduled, TARGET, [x, w], [np.full(expected.shape, 7, "f")]):
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5, err_msg=way)


def test_four_neighbours_with_stride_and_another_array() -> None:
    """Rows two apart, no padding, an epilogue that reads another array."""
    x, b = te.placeholder((2, 9, 12), name="X"), te.placeholder((2, 4, 12), name="B")
    k = te.reduce_axis((0, 3), name="k")
    sums = te.compute((2, 4, 12), lambda c, y, z: te.sum(x[c, 2 * y + k, z], axis=k), name="sums")
    func = create_prim_func([x, b, topi.add(sums, b)])
    values, other = (np.random.default_rng(0).standard_normal(v.const_shape()).astype("f") for v in func.buffers[:2])
    expected = sum(values[:, i : i + 7 : 2].astype("d") for i in range(3)) + other
    scheduled = apply_config(func, Config("window", {"rows": 2, "columns": 4, "block_size": 32}), TARGET).func
    for way, (out,) in run_in_all_ways(scheduled, TARGET, [values, other], [np.full(expected.shape, 7, "f")]):
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5, err_msg=way)


def test_largest_of_four_neighbouring_windows() -> None:
    x = te.placeholder((1, 3, 8, 12), name="X")
    func = create_prim_func([x, topi.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), False)])
    values = np.random.default_rng(0).standard_normal((1, 3, 8, 12)).astype("f")
    expected = windows_of(padded(values, 1, -np.inf), (3, 3), 1).max((-1, -2))
    scheduled = apply_config(func, Config("window", {"rows": 4, "columns": 4, "block_size": 32}), TARGET).func
    for way, (out,) in run_in_all_ways(scheduled, TARGET, [values], [np.full(expected.shape, 7, "f")]):
        np.testing.assert_array_equal(out, expected, err_msg=way)


def test_rows_that_are_no_vectors_have_one_column_to_a_thread() -> None:
    for func in (
        depthwise((1, 3, 8, 11), 3, 1), depthwise((1, 3, 8, 12), 3, 2), depthwise((1, 3, 8, 12), 3, 1, dtype="float16"),
    ):  # fmt: skip
        ((template, anchor),) = [found for found in templates_for(func, TARGET) if found[0].name == "window"]
        assert anchor.sizes["vectors"] == 0
        assert all(c["columns"] == 1 for c in template.space(anchor, TARGET).sample(0, 8))


def test_rows_of_windows_are_loaded_by_vectors() -> None:
    func, target = depthwise((32, 144, 56, 56), 3, 1), Target("nvidia/nvidia-h200")
    config = default_config(func, target)
    assert config["columns"] == 4
    kernel = compile_func(apply_config(func, config, target).func, target, name="k").kernel
    assert isinstance(kernel, CudaKernel)
    height = config["rows"] + 2
    assert kernel.ptx.count("ld.global.nc.v4") == 3 * height and kernel.ptx.count("st.global.v4") == config["rows"]
    assert kernel.ptx.count("ld.global") == 3 * height + 9
    assert all(x.spill_bytes == x.stack_bytes == 0 for x in kernel.resources.launches)


@spread(2, "dtype", ["float32", "int8"])
def test_largest_of_windows(dtype: str) -> None:
    x = te.placeholder((2, 3, 11, 9), dtype, name="X")
    func = create_prim_func([x, topi.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False)])
    values = np.random.default_rng(0).integers(-99, 99, (2, 3, 11, 9)).astype(dtype)
    expected = windows_of(padded(values.astype("d"), 1, -np.inf), (3, 3), 2).max((-1, -2))
    run_all(func, [values], expected, (4,), 0)


@spread(2, "counted", [False, True])
def test_means_of_windows(counted: bool) -> None:
    x = te.placeholder((1, 4, 8, 10), name="X")
    func = create_prim_func([x, topi.avg_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), False, counted)])
    values = np.random.default_rng(0).standard_normal((1, 4, 8, 10)).astype("f")
    found = windows_of(padded(values, 1), (3, 3), 1).sum((-1, -2), dtype="d")
    n = 9 if counted else windows_of(padded(np.ones_like(values), 1), (3, 3), 1).sum((-1, -2))
    run_all(func, [values], found / n, (4,), 1e-5)


def test_windows_over_channels_that_lie_innermost() -> None:
    """Threads go along the axis before the channels, in [N, H, W, C] the last of the images' own."""
    x = te.placeholder((1, 9, 10, 6), name="X")
    i, j = te.reduce_axis((0, 3), name="i"), te.reduce_axis((0, 2), name="j")
    out = te.compute((1, 7, 9, 6), lambda n, y, z, c: te.sum(x[n, y + i, z + j, c], axis=[i, j]), name="out")
    func = create_prim_func([x, out])
    values = np.random.default_rng(0).standard_normal((1, 9, 10, 6)).astype("f")
    found = windows_of(values.transpose(0, 3, 1, 2).astype("d"), (3, 2), 1).sum((-1, -2)).transpose(0, 2, 3, 1)
    run_all(func, [values], found, (3,), 1e-5)


def test_what_feeds_the_window_is_computed_once_for_a_thread() -> None:
    """A producer of the window is computed where its elements are kept; the epilogue reads another array."""
    data, weight = te.placeholder((1, 3, 8, 9), name="D"), te.placeholder((3, 1, 3, 3), name="W")
    other = te.placeholder((1, 3, 8, 9), name="B")
    fed: Tensor = topi.add(data, 1.0)
    out = topi.nn.group_conv2d_nchw(fed, weight, 1, 1, 1, 3)
    func = create_prim_func([data, weight, other, topi.add(out, other)])
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(v.const_shape()).astype("f") for v in func.buffers[:3])
    found = np.einsum("nchwij,cij->nchw", windows_of(padded(x.astype("d") + 1, 1), (3, 3), 1), w[:, 0])
    run_all(func, [x, w, b], found + b, (4,), 1e-5)


def test_a_thread_loads_each_element_of_its_window_once() -> None:
    func = depthwise((1, 64, 56, 56), 3, 1)
    kernel = compile_func(
        apply_config(func, Config("window", {"rows": 4, "block_size": 128}), TARGET).func, TARGET, name="k"
    ).kernel
    assert isinstance(kernel, CudaKernel)
    assert kernel.ptx.count("ld.global") == 18 + 9  # a window of 6 x 3, and the weights


def test_what_has_no_window_is_left_to_others() -> None:
    x = te.placeholder((4, 8, 8), name="X")
    k = te.reduce_axis((0, 2), name="k")
    apart = te.compute((4, 4, 8), lambda c, y, z: te.sum(x[c, 2 * y + k, z], axis=k), name="out")
    data, weight = te.placeholder((1, 8, 9, 9), name="D"), te.placeholder((4, 8, 3, 3), name="W")
    for func in (
        create_prim_func([x, apart]),
        create_prim_func([data, weight, topi.nn.conv2d(data, weight, 1, 1, 1, "NCHW")]),
        create_prim_func([x, topi.sum(x, (1, 2))]),
    ):
        assert "window" not in [t.name for t, _ in templates_for(func, TARGET)]


def test_configurations_become_machine_code_for_all_architectures() -> None:
    func = depthwise((1, 20, 29, 31), 5, 1, dtype="float16")
    for config in (default_config(func, TARGET), *space_for(func, TARGET).sample(0, 2)):
        kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
        assert isinstance(kernel, CudaKernel)
        assert set(add_images(kernel, ["sm_75", "sm_80", "sm_100", "sm_120"]).images) >= {"sm_75", "sm_100"}
