"""TVM's calls of mbarriers and of bulk copies in scripts, on the emulator."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.mbarriers import Mbarriers
from autosched.errors import CodegenError
from autosched.ir.structural import structural_equal
from autosched.script import from_source
from autosched.script import tir as T

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
ORDERS = ("late", "ahead")
A = np.random.default_rng(0).integers(-99, 99, (32, 128)).astype("f")


def run(func, array=A, arch="sm_90"):
    """(the kernel, what it gives) of a function, printed and read back, in both orders of the emulator."""
    again = from_source(func.script())
    assert structural_equal(func, again) and again.script() == func.script()
    kernel = compile_func(again, f"cuda -arch={arch}", use_cache=False).kernel
    for resources in kernel.resources.launches:
        assert not resources.stack_bytes and not resources.spill_bytes
    results = []
    for order in ORDERS:
        results.append(np.zeros_like(array))
        emulate.run_kernel(kernel, [array, results[-1]], order=order)
    np.testing.assert_array_equal(*results)
    return kernel, results[0]


def fault_of(func):
    """What the emulator says of a function whose phases nobody looks at before."""
    kernel = compile_func(func, "cuda -arch=sm_90", use_cache=False).kernel
    found = {}
    for order in ORDERS:
        try:
            emulate.run_kernel(kernel, [A, np.zeros_like(A)], order=order)
        except emulate.EmulationError as error:
            found[order] = str(error)
    return found


def copies(wait=True, arrive=True, count=32):
    """TVM's example: B is A with its rows backwards, by copies that a thread begins and an mbarrier waits for."""

    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((32, 128), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                T.evaluate(T.create_barriers(1, dtype=""))
                T.evaluate(T.ptx_init_barrier_thread_count(0, count, dtype=""))
                for i in range(32):
                    T.evaluate(T.ptx_cp_async(S.data, tx * 128 + 4 * i, A.data, tx * 128 + 4 * i, 16, dtype="float32"))
                T.evaluate(T.ptx_cp_async_barrier(0, dtype=""))
                if arrive:
                    T.evaluate(T.ptx_arrive_barrier(0, dtype=""))
                if wait:
                    T.evaluate(T.ptx_wait_barrier(0, dtype=""))
                for i in range(128):
                    B[31 - tx, i] = S[31 - tx, i]

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_copies_of_threads(arch):
    kernel, out = run(copies(), arch=arch)
    np.testing.assert_array_equal(out, A)
    names = ("mbarrier.init", "cp.async.mbarrier.arrive.shared", "mbarrier.arrive", "mbarrier.test_wait")
    assert all(name in kernel.ptx for name in names)
    assert kernel.ptx.count("bar.sync") == 1  # behind the initialisation; the mbarrier is one for the copies


@pytest.mark.emulated
def test_a_missing_wait_for_copies_is_found():
    found = fault_of(copies(wait=False))
    assert "asynchronous copy" in found["late"]


@pytest.mark.emulated
def test_a_missing_arrival_is_found():
    found = fault_of(copies(arrive=False))
    assert found.keys() == {*ORDERS}


@pytest.mark.emulated
def test_a_count_that_is_too_large_is_found():
    assert fault_of(copies(count=33)).keys() == {*ORDERS}


@pytest.mark.emulated
def test_a_count_that_is_too_small_is_found():
    assert fault_of(copies(count=16))


def bulk(wait=True, expect=512, count=32, who="tx"):
    """TVM's example with a copy of a row by each thread."""

    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((32, 128), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                T.evaluate(T.create_barriers(1, dtype=""))
                T.evaluate(T.ptx_init_barrier_thread_count(0, count, dtype=""))
                T.evaluate(T.ptx_cp_async_bulk(S.data, tx * 128, A.data, tx * 128, 512, 0, dtype="float32"))
                T.evaluate(T.ptx_arrive_barrier_expect_tx(0, expect, dtype=""))
                if wait:
                    T.evaluate(T.ptx_wait_barrier(0, dtype=""))
                for i in range(128):
                    B[31 - tx, i] = S[31 - tx, i]

    return main


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100"])
def test_bulk_copies(arch):
    kernel, out = run(bulk(), arch=arch)
    np.testing.assert_array_equal(out, A)
    text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    assert all(name in kernel.ptx for name in (text, "mbarrier.arrive.expect_tx", "mbarrier.try_wait"))
    assert kernel.ptx.count("bar.sync") == 1


@pytest.mark.emulated
def test_a_missing_wait_for_bulk_copies_is_refused_and_found(monkeypatch):
    with pytest.raises(CodegenError, match=r"'S' is read while a bulk copy .*T.ptx_wait_barrier\(0\)"):
        lower_device(bulk(wait=False))
    monkeypatch.setattr(Mbarriers, "finish", lambda self, nest: nest)
    assert fault_of(bulk(wait=False)).keys() == {*ORDERS}


@pytest.mark.emulated
@pytest.mark.parametrize("expect", [496, 528])
def test_bytes_that_are_not_those_of_the_copies_are_found(expect):
    assert fault_of(bulk(expect=expect)).keys() == {*ORDERS}


def test_one_thread_copies_and_all_wait():
    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((2, 128), "float32", scope="shared.dyn")
        for b in T.thread_binding(16, thread="blockIdx.x"):
            for ty in T.thread_binding(2, thread="threadIdx.y"):
                for tx in T.thread_binding(64, thread="threadIdx.x"):
                    T.create_barriers(1)
                    if tx == 0 and ty == 0:
                        T.ptx_init_barrier_thread_count(0, 1)
                        T.ptx_arrive_barrier_expect_tx(0, 1024)
                        T.ptx_cp_async_bulk("float32", S.data, 0, A.data, b * 256, 1024, 0)
                    T.ptx_wait_barrier(0)
                    for i in range(2):
                        B[b * 2 + ty, tx * 2 + i] = S[ty, tx * 2 + i] + T.float32(1)

    kernel, out = run(main)
    np.testing.assert_array_equal(out, A + 1)
    assert kernel.ptx.count("bar.sync") == 1  # for the initialisation


def test_warps_that_copy_and_warps_that_compute():
    """A row for each step; who computes frees a row by an mbarrier before the next copy goes there."""

    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        for b in T.thread_binding(16, thread="blockIdx.x"):
            for ty in T.thread_binding(2, thread="threadIdx.y"):
                for tx in T.thread_binding(32, thread="threadIdx.x"):
                    T.create_barriers(3)
                    T.ptx_init_barrier_thread_count(0, 1)
                    T.ptx_init_barrier_thread_count(1, 1)
                    T.ptx_init_barrier_thread_count(2, 32)
                    if ty == 0:
                        if tx == 0:
                            T.ptx_arrive_barrier_expect_tx(0, 512)
                            T.ptx_cp_async_bulk("float32", S.data, 0, A.data, b * 256, 512, 0)
                            T.ptx_wait_barrier(2)
                            T.ptx_arrive_barrier_expect_tx(1, 512)
                            T.ptx_cp_async_bulk("float32", S.data, 0, A.data, b * 256 + 128, 512, 1)
                    else:
                        T.ptx_wait_barrier(0)
                        for i in range(4):
                            B[b * 2, tx * 4 + i] = S[tx * 4 + i]
                        T.ptx_arrive_barrier(2)
                        T.ptx_wait_barrier(1)
                        for i in range(4):
                            B[b * 2 + 1, tx * 4 + i] = S[tx * 4 + i]

    kernel, out = run(main)
    np.testing.assert_array_equal(out, A)
    assert kernel.ptx.count("bar.sync") == 1


@pytest.mark.emulated
def test_a_copy_that_does_not_wait_for_those_who_read_is_found():
    text = """
@T.prim_func
def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
    S = T.alloc_buffer((128,), "float32", scope="shared")
    for b in T.thread_binding(16, thread="blockIdx.x"):
        for ty in T.thread_binding(2, thread="threadIdx.y"):
            for tx in T.thread_binding(32, thread="threadIdx.x"):
                T.create_barriers(2)
                T.ptx_init_barrier_thread_count(0, 1)
                T.ptx_init_barrier_thread_count(1, 1)
                if ty == 0:
                    if tx == 0:
                        T.ptx_arrive_barrier_expect_tx(0, 512)
                        T.ptx_cp_async_bulk("float32", S.data, 0, A.data, b * 256, 512, 0)
                        T.ptx_arrive_barrier_expect_tx(1, 512)
                        T.ptx_cp_async_bulk("float32", S.data, 0, A.data, b * 256 + 128, 512, 1)
                else:
                    T.ptx_wait_barrier(0)
                    T.ptx_wait_barrier(1)
                    for i in range(4):
                        B[b * 2 + 1, tx * 4 + i] = S[tx * 4 + i]
"""
    assert fault_of(from_source(text))


def test_barriers_for_each_step_of_an_unrolled_loop():
    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((4, 128), "float32", scope="shared")
        for b in T.thread_binding(8, thread="blockIdx.x"):
            for tx in T.thread_binding(128, thread="threadIdx.x"):
                T.create_barriers(4)
                for k in T.unroll(4):
                    T.ptx_init_barrier_thread_count(k, 1)
                for k in T.unroll(4):
                    if tx == 32:
                        T.ptx_arrive_barrier_expect_tx(k, 512)
                        T.ptx_cp_async_bulk("float32", S.data, k * 128, A.data, (b * 4 + k) * 128, 512, k)
                for k in T.unroll(4):
                    T.ptx_wait_barrier(k)
                    B[b * 4 + k, tx] = S[k, 127 - tx]

    kernel, out = run(main)
    np.testing.assert_array_equal(out, A[:, ::-1])
    assert kernel.ptx.count("bar.sync") == 1


def test_an_mbarrier_that_each_iteration_initialises():
    """It is given back at the end of each, and no copy begins before all have read."""

    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(128, thread="threadIdx.x"):
                T.create_barriers(1)
                for k in range(8):
                    T.ptx_init_barrier_thread_count(0, 1)
                    if tx == 0:
                        T.ptx_arrive_barrier_expect_tx(0, 512)
                        T.ptx_cp_async_bulk("float32", S.data, 0, A.data, (b * 8 + k) * 128, 512, 0)
                    T.ptx_wait_barrier(0)
                    B[b * 8 + k, tx] = S[127 - tx]

    kernel, out = run(main)
    np.testing.assert_array_equal(out, A[:, ::-1])
    assert "mbarrier.inval" in kernel.ptx


def test_an_mbarrier_instead_of_a_barrier():
    """All arrive and wait, as many as it counts: what was stored before is there, without another barrier."""

    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        for b in T.thread_binding(32, thread="blockIdx.x"):
            for tx in T.thread_binding(128, thread="threadIdx.x"):
                T.create_barriers(1)
                T.ptx_init_barrier_thread_count(0, 128)
                T.tvm_storage_sync("shared")
                S[tx] = A[b, tx]
                T.ptx_arrive_barrier(0)
                T.ptx_wait_barrier(0)
                B[b, tx] = S[127 - tx]

    kernel, out = run(main, arch="sm_80")
    np.testing.assert_array_equal(out, A[:, ::-1])
    assert kernel.ptx.count("bar.sync") == 1
    call = "T.evaluate(T.ptx_arrive_barrier(0))"
    twice = main.script().replace(call, f"{call}\n{' ' * 12}{call}").replace("count(0, 128)", "count(0, 256)")
    kernel, out = run(from_source(twice), arch="sm_80")
    np.testing.assert_array_equal(out, A[:, ::-1])
    assert kernel.ptx.count("bar.sync") == 2


def test_each_launch_has_its_own():
    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        S = T.alloc_buffer((16, 128), "float32", scope="shared")
        R = T.alloc_buffer((16, 128), "float32", scope="shared")
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(16, thread="threadIdx.x"):
                T.create_barriers(1)
                T.ptx_init_barrier_thread_count(0, 16)
                T.ptx_arrive_barrier_expect_tx(0, 512)
                T.ptx_cp_async_bulk("float32", S.data, tx * 128, A.data, tx * 128, 512, 0)
                T.ptx_wait_barrier(0)
                for i in range(128):
                    B[tx, i] = S[15 - tx, i]
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for tx in T.thread_binding(16, thread="threadIdx.x"):
                T.create_barriers(2)
                T.ptx_init_barrier_thread_count(1, 16)
                T.ptx_arrive_barrier_expect_tx(1, 512)
                T.ptx_cp_async_bulk("float32", R.data, tx * 128, A.data, (tx + 16) * 128, 512, 1)
                T.ptx_wait_barrier(1)
                for i in range(128):
                    B[16 + tx, i] = R[15 - tx, i]

    _, out = run(main)
    np.testing.assert_array_equal(out, np.concatenate([A[15::-1], A[:15:-1]]))


@pytest.mark.parametrize(
    "func, arch, lacks",
    [(copies(), "sm_75", "cp.async, mbarrier"), (bulk(), "sm_80", "bulk"), (bulk(), "sm_75", "mbarrier")],
)
def test_architectures_that_lack_them(func, arch, lacks):
    with pytest.raises(CodegenError, match=f"{arch} lacks what the kernel uses.*{lacks}"):
        compile_func(func, f"cuda -arch={arch}", use_cache=False)


HEAD = """
@T.prim_func
def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
    S = T.alloc_buffer((128,), "float32", scope="shared")
    for b in T.thread_binding(32, thread="blockIdx.x"):
        for ty in T.thread_binding(2, thread="threadIdx.y"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
"""
CREATE, INIT = "T.create_barriers(2)\n", "T.create_barriers(2)\nT.ptx_init_barrier_thread_count(0, 128)\n"
BULK = 'T.ptx_cp_async_bulk("float32", S.data, {}, A.data, {}, {}, {})'
REFUSED = (
    ("T.ptx_arrive_barrier(0)", "stands before T.create_barriers"),
    ("T.ptx_wait_barrier(0)", "stands before T.create_barriers"),
    ("T.create_barriers(0)", "of none"),
    ("T.create_barriers(tx)", "constant"),
    (CREATE + "T.create_barriers(2)", "a second time"),
    ("for i in range(2):\n    T.create_barriers(2)", "in a loop or"),
    ("if tx == 0:\n    T.create_barriers(2)", "in a loop or"),
    (CREATE + "T.ptx_init_barrier_thread_count(2, 128)", "mbarrier 2, and T.create_barriers makes 2"),
    (CREATE + "T.ptx_init_barrier_thread_count(-1, 128)", "mbarrier -1"),
    (CREATE + "T.ptx_init_barrier_thread_count(tx, 128)", "number is"),
    (CREATE + "for i in range(2):\n    T.ptx_init_barrier_thread_count(i, 128)", "number is"),
    (CREATE + "T.ptx_init_barrier_thread_count(0, tx)", "constant"),
    (CREATE + "T.ptx_init_barrier_thread_count(0, 0)", "0 arrivals"),
    (CREATE + "T.ptx_init_barrier_thread_count(0, 1048576)", "1048576 arrivals"),
    (CREATE + "if tx < 32:\n    T.ptx_init_barrier_thread_count(0, 1)", "several threads may meet"),
    (CREATE + "if tx == 0:\n    T.ptx_init_barrier_thread_count(0, 1)", "several threads may meet"),
    (
        CREATE + "if tx < 32:\n    if tx == 0 and ty == 0:\n        T.ptx_init_barrier_thread_count(0, 32)\n"
        "    T.ptx_arrive_barrier(0)",
        "under the same condition",
    ),
    (CREATE + "if b == 0:\n    T.ptx_init_barrier_thread_count(0, 128)\nT.ptx_arrive_barrier(0)", "may not have been"),
    (CREATE + "T.ptx_arrive_barrier(0)", "may not have been initialised"),
    (INIT + "T.ptx_arrive_barrier(1)", "may not have been initialised"),
    (INIT + "T.ptx_arrive_barrier(2)", "mbarrier 2"),
    (INIT + "T.ptx_arrive_barrier_expect_tx(0, tx)", "constant"),
    (INIT + "T.ptx_arrive_barrier_expect_tx(0, 1048576)", "1048576 bytes"),
    (INIT + BULK.format(0, "b * 128", 12, 0), "multiple of 16 bytes"),
    (INIT + BULK.format(0, "b * 128", 0, 0), "multiple of 16 bytes"),
    (INIT + BULK.format(0, "b * 128", "tx", 0), "constant"),
    (INIT + BULK.format(0, "b * 128", 512, 5), "mbarrier 5"),
    (INIT + BULK.format(4, "b * 128", 512, 0), "128 elements of 'S' from 4"),
    (INIT + BULK.format(0, "b * 128 + 4", 512, 0), "128 elements of 'A'"),
    (INIT + BULK.format("tx", 0, 16, 0) + "\nT.ptx_wait_barrier(0)", "multiple of 16 bytes"),
    (INIT + BULK.format(0, "tx", 16, 0) + "\nT.ptx_wait_barrier(0)", "multiple of 16 bytes"),
    (INIT + "S[tx] = A[b, tx]\n" + BULK.format(0, "b * 128", 512, 0) + "\nT.ptx_wait_barrier(0)", "and from other"),
    (INIT + 2 * "T.ptx_arrive_barrier(0)\nT.ptx_wait_barrier(0)\n", "first phase of mbarrier 0"),
    (INIT + "for i in range(4):\n    T.ptx_arrive_barrier(0)\n    T.ptx_wait_barrier(0)", "first phase of mbarrier 0"),
    (CREATE + "for i in range(4):\n    if b == i:\n        T.ptx_init_barrier_thread_count(0, 128)", "or not"),
    (INIT + "while B[0, 0] < T.float32(1):\n    T.ptx_arrive_barrier(0)", "within While"),
    (INIT + "for v in T.vectorized(4):\n    T.ptx_arrive_barrier(0)", "vectorized"),
    (INIT + "for v in T.thread_binding(2, thread='vthread.x'):\n    T.ptx_arrive_barrier(0)", "virtual"),
    (INIT + "B[0, 0] = T.cast(T.ptx_arrive_barrier(0), 'float32')", "within an expression"),
)


@pytest.mark.parametrize("lines, why", REFUSED)
def test_what_is_refused(lines, why):
    whole = (*lines.splitlines(), "B[b, ty * 64 + tx] = S[ty * 64 + tx]")
    func = from_source(HEAD + "\n".join(" " * 16 + line for line in whole))
    with pytest.raises(CodegenError, match=why):
        compile_func(func, "cuda -arch=sm_90", use_cache=False)


def test_scripts_as_tvm_has_them():
    """Threads by env_thread, a block that uses them, copies that `async_scope` asks for: those may be plain ones."""

    @T.prim_func
    def plain(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")) -> None:
        T.func_attr({"global_symbol": "main", "tir.noalias": True})
        bx = T.env_thread("blockIdx.x")
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(bx, 1)
        T.launch_thread(tx, 32)
        with T.sblock():
            A_shared = T.alloc_buffer([32, 128], "float32", scope="shared")
            T.reads(A[0:32, 0:128])
            T.writes(B[0:32, 0:128])
            T.evaluate(T.create_barriers(1, dtype=""))
            T.evaluate(T.ptx_init_barrier_thread_count(0, 32, dtype=""))
            T.attr("default", "async_scope", 1)
            for i in T.serial(128):
                A_shared[tx, i] = A[tx, i]
            T.evaluate(T.ptx_cp_async_barrier(0, dtype=""))
            T.evaluate(T.ptx_arrive_barrier(0, dtype=""))
            T.evaluate(T.ptx_wait_barrier(0, dtype=""))
            for i in range(128):
                B[tx, i] = A_shared[tx, i]

    @T.prim_func
    def bulk_copy(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")) -> None:
        bx = T.env_thread("blockIdx.x")
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(bx, 1)
        T.launch_thread(tx, 32)
        with T.sblock():
            A_shared = T.alloc_buffer([32, 128], "float32", scope="shared")
            T.reads(A[0:32, 0:128])
            T.writes(B[0:32, 0:128])
            T.evaluate(T.create_barriers(1, dtype=""))
            T.evaluate(T.ptx_init_barrier_thread_count(0, 32, dtype=""))
            T.evaluate(T.ptx_cp_async_bulk(A_shared.data, tx * 128, A.data, tx * 128, 512, 0, dtype="float32"))
            T.evaluate(T.ptx_arrive_barrier_expect_tx(0, 512, dtype=""))
            T.evaluate(T.ptx_wait_barrier(0, dtype=""))
            for i in range(128):
                B[tx, i] = A_shared[tx, i]

    np.testing.assert_array_equal(run(plain, arch="sm_80")[1], A)
    np.testing.assert_array_equal(run(bulk_copy)[1], A)


def test_a_script_without_blocks():
    @T.prim_func
    def main(A: T.Buffer((32, 128), "float32"), B: T.Buffer((32, 128), "float32")):
        bx = T.env_thread("blockIdx.x")
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(bx, 32)
        T.launch_thread(tx, 128)
        B[bx, tx] = A[bx, 127 - tx]

    np.testing.assert_array_equal(run(main)[1], A[:, ::-1])
