"""TVM's calls of PTX instructions in scripts, on the emulator."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.lower import device
from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.device import lower_device
from autosched.errors import CodegenError, InvalidTypeError, ScriptError
from autosched.ir.node import preorder
from autosched.ir.structural import structural_equal
from autosched.script import from_source
from autosched.script import tir as T
from autosched.tir.checked_index import CHECKED
from autosched.tir.expr import const_int
from autosched.tir.interpret import interpret
from autosched.tir.stmt import Block, Stmt
from tests.spread import cover

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


@cover(
    ("depth, in_type, out_type, in_dtype, out_dtype", [
        (16, "fp16", "fp32", "float16", "float32"), (8, "fp16", "fp32", "float16", "float32"),
        (16, "fp16", "fp16", "float16", "float16"), (8, "fp16", "fp16", "float16", "float16"),
        (16, "bf16", "fp32", "bfloat16", "float32"), (8, "bf16", "fp32", "bfloat16", "float32"),
        (8, "tf32", "fp32", "float32", "float32"), (4, "tf32", "fp32", "float32", "float32"),
        (32, "int8", "int32", "int8", "int32"), (16, "int8", "int32", "int8", "int32"),
        (32, "uint8", "int32", "uint8", "int32"), (16, "uint8", "int32", "uint8", "int32"),
    ]),
    ("arch", ["sm_80", "sm_90"]),
    together=1,
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
    monkeypatch.setattr(device, "place_barriers", lambda body, *_: body)
    np.testing.assert_array_equal(run(exchange(True), [a], np.zeros_like(a))[1], a[::-1])
    with pytest.raises(emulate.EmulationError, match="race"):
        run(exchange(False), [a], np.zeros_like(a))


MOVED = """
@T.prim_func
def main(A: T.Buffer((64,), "DTYPE"), B: T.Buffer((64,), "DTYPE")):
    V = T.alloc_buffer((1,), "DTYPE", scope="local")
    for _ in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            V[0] = A[t]
            V[0] = CALL
            B[t] = V[0]
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "call, source",
    [
        ("T.tvm_warp_shuffle(T.tvm_warp_activemask(), V[0], 3, 32, 32)", lambda i: i // 32 * 32 + 3),
        ("T.tvm_warp_shuffle(-1, V[0], t + 1, 8, 32)", lambda i: i // 8 * 8 + (i + 1) % 8),
        ("T.tvm_warp_shuffle_up(-1, V[0], 2, 32, 32)", lambda i: np.where(i % 32 >= 2, i - 2, i)),
        ("T.tvm_warp_shuffle_up(-1, V[0], 2, 8, 32)", lambda i: np.where(i % 8 >= 2, i - 2, i)),
        ("T.tvm_warp_shuffle_down(T.uint32(4294967295), V[0], 4, 16, 32)", lambda i: np.where(i % 16 < 12, i + 4, i)),
        ("T.tvm_warp_shuffle_xor(-1, V[0], 5, 32, 32)", lambda i: i ^ 5),
    ],
)
def test_shuffles(call, source, dtype):
    func = from_source(MOVED.replace("DTYPE", dtype).replace("CALL", call))
    a = np.arange(64).astype("uint16" if dtype == "bfloat16" else dtype)  # bfloat16: bits, those of small numbers
    kernel, out = run(func, [a], np.zeros_like(a))
    assert "shfl.sync" in kernel.ptx
    np.testing.assert_array_equal(out, a[source(np.arange(64))])


def test_sum_of_a_warp_by_shuffles():
    @T.prim_func
    def main(A: T.Buffer((4, 64), "float32"), B: T.Buffer((4, 2), "float32")):
        V = T.alloc_buffer((1,), "float32", scope="local")
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for y in T.thread_binding(2, thread="threadIdx.y"):
                for t in T.thread_binding(32, thread="threadIdx.x"):
                    V[0] = A[b, y * 32 + t]
                    for i in T.unroll(5):
                        V[0] = V[0] + T.tvm_warp_shuffle_down(T.tvm_warp_activemask(), V[0], 16 >> i, 32, 32)
                    if t == 0:
                        B[b, y] = V[0]

    a = np.random.default_rng(0).integers(-9, 9, (4, 64)).astype("f")
    _, out = run(main, [a], np.zeros((4, 2), "f"))
    np.testing.assert_array_equal(out, a.reshape(4, 2, 32).sum(2))


def test_barrier_of_a_warp():
    @T.prim_func
    def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        V = T.alloc_buffer((1,), scope="local")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                V[0] = A[t]
                T.tvm_storage_sync("warp")
                B[t] = V[0]

    a = np.arange(32, dtype="f")
    kernel, out = run(main, [a], np.zeros_like(a))
    assert "bar.warp.sync" in kernel.ptx
    np.testing.assert_array_equal(out, a)


@T.prim_func
def gemm(A: T.Buffer((64, 64), "float16"), B: T.Buffer((32, 64), "float16"), C: T.Buffer((64, 32), "float32")):
    """C = A @ B.T: a block of two warps has 32 x 16 of it, copied asynchronously in steps of 16 of the reduction."""
    A_shared = T.alloc_buffer((32, 16), "float16", scope="shared")
    B_shared = T.alloc_buffer((16, 16), "float16", scope="shared")
    A_local = T.alloc_buffer((8,), "float16", scope="local")
    B_local = T.alloc_buffer((8,), "float16", scope="local")
    C_local = T.alloc_buffer((8,), "float32", scope="local")
    for by in T.thread_binding(2, thread="blockIdx.y"):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for ty in T.thread_binding(2, thread="threadIdx.y"):
                for tx in T.thread_binding(32, thread="threadIdx.x"):
                    T.mma_fill("float32", 8, C_local.data, 0)
                    for k in range(4):
                        T.tvm_storage_sync("shared")
                        T.ptx_cp_async(
                            "float16",
                            A_shared.data,
                            (ty * 32 + tx) * 8,
                            A.data,
                            (by * 32 + ty * 16 + tx // 2) * 64 + k * 16 + tx % 2 * 8,
                            16,
                        )
                        if ty == 0:
                            T.ptx_cp_async(
                                "float16",
                                B_shared.data,
                                tx * 8,
                                B.data,
                                (bx * 16 + tx // 2) * 64 + k * 16 + tx % 2 * 8,
                                16,
                            )
                        T.ptx_commit_group()
                        T.ptx_wait_group(0)
                        T.tvm_storage_sync("shared")
                        T.ptx_ldmatrix(
                            "float16",
                            False,
                            4,
                            ".b16",
                            A_local.data,
                            0,
                            A_shared.data,
                            ty * 256 + tx % 16 * 16 + tx // 16 * 8,
                        )
                        T.ptx_ldmatrix(
                            "float16",
                            False,
                            4,
                            ".b16",
                            B_local.data,
                            0,
                            B_shared.data,
                            tx // 16 * 128 + tx % 8 * 16 + tx // 8 % 2 * 8,
                        )
                        for j in range(2):
                            T.ptx_mma(
                                "float32",
                                "m16n8k16",
                                "row",
                                "col",
                                "fp16",
                                "fp16",
                                "fp32",
                                A_local.data,
                                0,
                                B_local.data,
                                j * 4,
                                C_local.data,
                                j * 4,
                                False,
                            )
                    T.mma_store(
                        "float32", 16, 16,
                        C.access_ptr("w", offset=(by * 32 + ty * 16) * 32 + bx * 16, extent=496), C_local.data, 0, 32,
                    )  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_product_of_matrices(arch):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (64, 64)).astype("float16"), rng.integers(-4, 5, (32, 64)).astype("float16")
    kernel, out = run(gemm, [a, b], np.full((64, 32), 99, "f"), arch)
    assert barriers_of(gemm) == 2  # the script's own
    np.testing.assert_array_equal(out, a.astype("f") @ b.astype("f").T)
    for resources in kernel.resources.launches:
        assert not resources.stack_bytes and not resources.spill_bytes


HEAD = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    S = T.alloc_buffer((64,), "float32", scope="shared")
    V = T.alloc_buffer((8,), "float32", scope="local")
    H = T.alloc_buffer((8,), "float16", scope="local")
    for _ in T.thread_binding(1, thread="blockIdx.x"):
        for y in T.thread_binding(2, thread="threadIdx.y"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for i in range(8):
                    V[i] = T.float32(0)
                    H[i] = T.float16(0)
"""
MMA = 'T.ptx_mma("float32", "{}", "{}", "col", "{}", "fp16", "fp32", H.data, 0, H.data, 0, V.data, {}, {})'
REFUSED = (
    ('T.ptx_cp_async("float32", S.data, t * 2, A.data, t * 2 + 1, 8)', "2 elements of 'A' from"),
    ('T.ptx_cp_async("float32", S.data, t * 2 - 1, A.data, t * 2, 8)', "2 elements of 'S' from"),
    ('T.ptx_cp_async("float32", S.data, t, A.data, T.cast(A[t], "int32"), 4)', "not proved to be inside"),
    ('T.ptx_cp_async("float32", S.data, t, A.data, t, 12)', "12 bytes"),
    ('T.ptx_cp_async("float32", A.data, t, S.data, t, 4)', "scope"),
    ('T.ptx_cp_async("float16", S.data, t, A.data, t, 4)', "addresses the float32 buffer 'S'"),
    ('T.ptx_ldmatrix("float32", False, 4, ".b16", V.data, 5, S.data, t % 8 * 4)', "4 elements of 'V' from 5"),
    ('T.ptx_ldmatrix("float32", False, 4, ".b16", V.data, 0, S.data, t * 4)', "4 elements of 'S'"),
    ('T.ptx_ldmatrix("float32", True, 4, ".b16", V.data, 0, S.data, 0)', "4 matrices"),
    ('T.ptx_ldmatrix("float32", False, 3, ".b16", V.data, 0, S.data, 0)', "3 matrices"),
    ('T.ptx_ldmatrix("float32", False, 4, ".b16", V.data, 0, S.data, t)', "multiple of 16 bytes"),
    (MMA.format("m8n8k4", "row", "fp16", 0, False), "m8n8k4"),
    (MMA.format("m16n8k16", "col", "fp16", 0, False), "m16n8k16 col"),
    (MMA.format("m16n8k16", "row", "bf16", 0, False), "bf16"),
    (MMA.format("m16n8k16", "row", "fp16", 5, False), "4 elements of 'V' from 5"),
    (MMA.format("m16n8k16", "row", "fp16", "t % 4", False), "stack"),
    (MMA.format("m16n8k16", "row", "fp16", 0, True), "saturate"),
    ("if t < 16:\n    " + MMA.format("m16n8k16", "row", "fp16", 0, False), "under a condition"),
    ("if A[0] < T.float32(1):\n    " + MMA.format("m16n8k16", "row", "fp16", 0, False), "under a condition"),
    ("for i in range(t):\n    " + MMA.format("m16n8k16", "row", "fp16", 0, False), "in the loop 'i'"),
    ('T.mma_fill("float32", 9, V.data, 0)', "9 elements of 'V'"),
    ('T.mma_store("float32", 16, 16, B.data, V.data, 0, 16)', "256 elements of 'B'"),
    ('T.tvm_storage_sync("global")', "scopes"),
    ('if t < 16:\n    T.tvm_storage_sync("shared")', "barrier"),
    ('if y < 1:\n    T.tvm_storage_sync("shared")', "barrier"),
    ('if t < 16:\n    T.tvm_storage_sync("warp")', "under a condition"),
    ("B[0] = T.tvm_warp_shuffle_down(-1, V[0], 1, 32, 32)", "local"),
    ("V[0] = T.if_then_else(t < 3, T.tvm_warp_shuffle_down(-1, V[0], 1, 32, 32), V[1])", "outside of choices"),
    ("V[0] = T.tvm_warp_shuffle_down(15, V[0], 1, 32, 32)", "mask"),
    ("V[0] = T.tvm_warp_shuffle_down(-1, V[0], 1, 24, 32)", "width"),
    ("T.ptx_wait_group(t)", "constant"),
)


REFUSED += (
    (
        'for v in T.thread_binding(2, thread="vthread.x"):\n    T.ptx_cp_async("float32", S.data, t + v, A.data, t, 4)',
        "virtual",
    ),
    ('for k in T.serial(4, annotations={"software_pipeline_stage": [0]}):\n    T.ptx_commit_group()', "pipeline"),
)


@pytest.mark.parametrize("line, why", REFUSED)
def test_what_is_refused(line, why):
    lines = [" " * 16 + part for part in (*line.splitlines(), "B[y * 32 + t] = V[0] + T.cast(H[0], 'float32') + S[t]")]
    func = from_source(HEAD + "\n".join(lines))
    with pytest.raises(CodegenError, match=why):
        compile_func(func, "cuda -arch=sm_80", use_cache=False)


def test_a_condition_bounds_a_place():
    @T.prim_func
    def main(A: T.Buffer((40,), "float32"), B: T.Buffer((40,), "float32")):
        S = T.alloc_buffer((40,), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                if t < 10:
                    T.ptx_cp_async("float32", S.data, t * 4, A.data, t * 4, 16)
                T.ptx_commit_group()
                T.ptx_wait_group(0)
                T.tvm_storage_sync("shared")
                if t < 40:
                    B[t] = S[39 - t]

    a = np.arange(40, dtype="f")
    np.testing.assert_array_equal(run(main, [a], np.zeros_like(a))[1], a[::-1])


def test_a_condition_around_an_instruction_stays():
    """One that only decides which registers are written may go, but not what stands beside them."""

    @T.prim_func
    def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        V = T.alloc_buffer((1,), "float32", scope="local")
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for y in T.thread_binding(2, thread="threadIdx.y"):
                for t in T.thread_binding(32, thread="threadIdx.x"):
                    S[y * 32 + t] = T.float32(7)
                    if y < 1:
                        V[0] = T.float32(1)
                        T.ptx_cp_async("float32", S.data, y * 32 + t, A.data, y * 32 + t, 4)
                    T.ptx_commit_group()
                    T.ptx_wait_group(0)
                    B[y * 32 + t] = S[y * 32 + t]
                    if y < 1:
                        B[t] = B[t] + V[0]

    a = np.arange(64, dtype="f")
    _, out = run(main, [a], np.zeros_like(a))
    np.testing.assert_array_equal(out, np.where(a < 32, a + 1, 7))


def test_a_guarded_store_leaves_what_a_copy_wrote():
    @T.prim_func
    def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        S = T.alloc_buffer((32,), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                T.ptx_cp_async("float32", S.data, t, A.data, t, 4)
                T.ptx_commit_group()
                T.ptx_wait_group(0)
                if t < 8:
                    S[t] = A[31 - t]
                B[t] = S[t]

    a = np.arange(32, dtype="f")
    np.testing.assert_array_equal(run(main, [a], np.zeros_like(a))[1], np.where(a < 8, 31 - a, a))


def test_with_checks():
    """The places are proved, so that they need no check, and the other accesses are."""
    a = np.random.default_rng(0).standard_normal((4, 128)).astype("f")
    func = copies(True)
    _, out = run(func.with_attr(CHECKED, True), [a], np.zeros_like(a))
    np.testing.assert_array_equal(out, a[:, ::-1])


def test_a_condition_on_what_a_copy_writes():
    """Conditions move; what an instruction writes by its pointer must not decide."""

    @T.prim_func
    def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        S = T.alloc_buffer((32,), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                T.ptx_cp_async("float32", S.data, t, A.data, t, 4)
                T.ptx_wait_group(0)
                if S[0] > T.float32(0):
                    B[t] = S[t]

    with pytest.raises(CodegenError, match="a condition or a loop reads 'S'"):
        lower_device(main)


def test_names():
    assert hasattr(T, "ptx_mma") and not hasattr(T, "ptx_x")
    with pytest.raises(ScriptError, match=r"unknown function T.ptx_mma_sp; known are .*T.ptx_mma.*"):
        from_source(HEAD + " " * 16 + "T.ptx_mma_sp(0)")
    with pytest.raises(ScriptError, match="'S'"):
        from_source(HEAD + " " * 16 + 'T.ptx_cp_async("float32", S, 0, A.data, 0, 4)')


def test_the_interpreter_says_what_it_lacks():
    with pytest.raises(InvalidTypeError, match="runs one thread after the other, and T.ptx_cp_async"):
        interpret(copies(True), [np.zeros((4, 128), "f"), np.zeros((4, 128), "f")])


def test_a_block_that_addresses_a_buffer_reads_and_writes_all_of_it():
    func = from_source(
        HEAD
        + '                with T.block("copy"):\n'
        + '                    T.ptx_cp_async("float32", S.data, 0, A.data, 0, 4)\n'
    )
    block = next(n for n in preorder(func.body) if isinstance(n, Block) and n.name_hint == "copy")
    assert [r.buffer.name for r in block.writes] == [r.buffer.name for r in block.reads] == ["S", "A"]
    assert all(const_int(r.region[0].extent) == 64 for r in (*block.reads, *block.writes))


@pytest.mark.parametrize(
    "condition",
    ["y == 1", "y > 0", "y < 2", "1 <= y and y < 3", "y * 2 == 4", "y % 2 == 1", "not y < 3", "y == (t + 1) % 4"],
)
def test_a_store_under_a_condition_of_threads_that_its_indices_lack(condition):
    """It was done by the first thread along the axis, which may not come there: nothing was stored, in silence."""
    text = f"""
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for _ in T.thread_binding(1, thread="blockIdx.x"):
        for y in T.thread_binding(4, thread="threadIdx.y"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                if {condition}:
                    S[t] = A[t] + T.float32(1)
                if not ({condition}):
                    pass
                else:
                    C[t] = A[t]
                T.tvm_storage_sync("shared")
                if y == 2:
                    B[t] = S[t]
"""
    a = np.arange(32, dtype="f")
    kernel = compile_func(from_source(text), "cuda -arch=sm_80", use_cache=False).kernel
    for order in ORDERS:
        b, c = np.zeros_like(a), np.zeros_like(a)
        emulate.run_kernel(kernel, [a, b, c], order=order)
        np.testing.assert_array_equal(b, a + 1)
        np.testing.assert_array_equal(c, a)


def test_a_sum_of_threads_that_a_condition_does_not_choose():
    text = """
@T.prim_func
def main(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for _ in T.thread_binding(1, thread="blockIdx.x"):
        for y in T.thread_binding(4, thread="threadIdx.y"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                S[t] = A[t]
                if y + t > 3:
                    B[t] = B[t] + A[t]
"""
    with pytest.raises(CodegenError, match="several threads may add up"):
        lower_device(from_source(text))
