"""TVM's calls of PTX instructions in scripts, on the emulator."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.lower import device
from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.device import lower_device
from autosched.ir.node import preorder
from autosched.ir.structural import structural_equal
from autosched.script import from_source
from autosched.script import tir as T
from autosched.tir.stmt import Stmt

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
ORDERS = ("late", "ahead")


def run(func, arrays, out, arch="sm_80"):
    """`out` after the function, printed and read back, in both orders of the emulator."""
    again = from_source(func.script())
    assert structural_equal(func, again) and again.script() == func.script()
    kernel = compile_func(again, f"cuda -arch={arch}", use_cache=False).kernel
    results = []
    for order in ORDERS:
        results.append(out.copy())
        emulate.run_kernel(kernel, [*arrays, results[-1]], order=order)
    np.testing.assert_array_equal(*results)
    return kernel, results[0]


def product(depth, in_type, out_type, in_dtype, out_dtype):
    """C = A @ B.T of 16 x 8 by one warp, whose registers are filled element by element."""
    per_word = 4 // np.dtype(in_dtype).itemsize if in_dtype != "bfloat16" else 2
    n_a, n_b, words, shape = 16 * depth // 32, 8 * depth // 32, 16 * depth // 32 // per_word, f"m16n8k{depth}"
    half = 4 * per_word

    @T.prim_func
    def main(A: T.Buffer((16, depth), in_dtype), B: T.Buffer((8, depth), in_dtype), C: T.Buffer((16, 8), out_dtype)):
        A_local = T.alloc_buffer((n_a,), in_dtype, scope="local")
        B_local = T.alloc_buffer((n_b,), in_dtype, scope="local")
        C_local = T.alloc_buffer((4,), out_dtype, scope="local")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for w, e in T.grid(words, per_word):
                    A_local[w * per_word + e] = A[t // 4 + w % 2 * 8, t % 4 * per_word + e + w // 2 * half]
                for w, e in T.grid(words // 2, per_word):
                    B_local[w * per_word + e] = B[t // 4, t % 4 * per_word + e + w * half]
                T.mma_fill(out_dtype, 4, C_local.data, 0)
                T.evaluate(
                    T.ptx_mma(
                        shape, "row", "col", in_type, in_type, out_type, A_local.data, 0, B_local.data, 0,
                        C_local.data, 0, False, dtype=out_dtype,
                    )
                )  # fmt: skip
                for r in range(4):
                    C[t // 4 + r // 2 * 8, t % 4 * 2 + r % 2] = C_local[r]

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    "depth, in_type, out_type, in_dtype, out_dtype",
    [
        (16, "fp16", "fp32", "float16", "float32"), (8, "fp16", "fp32", "float16", "float32"),
        (16, "fp16", "fp16", "float16", "float16"), (8, "fp16", "fp16", "float16", "float16"),
        (16, "bf16", "fp32", "bfloat16", "float32"), (8, "bf16", "fp32", "bfloat16", "float32"),
        (8, "tf32", "fp32", "float32", "float32"), (4, "tf32", "fp32", "float32", "float32"),
        (32, "int8", "int32", "int8", "int32"), (16, "int8", "int32", "int8", "int32"),
        (32, "uint8", "int32", "uint8", "int32"), (16, "uint8", "int32", "uint8", "int32"),
    ],
)  # fmt: skip
def test_product_of_a_warp(depth, in_type, out_type, in_dtype, out_dtype, arch):
    rng = np.random.default_rng(depth)
    numbers = [rng.integers(0 if in_type == "uint8" else -4, 5, (n, depth)) for n in (16, 8)]
    if in_dtype == "bfloat16":
        arrays = [(x.astype("f").view("u4") >> 16).astype("u2") for x in numbers]
    else:
        arrays = [x.astype(in_dtype) for x in numbers]
    func = product(depth, in_type, out_type, in_dtype, out_dtype)
    kernel, out = run(func, arrays, np.full((16, 8), 99, out_dtype), arch)
    assert f"mma.sync.aligned.m16n8k{depth}.row.col" in kernel.ptx
    np.testing.assert_array_equal(out, numbers[0] @ numbers[1].T)


def matrices(count, trans):
    """What each lane has of `count` matrices that lie one below the other."""

    @T.prim_func
    def main(A: T.Buffer((8 * count, 8), "float16"), B: T.Buffer((32, 2 * count), "float16")):
        A_shared = T.alloc_buffer((8 * count, 8), "float16", scope="shared")
        A_local = T.alloc_buffer((2 * count,), "float16", scope="local")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for i in range(2 * count):
                    A_shared[(i * 32 + t) // 8, t % 8] = A[(i * 32 + t) // 8, t % 8]
                T.ptx_ldmatrix("float16", trans, count, ".b16", A_local.data, 0, A_shared.data, t % (8 * count) * 8)
                for i in range(2 * count):
                    B[t, i] = A_local[i]

    return main


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_from_shared_memory(count, trans):
    a = np.arange(64 * count).reshape(8 * count, 8).astype("float16")
    kernel, out = run(matrices(count, trans), [a], np.zeros((32, 2 * count), "float16"))
    assert f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * trans}.shared.b16" in kernel.ptx
    each = [m.T if trans else m for m in a.reshape(count, 8, 8)]
    np.testing.assert_array_equal(out, np.concatenate([m.reshape(32, 2) for m in each], 1))


def copies(wait, sync=True, size=16, offset=0):
    """B is A backwards, through shared memory."""
    n = size // 4

    @T.prim_func
    def main(A: T.Buffer((4, 32 * n), "float32"), B: T.Buffer((4, 32 * n), "float32")):
        A_shared = T.alloc_buffer((32 * n,), "float32", scope="shared")
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                T.ptx_cp_async("float32", A_shared.data, t * n, A.data, b * (32 * n) + t * n + offset, size)
                T.ptx_commit_group()
                if wait:
                    T.ptx_wait_group(0)
                if sync:
                    T.tvm_storage_sync("shared")
                for i in range(n):
                    B[b, t * n + i] = A_shared[32 * n - 1 - (t * n + i)]

    return main


@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copy(size):
    a = np.random.default_rng(0).standard_normal((4, 8 * size)).astype("f")
    kernel, out = run(copies(True, size=size), [a], np.zeros_like(a))
    assert all(text in kernel.ptx for text in ("cp.async.c", "cp.async.commit_group", "cp.async.wait_group 0"))
    assert kernel.ptx.count("bar.sync") == 1  # the script's own, no other
    np.testing.assert_array_equal(out, a[:, ::-1])


def test_a_missing_wait_is_found():
    a = np.ones((4, 128), "f")
    kernel = compile_func(copies(False), "cuda -arch=sm_80", use_cache=False).kernel
    with pytest.raises(emulate.EmulationError):
        emulate.run_kernel(kernel, [a, np.zeros_like(a)], order="late")


def barriers_of(func):
    return sum(isinstance(n, Stmt) and is_barrier(n) for n in preorder(lower_device(func).launches[0].body))


def exchange(sync):
    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                S[t] = A[t]
                if sync:
                    T.tvm_storage_sync("shared")
                B[t] = S[63 - t]

    return main


def test_a_barrier_that_a_script_has_and_one_that_it_lacks(monkeypatch):
    """The script's barrier is enough by itself; where it has none, one is placed, and without that the race shows."""
    a = np.arange(64, dtype="f")
    assert barriers_of(exchange(True)) == barriers_of(exchange(False)) == 1
    np.testing.assert_array_equal(run(exchange(True), [a], np.zeros_like(a))[1], a[::-1])
    np.testing.assert_array_equal(run(exchange(False), [a], np.zeros_like(a))[1], a[::-1])
    monkeypatch.setattr(device, "place_barriers", lambda body, ranges, divergent: body)
    np.testing.assert_array_equal(run(exchange(True), [a], np.zeros_like(a))[1], a[::-1])
    with pytest.raises(emulate.EmulationError, match="race"):
        run(exchange(False), [a], np.zeros_like(a))
