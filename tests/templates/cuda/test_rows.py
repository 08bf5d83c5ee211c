"""Softmax, norms and sums of rows for GPUs: threads that keep their elements of a row read it once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched import relax, te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.errors import ScheduleError
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


def norm(rows: int, length: int, dtype: str = "float32") -> PrimFunc:
    x = te.placeholder((rows, length), dtype, name="X")
    gamma, beta = (te.placeholder((length,), dtype, name=n) for n in ("G", "B"))
    return create_prim_func([x, gamma, beta, topi.layer_norm(x, gamma, beta, (1,), 1e-5, True, True)])


def of(shape: tuple[int, ...], compute: Callable[[Tensor], Tensor], dtype: str = "float32") -> PrimFunc:
    x = te.placeholder(shape, dtype, name="X")
    return create_prim_func([x, compute(x)])


def softmax(v: np.ndarray) -> np.ndarray:
    e = np.exp(v - v.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def check(func: PrimFunc, config: Config, reference: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers[:-1]]
    expected = reference(*(v.astype("d") for v in inputs))
    tolerance = {"float32": 1e-5, "float16": 2e-3}[func.buffers[-1].dtype]
    start = [np.full(func.buffers[-1].const_shape(), 7, func.buffers[-1].dtype)]
    for way, (out,) in run_in_all_ways(apply_config(func, config, TARGET).func, TARGET, inputs, start):
        np.testing.assert_allclose(out.astype("d"), expected, rtol=tolerance, atol=tolerance, err_msg=way)


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta)


def held(func: PrimFunc) -> Config:
    config = default_config(func, TARGET)
    assert config.template == "rows" and config["held"]
    return config


@pytest.mark.parametrize("rows, length, dtype", [(5, 384, "float32"), (3, 256, "float16")])
def test_norms_of_rows_that_are_kept(rows: int, length: int, dtype: str) -> None:
    func = norm(rows, length, dtype)
    check(func, held(func), normalised)


@pytest.mark.parametrize("shape", [(5, 384), (7, 101), (2, 1, 64)], ids=str)
def test_rms_norm_is_one_launch(shape: tuple[int, ...]) -> None:
    """Its sum of squares is no product of two operands; a decoder has one token of each sequence."""
    x, weight = te.placeholder(shape, name="X"), te.placeholder(shape[-1:], name="W")
    func = create_prim_func([x, weight, topi.rms_norm(x, weight, (len(shape) - 1,), 1e-6)])
    config = default_config(func, TARGET)
    assert config.template == "rows" and config["held"] == (shape[-1] == 384)
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="kernel").kernel
    assert isinstance(kernel, CudaKernel) and len(kernel.launches) == 1
    check(func, config, lambda v, w: np.asarray(v / np.sqrt((v**2).mean(-1, keepdims=True) + 1e-6) * w))


def test_softmax_of_rows_that_are_kept() -> None:
    func = of((2, 3, 256), lambda x: topi.softmax(x, -1))
    for knobs in ({"together": 2}, {"keep": False}, {"vector": 1}):
        check(func, Config("rows", {**held(func).knobs, **knobs}), softmax)


def test_sums_of_rows_that_are_kept() -> None:
    func = of((7, 256), lambda x: topi.sum(topi.exp(x), -1))
    check(func, held(func), lambda v: np.exp(v).sum(-1))


def test_a_row_is_read_once() -> None:
    func = norm(8, 256)
    kernel = compile_func(apply_config(func, held(func), TARGET).func, TARGET, name="k").kernel
    assert isinstance(kernel, CudaKernel)
    assert kernel.ptx.count("ld.global") == 3 * 2  # two vectors of the row, of the scale and of the bias


def test_sums_read_whole_vectors() -> None:
    """Neighbours of a thread by one access each would take the sectors of memory four times."""
    func = of((7, 512), lambda x: topi.sum(x, -1))
    kernel = compile_func(apply_config(func, held(func), TARGET).func, TARGET, name="k").kernel
    assert isinstance(kernel, CudaKernel)
    assert kernel.ptx.count("ld.global") == kernel.ptx.count("ld.global.nc.v4") == 512 // (4 * held(func)["block_size"])
    check(func, held(func), lambda v: np.asarray(v.sum(-1)))


def test_rows_that_threads_do_not_divide_are_not_kept() -> None:
    func = norm(4, 250)
    assert not default_config(func, TARGET)["held"]
    with pytest.raises(ScheduleError, match="evenly"):
        apply_config(func, Config("rows", {**default_config(func, TARGET).knobs, "held": True}), TARGET)


def test_configurations_become_machine_code_for_all_architectures() -> None:
    func = norm(100, 4096, "float16")
    for config in (held(func), *space_for(func, TARGET).sample(1, 2)):
        kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
        assert isinstance(kernel, CudaKernel)
        assert set(add_images(kernel, ["sm_75", "sm_100", "sm_120"]).images) >= {"sm_75", "sm_100"}


def test_what_a_norm_loads_early_takes_no_blocks_from_a_multiprocessor() -> None:
    func = norm(8192, 4096)
    target = Target("nvidia/nvidia-h200")
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="kernel").kernel
    assert isinstance(kernel, CudaKernel)
    (launch,) = kernel.resources.launches
    assert launch.occupancy >= 0.75 and launch.stack_bytes == launch.spill_bytes == 0
    assert kernel.source.count("syncthreads()") == 3  # a sum is in every thread that took part in it


def test_a_norm_with_more_behind_it_takes_the_registers_that_it_needs() -> None:
    """Twelve blocks of 128 threads leave 40 registers to each, of which a division takes several."""
    x, gamma, beta = (te.placeholder(s, name=n) for s, n in (((8, 1024), "X"), ((1024,), "G"), ((1024,), "B")))
    y = topi.layer_norm(x, gamma, beta, (1,), 1e-5, True, True)
    func = create_prim_func([x, gamma, beta, te.compute(y.shape, lambda i, j: y(i, j) * te.sigmoid(y(i, j)))])
    kernel = compile_func(apply_config(func, held(func), TARGET).func, TARGET, name="kernel").kernel
    assert isinstance(kernel, CudaKernel)
    assert kernel.resources.stack_bytes == kernel.resources.spill_bytes == 0


@pytest.mark.parametrize("knobs", [(64, 2, 4, True, False), (128, 1, 1, False, False), (32, 4, 2, True, True)], ids=str)
def test_all_threads_have_the_sums_of_their_row(knobs: tuple[int, int, int, bool, bool]) -> None:
    names = ("block_size", "together", "vector", "keep", "held")
    config = Config("rows", dict(zip(names, knobs, strict=True)))
    check(norm(12, 192), config, normalised)
    check(of((12, 192), lambda x: topi.softmax(x, -1)), config, softmax)


@pytest.mark.parametrize("op", [relax.op.nn.adaptive_avg_pool2d, lambda x, _: relax.op.mean(x, [2, 3], True)])
def test_means_of_planes(op: Callable[..., relax.Call]) -> None:
    """One value a row, whose axes of one are its own: threads would read what another one keeps in a register."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((2, 3, 6, 7), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op(x, (1, 1))))
    made = autosched.build(builder.get(), target=TARGET)
    assert len(made.kernels) == 1
