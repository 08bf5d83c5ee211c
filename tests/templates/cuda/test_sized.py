"""Kernels for all batches on a GPU: compiled once, right on the emulator for sizes that no tile divides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

from autosched import te, tir, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.errors import ScheduleError, ShapeError
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.templates import schedule_sizes
from autosched.tir import PrimFunc
from autosched.topi.attention import attention
from autosched.topi.sort import cumsum
from tests.spread import spread

TARGET = Target("cuda -arch=sm_90a")
SIZES = (1, 2, 16, 33, 130)
FEW = (1, 2, 5)  # of parts that many threads compute
RNG = np.random.default_rng(0)


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Tensor:
    return te.placeholder([tir.const(s, "int64") if isinstance(s, int) else s for s in shape], dtype=dtype, name=name)


def n() -> tir.Var:
    return te.var("n", dtype="int64")


def of(shape: Sequence[int], compute: Callable[[Tensor], Tensor], dtype: str = "float32") -> PrimFunc:
    x = tensor("x", n(), *shape, dtype=dtype)
    return create_prim_func([x, compute(x)])


def dense(k: int, columns: int, dtype: str = "float32") -> PrimFunc:
    a, b = tensor("a", n(), k, dtype=dtype), tensor("b", k, columns, dtype=dtype)
    bias = tensor("bias", columns, dtype=dtype)
    return create_prim_func([a, b, bias, topi.nn.relu(topi.add(topi.matmul(a, b), bias))])


def products(k: int, columns: int) -> PrimFunc:
    batch = n()
    a, b = tensor("a", batch, 5, k), tensor("b", batch, k, columns)
    return create_prim_func([a, b, topi.nn.batch_matmul(a, b, transpose_b=False)])


def convolution(channels: int, out: int, size: int) -> PrimFunc:
    x, w = tensor("x", n(), channels, size, size), tensor("w", out, channels, 1, 1)
    return create_prim_func([x, w, topi.nn.conv2d(x, w, 2, 0, 1, "NCHW")])


def from_behind(x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda i: x[i] * (x.shape[0] - i).astype("float32"), name="y")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(length: int, d: int, dtype: str) -> PrimFunc:
    batch = n()
    q, k, v = (tensor(name, batch, length, 2, d, dtype=dtype) for name in "qkv")
    return create_prim_func([q, k, v, attention(q, k, v, None, d**-0.5, "TopLeft")])


def attention_of(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal."""
    scores = np.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    scores[..., ~np.tri(q.shape[1], dtype=bool)] = -np.inf
    return np.asarray(np.einsum("bhij,bjhd->bihd", softmax(scores), v))


def pointwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of stride 2."""
    return np.asarray(np.einsum("nchw,oc->nohw", x[:, :, ::2, ::2], w[..., 0, 0]))


CASES: dict[str, tuple[Callable[[], PrimFunc], Callable[..., np.ndarray]]] = {
    "matmul": (lambda: dense(64, 48), lambda a, b, c: np.maximum(a @ b + c, 0)),
    "matmul of odd sizes": (lambda: dense(37, 29), lambda a, b, c: np.maximum(a @ b + c, 0)),
    "tensor cores": (lambda: dense(64, 48, "float16"), lambda a, b, c: np.maximum(a @ b + c, 0)),
    "batched matmul": (lambda: products(19, 11), np.matmul),
    "convolution": (lambda: convolution(4, 8, 7), pointwise),
    "element-wise": (lambda: of((7,), lambda x: topi.nn.relu(topi.add(x, x))), lambda x: np.maximum(x + x, 0)),
    "halves": (lambda: of((64,), lambda x: topi.add(x, x), "float16"), lambda x: x + x),
    "one axis": (lambda: of((), lambda x: topi.add(x, x)), lambda x: x + x),
    "softmax": (lambda: of((70,), lambda x: topi.nn.softmax(x, -1)), softmax),
    "row sums": (lambda: of((70,), lambda x: topi.sum(x, -1)), lambda x: x.sum(-1)),
    "sums over the batch": (lambda: of((12,), lambda x: topi.sum(x, 0)), lambda x: x.sum(0)),
    "running sums": (lambda: of((100,), lambda x: cumsum(x, 1, False)), lambda x: x.cumsum(1)),
    "turned parts": (lambda: of((35, 40), lambda x: topi.transpose(x, (0, 2, 1))), lambda x: x.transpose(0, 2, 1)),
    "attention": (lambda: attended(7, 16, "float32"), attention_of),
    "attention of odd sizes": (lambda: attended(19, 9, "float32"), attention_of),
    "attention on tensor cores": (lambda: attended(37, 16, "float16"), attention_of),
    "values of sizes": (lambda: of((), from_behind), lambda x: x * np.arange(len(x), 0, -1)),
}  # fmt: skip


def compiled(func: PrimFunc, target: Target = TARGET) -> CudaKernel:
    made = compile_func(schedule_sizes(func, target).func, target, name="kernel").kernel
    assert isinstance(made, CudaKernel)
    return made


@spread(3, "case", CASES)
def test_one_kernel_is_right_for_all_sizes(case: str) -> None:
    make, reference = CASES[case]
    kernel = compiled(make())
    for size in FEW if case.startswith("attention") or case == "turned parts" else SIZES:
        at = kernel.at((size,))
        assert at.images is kernel.images
        inputs = [RNG.standard_normal(a.shape).astype(a.dtype) for a in at.inputs]
        expected = reference(*(x.astype("float64") for x in inputs))
        for order in ("late", "ahead"):
            out = np.full(at.outputs[0].shape, np.nan, at.outputs[0].dtype)
            run_kernel(at, [*inputs, out], order=order)
            near = 2e-3 if out.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(out, expected, rtol=near, atol=10 * near, err_msg=f"n = {size}")


def test_the_grid_is_an_expression() -> None:
    kernel = compiled(dense(37, 29))
    assert kernel.takes_sizes and kernel.sized is not None and kernel.sized.names == ("n",)
    rows = int(kernel.source.split("(n + ")[1].split(")")[0]) + 1
    for size in (1, rows, rows + 1, 1000):
        assert kernel.at((size,)).launches[0].grid[1] == -(-size // rows)
    assert kernel.at((10,)).flops * 100 == kernel.at((1000,)).flops > 0


def test_it_becomes_machine_code_for_all_devices() -> None:
    archs = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
    assert len(add_images(compiled(dense(37, 29), Target("cuda -arch=sm_75")), archs).images) == len(archs)


def test_it_is_saved_with_its_sizes() -> None:
    kernel = compiled(dense(37, 29))
    again = Kernel.from_manifest(kernel.to_manifest(), kernel.code)
    assert again == kernel and again.at((5,)).launches == kernel.at((5,)).launches  # type: ignore[attr-defined]
    damaged = kernel.to_manifest()
    damaged["sized"][2] = []  # no grids
    with pytest.raises(ValueError, match="sizes of it"):
        CudaKernel.check_manifest("it", damaged)


@spread(3, "size", [0, -3, 1 << 25])
def test_sizes_beyond_what_it_counts_are_refused(size: int) -> None:
    with pytest.raises(ShapeError, match=f"'n' is {size}"):
        compiled(dense(37, 29)).at((size,))


def test_two_sizes_together_are_not_more_than_it_counts() -> None:
    batch, rows = n(), te.var("m", dtype="int64")
    a, b = tensor("a", batch, rows, 19), tensor("b", batch, 19, 11)
    kernel = compiled(create_prim_func([a, b, topi.nn.batch_matmul(a, b, transpose_b=False)]))
    at = kernel.at((3, 41))
    x, y = (RNG.standard_normal(a.shape).astype("float32") for a in at.inputs)
    out = np.full((3, 41, 11), np.nan, "float32")
    run_kernel(at, [x, y, out])
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="has more than"):
        kernel.at((1 << 12, 1 << 14))


def test_grids_beyond_a_device_are_refused() -> None:
    kernel = compiled(products(2, 3))
    assert kernel.at((65535,)).launches[0].grid[2] == 65535
    with pytest.raises(ShapeError, match="65536 blocks along z"):
        kernel.at((65536,))


def test_a_sequence_that_attends_to_itself_is_refused() -> None:
    length = n()
    q, k, v = (tensor(name, 2, length, 2, 16) for name in "qkv")
    with pytest.raises(ScheduleError, match="; by parts: "):
        schedule_sizes(create_prim_func([q, k, v, attention(q, k, v, None, 0.25, None)]), TARGET)


def test_sizes_that_are_not_the_outer_ones_are_refused() -> None:
    with pytest.raises(ScheduleError, match="not proven"):
        schedule_sizes(of((33,), lambda x: topi.transpose(x, (1, 0))), TARGET)


def test_memory_between_launches_grows_with_the_sizes() -> None:
    """Element i of the second launch's input was computed by another thread of the first one."""
    x = tensor("x", n(), 4)
    doubled = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="doubled")
    turned = te.compute(x.shape, lambda i, j: doubled[x.shape[0] - 1 - i, 3 - j] + 1.0, name="turned")
    again = te.compute(x.shape, lambda i, j: turned[x.shape[0] - 1 - i, j] + doubled[i, j], name="again")
    sch = tir.Schedule(create_prim_func([x, again]))
    for block in ("doubled", "turned", "again"):
        rows, columns = sch.get_loops(block)
        sch.bind(rows, "blockIdx.x")
        sch.bind(columns, "threadIdx.x")
    kernel = compile_func(sch.func, TARGET, name="kernel").kernel
    assert isinstance(kernel, CudaKernel) and len(kernel.launches) == 3
    for size in SIZES:
        at = kernel.at((size,))
        assert at.scratch_bytes == 2 * -(-16 * size // 64) * 64
        given, out = RNG.standard_normal((size, 4)).astype("float32"), np.full((size, 4), np.nan, "float32")
        run_kernel(at, [given, out])
        np.testing.assert_allclose(out, 2 * given[:, ::-1] + 1 + 2 * given, rtol=1e-6)
    with pytest.raises(ShapeError, match="bytes between launches"):
        kernel.at((1 << 25,))
