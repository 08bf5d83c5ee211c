"""DLight's rules for GPUs end in kernels: right numbers with serial threads, machine code without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autosched import dlight as dl
from autosched import te, topi
from autosched.codegen import compile_func
from autosched.ir import IRModule
from autosched.target import Target
from autosched.te import Tensor, create_prim_func
from autosched.testing.gpu import run_serially

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_80")
RULES = (
    dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.GeneralReduction(), dl.gpu.Transpose(),
    dl.gpu.Fallback(),
)  # fmt: skip


def tensor(*shape: int, name: str) -> Tensor:
    return te.placeholder(shape, name=name)


A, B, V, X = tensor(64, 48, name="A"), tensor(48, 32, name="B"), tensor(1, 48, name="V"), tensor(6, 70, name="X")
CASES: dict[str, tuple[list[Tensor], Callable[..., np.ndarray]]] = {
    "product": ([A, B, topi.relu(topi.matmul(A, B))], lambda a, b: np.maximum(a @ b, 0)),
    "vector times matrix": ([V, B, topi.matmul(V, B)], lambda v, b: v @ b),
    "sums of rows": ([X, topi.sum(X, -1)], lambda x: x.sum(-1)),
    "softmax": ([X, topi.softmax(X, -1)], lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "transpose": ([X, topi.transpose(X, (1, 0))], lambda x: x.T),
    "elements": ([X, topi.exp(X)], np.exp),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_give_kernels(name: str) -> None:
    tensors, reference = CASES[name]
    with TARGET:
        module = dl.ApplyDefaultSchedule(*RULES)(IRModule({"main": create_prim_func(tensors)}))
    func = module["main"]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers[:-1]]
    out = np.full(func.buffers[-1].const_shape(), np.nan, np.float32)
    run_serially(func, *inputs, out)
    np.testing.assert_allclose(out, reference(*inputs), rtol=1e-4, atol=1e-5)
    assert compile_func(func, TARGET, name="main").kernel.images["sm_80"].startswith(b"\x7fELF")


def test_a_product_is_summed_in_registers() -> None:
    """Each result is written once, and sums of halves are rounded once."""
    a, b = (te.placeholder(shape, "float16", name=n) for shape, n in (((64, 129), "a"), ((129, 32), "b")))
    with TARGET:
        module = dl.ApplyDefaultSchedule(*RULES)(IRModule({"main": create_prim_func([a, b, topi.matmul(a, b)])}))
    x, y = (
        np.random.default_rng(0).standard_normal(t.const_shape()).astype("float16") for t in module["main"].buffers[:2]
    )
    out, expected = np.zeros((64, 32), "float16"), x.astype("float64") @ y.astype("float64")
    run_serially(module["main"], x, y, out)
    assert np.abs(out - expected).max() <= 5e-4 * np.abs(expected).max()
    kernel = compile_func(module["main"], TARGET, name="main").kernel
    assert kernel.ptx.count("st.global") == dl.gpu.Matmul.per_thread[0] * dl.gpu.Matmul.per_thread[1]
