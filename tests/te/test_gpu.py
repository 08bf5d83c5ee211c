"""te's schedules for GPUs, as TVM's tutorials write them, on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.codegen import compile_func
from autosched.runtime.cuda.devices import use_driver
from autosched.target import Target
from autosched.templates import apply_config, default_config

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    from autosched.codegen.cuda.emulate import EmulatorDriver

    with use_driver(EmulatorDriver):
        yield


def on_device(array: np.ndarray) -> autosched.nd.NDArray:
    return autosched.nd.array(array.astype("float32"), autosched.cuda(0))


@pytest.mark.parametrize("virtual", [1, 2])
def test_tiles_that_all_threads_fetch_are_shared(virtual: int) -> None:
    """The product of TVM's GPU tutorials: tiles in shared memory, registers around each thread's sums."""
    n = 32
    a, b, k = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B"), te.reduce_axis((0, n), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    shared = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    local = [s.cache_read(x, "local", [c]) for x in shared]
    sums = s.cache_write(c, "local")
    threads = [te.thread_axis((0, 4), f"threadIdx.{x}") for x in "yx"]
    inner, thread_loops, order = [], [], [[], [], []]
    for axis, x, thread in zip(c.op.axis, "yx", threads, strict=True):
        block, rest = s[c].split(axis, factor=16)
        s[c].bind(block, te.thread_axis(f"blockIdx.{x}"))
        lane, rest = s[c].split(rest, nparts=virtual)
        s[c].bind(lane, te.thread_axis((0, virtual), "vthread"))
        own, rest = s[c].split(rest, nparts=4)
        s[c].bind(own, thread)
        thread_loops.append(own)
        inner.append(rest)
        for loops, loop in zip(order, (block, lane, own), strict=True):
            loops.append(loop)
    s[c].reorder(*(loop for loops in order for loop in loops), *inner)
    s[sums].compute_at(s[c], thread_loops[1])
    far, near = s[sums].split(s[sums].op.reduce_axis[0], factor=8)
    s[sums].reorder(far, near, *s[sums].op.axis)
    for copy, at in [(x, far) for x in shared] + [(x, near) for x in local]:
        s[copy].compute_at(s[sums], at)
    for copy in shared:
        for axis, thread in zip(s[copy].op.axis, threads, strict=True):
            own, _ = s[copy].split(axis, nparts=4)
            s[copy].bind(own, thread)
    made = autosched.build(s, [a, b, c], "cuda", name="product")
    (kernel,) = made.kernels.values()
    assert kernel.resources.shared_bytes == 2 * 16 * 8 * 4
    assert made.get_source("ptx") == kernel.ptx and ".shared" in kernel.ptx
    x, y = RNG.random((n, n)), RNG.random((n, n))
    out = on_device(np.zeros((n, n)))
    made(on_device(x), on_device(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-5)


def test_threads_share_a_sum() -> None:
    n, m = 7, 50
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _, lane = s[b].split(s[b].op.reduce_axis[0], factor=16)
    parts = s.rfactor(b, lane)
    block, own = s[b].split(s[b].op.axis[0], factor=4)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(own, te.thread_axis("threadIdx.y"))
    s[b].bind(s[b].op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    s[parts].compute_at(s[b], s[b].op.reduce_axis[0])
    made = autosched.build(s, [a, b], "cuda", name="sums")
    x = RNG.random((n, m))
    out = on_device(np.zeros(n))
    made(on_device(x), out)
    np.testing.assert_allclose(out.numpy(), x.sum(1), rtol=1e-5)


def test_vectors_of_any_length_and_the_device_part_of_their_module(tmp_path: Path) -> None:
    """TVM's first walk-through of te: its device module is printed, written, read and imported again."""
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    block, thread = s[c].split(c.op.axis[0], factor=64)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    add = autosched.build(s, [a, b, c], autosched.target.Target("cuda", host="llvm"), name="myadd")
    (code,) = add.imported_modules
    assert code.type_key == "cuda" and "cuda.threadIdx.x" in code.get_source() and ".entry" in code.get_source("ptx")
    code.save(str(tmp_path / "myadd.ptx"))
    loaded = autosched.runtime.load_module(str(tmp_path / "myadd.ptx"))
    for length in (1, 64, 1000):
        x, y = RNG.random(length), RNG.random(length)
        for function in (add, loaded):
            out = on_device(np.zeros(length))
            function(on_device(x), on_device(y), out)
            np.testing.assert_allclose(out.numpy(), x.astype("f") + y.astype("f"), rtol=1e-6)


def test_float64_becomes_float16_rounded_once() -> None:
    x = te.placeholder((3,), dtype="float64", name="x")
    func = te.create_prim_func([x, te.compute((3,), lambda i: x[i].astype("float16"), name="y")])
    target = Target("cuda -arch=sm_90a")
    scheduled = apply_config(func, default_config(func, target), target).func
    assert "cvt.rn.f16.f64" in compile_func(scheduled, target, name="kernel").kernel.ptx
