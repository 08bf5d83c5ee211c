"""Templates for GPUs: defaults and drawn configurations give the right numbers, on sizes that divide nothing too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.codegen.cuda.emulate.trace import Trace
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from tests.spread import spread

TARGET = Target("cuda -arch=sm_90a")


def check(func: PrimFunc, config: Config, reference: Callable[..., np.ndarray], n_inputs: int) -> None:
    """Run one configuration with its threads in two orders and compare with NumPy."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers[:n_inputs]]
    (out,) = (np.full(b.const_shape(), np.nan, b.dtype) for b in func.buffers[n_inputs:])
    run_serially(apply_config(func, config, TARGET).func, *inputs, out)
    np.testing.assert_allclose(out, reference(*inputs), rtol=1e-4, atol=1e-5, err_msg=str(config))


def product(m: int, k: int, n: int) -> tuple[Sequence[Tensor], Callable[..., np.ndarray]]:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return [a, b, topi.relu(topi.matmul(a, b))], lambda x, y: np.maximum(x @ y, 0)


@spread(2, "sizes", [(13, 37, 29), (128, 64, 256)])
def test_matmul(sizes: tuple[int, int, int]) -> None:
    tensors, reference = product(*sizes)
    func = create_prim_func(tensors)
    drawn = [c for c in space_for(func, TARGET).sample(1, 8) if c.get("wave_parts", 1) == 1]  # parts: test_last_wave
    for config in (default_config(func, TARGET), *drawn[:2]):
        assert config.template in ("matmul", "contraction", "reduction")
        check(func, config, reference, 2)


@spread(3, "sizes", [(37, 64, 60), (65, 70, 36), (33, 35, 31)], first=1)
def test_copies_that_run_ahead(sizes: tuple[int, int, int]) -> None:
    """On the emulated device, in both orders, with ends of every axis that no tile and no group of tiles divides."""
    tensors, reference = product(*sizes)
    func = create_prim_func(tensors)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(x.const_shape()).astype(np.float32) for x in func.buffers[:2])
    for stages, per_row, group, turn in ((2, 4, 2, 1), (3, 8, 1, 1), (2, 8, 2, 0)):
        knobs = {"rows": 32, "columns": 32, "per_row": per_row, "per_column": 4, "step": 16, "stages": stages}
        knobs |= {"group": group, "turn": turn}
        kernel = compile_func(apply_config(func, Config("matmul", knobs), TARGET).func, TARGET, name="k").kernel
        assert "cp_async_wait" in kernel.source
        assert all(x.spill_bytes == x.stack_bytes == 0 for x in kernel.resources.launches)
        for order in ("late", "ahead"):
            out = np.full((sizes[0], sizes[2]), np.nan, np.float32)
            run_kernel(kernel, [a, b, out], order=order)
            np.testing.assert_allclose(out, reference(a, b), rtol=1e-4, atol=1e-5)


@spread(2, "sizes", [(2, 40, 7), (2, 27, 53), (3, 9, 4), (4, 3, 2)])
def test_products_smaller_than_a_tile_need_no_stack(sizes: tuple[int, int, int]) -> None:
    """A register tile as large as a dimension begins at 0 in every thread, and has no address even so."""
    tensors, reference = product(*sizes)
    func = create_prim_func(tensors)
    for archs in (("sm_75",), ("sm_80", "sm_90", "sm_90a", "sm_100")):  # copies are asynchronous from sm_80 on
        first = Target(f"cuda -arch={archs[0]}")
        kernel = compile_func(apply_config(func, default_config(func, first), first).func, first, name="k").kernel
        assert isinstance(kernel, CudaKernel) and len(add_images(kernel, archs).images) == len(archs)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(x.const_shape()).astype(np.float32) for x in func.buffers[:2])
    for order in ("late", "ahead"):
        out = np.full((sizes[0], sizes[2]), np.nan, np.float32)
        run_kernel(kernel, [a, b, out], order=order)
        np.testing.assert_allclose(out, reference(a, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("columns", [64, 44, 37])
def test_a_row_times_a_matrix_reads_whole_sectors(columns: int, dtype: str) -> None:
    a, b = te.placeholder((1, 300), dtype, name="A"), te.placeholder((300, columns), dtype, name="B")
    func = create_prim_func([a, b, topi.relu(topi.matmul(a, b))])
    config = default_config(func, TARGET)
    assert config.template == "reduction"
    assert config["vector"] == (4 if columns % 4 == 0 else 1)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(v.const_shape()).astype(dtype) for v in func.buffers[:2])
    out = np.zeros((1, columns), dtype)
    traces = [Trace() for _ in kernel.launches]
    run_kernel(kernel, [x, y, out], traces=traces)
    expected = np.maximum(x.astype(np.float64) @ y.astype(np.float64), 0)
    tolerance = 1e-5 if dtype == "float32" else 1e-3  # float16: the sum is rounded once, at the end
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)
    if columns == 64 and dtype == "float32":
        assert all(use.efficiency == 1.0 for use in traces[0].accesses() if use.space == "global")


@pytest.mark.parametrize("axes", [(0,), (0, 2), (0, 1, 2)])
def test_sums_over_other_axes(axes: tuple[int, ...]) -> None:
    x = te.placeholder((9, 3, 11), name="X")
    func = create_prim_func([x, topi.sum(x, axes)])
    config = default_config(func, TARGET)
    assert config.template in ("reduction", "rows")
    check(func, config, lambda v: v.sum(axes), 1)


def test_elements_and_permutations() -> None:
    x = te.placeholder((3, 5, 7), name="X")
    for out, reference in (
        (topi.relu(topi.add(x, x)), lambda v: np.maximum(2 * v, 0)),
        (topi.transpose(x, (2, 0, 1)), lambda v: v.transpose(2, 0, 1)),
    ):
        func = create_prim_func([x, out])
        for config in (default_config(func, TARGET), *space_for(func, TARGET).sample(0, 1)):
            assert config.template == "elementwise"
            check(func, config, reference, 1)


@pytest.mark.parametrize("groups, stride", [(1, 1), (1, 2), (2, 1), (8, 1)])
def test_convolutions_with_their_epilogue(groups: int, stride: int) -> None:
    data, weight = te.placeholder((2, 8, 9, 11), name="D"), te.placeholder((8, 8 // groups, 3, 3), name="W")
    if groups == 1:
        out = topi.nn.conv2d(data, weight, stride, 1, 1, "NCHW")
    else:
        out = topi.nn.group_conv2d_nchw(data, weight, stride, 1, 1, groups)
    func = create_prim_func([data, weight, topi.relu(out)])
    template = "reduction" if groups == 8 else "conv2d"
    config = next(t.default(a, TARGET) for t, a in templates_for(func, TARGET) if t.name == template)
    check(func, config, lambda x, w: np.maximum(convolved(x, w, groups, stride), 0), 2)


def convolved(x: np.ndarray, w: np.ndarray, groups: int, stride: int) -> np.ndarray:
    """A 3x3 convolution of [N, C, H, W] with padding of one."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride].reshape(
        len(x), groups, -1, *windows[:, :, ::stride, ::stride].shape[2:]
    )
    weights = w.reshape(groups, -1, *w.shape[1:])
    parts = [np.einsum("nchwij,ocij->nohw", windows[:, g], weights[g]) for g in range(groups)]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("length", [70, 256])
def test_softmax_of_rows(length: int) -> None:
    x = te.placeholder((6, length), name="X")
    func = create_prim_func([x, topi.softmax(x, -1)])
    for config in (default_config(func, TARGET), Config("rows", {**default_config(func, TARGET).knobs, "keep": False})):
        assert config.template == "rows"
        check(func, config, lambda v: np.exp(v) / np.exp(v).sum(-1, keepdims=True), 1)


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1)])
def test_permutations_through_shared_memory(order: tuple[int, ...]) -> None:
    x = te.placeholder((3, 20, 37), name="X")
    func = create_prim_func([x, topi.relu(topi.transpose(x, order))])
    for config in (default_config(func, TARGET), *space_for(func, TARGET).sample(0, 1)):
        assert config.template == "transpose"
        check(func, config, lambda v: np.maximum(v.transpose(order), 0), 1)


def test_memory_is_read_and_written_in_whole_lines_and_without_bank_conflicts() -> None:
    x, a, b = (
        te.placeholder((64, 64), name="X"),
        te.placeholder((128, 32), name="A"),
        te.placeholder((32, 128), name="B"),
    )
    turn = create_prim_func([x, topi.transpose(x, (1, 0))])
    product = create_prim_func([a, b, topi.matmul(a, b)])
    for func, writes_at_best in ((turn, 1.0), (product, 0.5)):
        kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="k").kernel
        arrays = [np.zeros(b.const_shape(), b.dtype) for b in func.buffers]
        (trace,) = traces = [Trace()]
        run_kernel(kernel, arrays, traces=traces)
        for use in trace.accesses():
            assert use.efficiency >= (writes_at_best if use.space == "shared" and use.writes else 1.0), use
