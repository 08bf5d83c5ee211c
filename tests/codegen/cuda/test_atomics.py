"""Sums that threads of one block and of several add to at once, on the emulator, on CPUs and by the interpreter."""

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.device import lower_device
from autosched.errors import CodegenError, InvalidTypeError
from autosched.ir.node import preorder
from autosched.script import tir as T
from autosched.tir.calls import atomic_add
from autosched.tir.interpret import interpret

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")


def scatter(dtype):
    """out[where[i]] += x[i], with as many threads as elements; out begins as zeros."""

    @T.prim_func
    def main(x: T.Buffer((300,), dtype), where: T.Buffer((300,), "int32"), out: T.Buffer((7,), dtype)):
        for i in T.thread_binding(7, thread="blockIdx.x"):
            with T.block("zero"):
                v = T.axis.spatial(7, i)
                out[v] = T.cast(0, dtype)
        for b in T.thread_binding(5, thread="blockIdx.x"):
            for t in T.thread_binding(60, thread="threadIdx.x"):
                with T.block("add"):
                    v = T.axis.spatial(300, b * 60 + t)
                    T.reads(x[v], where[v], out[0:7])
                    T.writes(out[0:7])
                    out[where[v]] = T.atomic_add(out[where[v]], x[v])

    return main


@T.prim_func
def histogram(x: T.Buffer((256,), "int32"), out: T.Buffer((16,), "int32")):
    """A block's counts in shared memory; TVM's form of the call."""
    counts = T.alloc_buffer((16,), "int32", scope="shared")
    for _ in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding(16, thread="threadIdx.x"):
            with T.block("zero"):
                v = T.axis.spatial(16, t)
                counts[v] = 0
        for t in T.thread_binding(64, thread="threadIdx.x"):
            for k in range(4):
                with T.block("count"):
                    v = T.axis.spatial(256, k * 64 + t)
                    T.reads(x[v], counts[0:16])
                    T.writes(counts[0:16])
                    T.evaluate(T.call_intrin("int32", "tir.atomic_add", T.address_of(counts[x[v]]), 1))
        for t in T.thread_binding(16, thread="threadIdx.x"):
            with T.block("write"):
                v = T.axis.spatial(16, t)
                out[v] = counts[v]


def run(func, arrays, out, order, arch="sm_80"):
    kernel = compile_func(func, f"cuda -arch={arch}", use_cache=False).kernel
    emulate.run_kernel(kernel, [*arrays, out], order=order)
    return kernel


@pytest.mark.parametrize("order", ["late", "ahead"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
def test_scatter_with_duplicates(dtype, order):
    rng = np.random.default_rng(0)
    x, where = rng.integers(-4, 4, 300).astype(dtype), rng.integers(0, 7, 300).astype("int32")
    expected, out = np.zeros(7, dtype), np.full(7, 9, dtype)
    np.add.at(expected, where, x)
    kernel = run(scatter(dtype), [x, where], out, order)
    assert "red.global.add" in kernel.ptx
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("order", ["late", "ahead"])
def test_counts_in_shared_memory(order):
    x, out = np.random.default_rng(0).integers(0, 16, 256).astype("int32"), np.zeros(16, "int32")
    kernel = run(histogram, [x], out, order)
    assert "red.shared.add.s32" in kernel.ptx
    np.testing.assert_array_equal(out, np.bincount(x, minlength=16))
    (launch,) = lower_device(histogram).launches
    assert sum(is_barrier(n) for n in preorder(launch.body) if hasattr(n, "value")) == 2  # none between the sums


def test_on_a_cpu_and_by_the_interpreter():
    @T.prim_func
    def add(x: T.Buffer((3000,), "float32"), where: T.Buffer((3000,), "int32"), out: T.Buffer((7,), "float32")):
        for i in T.parallel(3000):
            with T.block("add"):
                v = T.axis.spatial(3000, i)
                T.reads(x[v], where[v], out[0:7])
                T.writes(out[0:7])
                out[where[v]] = T.atomic_add(out[where[v]], x[v])

    from autosched import build

    rng = np.random.default_rng(0)
    x, where = rng.integers(-4, 4, 3000).astype("f"), rng.integers(0, 7, 3000).astype("int32")
    expected = np.ones(7, "f")
    np.add.at(expected, where, x)
    out = np.ones(7, "f")
    interpret(add, [x, where, out])
    np.testing.assert_array_equal(out, expected)
    out = np.ones(7, "f")
    build(add, target="cpu", records=[])(x, where, out)
    np.testing.assert_array_equal(out, expected)


def test_threads_along_other_axes_add_once():
    @T.prim_func
    def main(x: T.Buffer((32,), "float32"), out: T.Buffer((1,), "float32"), copy: T.Buffer((4, 32), "float32")):
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("add"):
                    v = T.axis.spatial(32, t)
                    T.reads(x[v], out[0])
                    T.writes(out[0])
                    out[0] = T.atomic_add(out[0], x[v])
            for y in T.thread_binding(4, thread="threadIdx.y"):
                for t in T.thread_binding(32, thread="threadIdx.x"):
                    with T.block("copy"):
                        u, v = T.axis.remap("SS", [y, t])
                        copy[u, v] = x[v]

    x = np.arange(32, dtype="f")
    out, copy = np.zeros(1, "f"), np.zeros((4, 32), "f")
    kernel = compile_func(main, "cuda -arch=sm_80", use_cache=False).kernel
    emulate.run_kernel(kernel, [x, out, copy])
    assert out[0] == x.sum() and (copy == x).all()


def test_what_cannot_be_added_at_once():
    with pytest.raises(CodegenError, match="no thread adds at once to int8"):
        compile_func(scatter("int8"), "cuda -arch=sm_80", use_cache=False)
    with pytest.raises(InvalidTypeError, match="no element of a buffer"):
        atomic_add(1, 2)
