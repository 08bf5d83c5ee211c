"""Reductions that threads share: shuffles within a warp, shared memory between warps."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen.lower.device import lower_device
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.testing.gpu import run_serially
from autosched.tir import Call
from autosched.tir.schedule import Schedule


def row_reduction(m, n, shared_by, rows=1, kind="sum", axis="x"):
    """Y[i] = sum or maximum of X[i, :], by `shared_by` threads along an axis."""
    x, k = te.placeholder((m, n), name="X"), te.reduce_axis((0, n), "k")
    combine = {"sum": te.sum, "max": te.max}[kind]
    y = te.compute((m,), lambda i: combine(x[i, k], axis=k), name="Y")
    s = Schedule(te.create_prim_func([x, y]))
    i, kk = s.get_loops("Y")
    outer, t = s.split(kk, [None, shared_by])
    b, row = s.split(i, [None, rows])
    s.reorder(b, row, outer, t)
    s.bind(b, "blockIdx.x")
    s.bind(row, "threadIdx.y" if axis == "x" else "threadIdx.x")
    s.bind(t, f"threadIdx.{axis}")
    return s


def softmax(m, n, threads, last=None):
    """Rows of softmax, each by one block: two reductions, whose results all threads use."""
    x = te.placeholder((m, n), name="X")
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), name="top")
    power = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]), name="power")
    total = te.compute((m,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    y = te.compute((m, n), lambda i, j: power[i, j] / total[i], name="Y")
    s = Schedule(te.create_prim_func([x, y]))
    s.compute_inline("power")
    i, j = s.get_loops("Y")
    s.bind(i, "blockIdx.x")
    for block in ("total", "top"):
        s.compute_at(block, i)
        s.set_scope(block, 0, "shared")
    for block in ("top", "total", "Y"):
        count = last if last and block == "Y" else threads
        s.bind(s.split(s.get_loops(block)[-1], [None, count])[1], "threadIdx.x")
    return s


@pytest.mark.parametrize(
    "m, n, shared_by, rows, kind, axis",
    [
        (5, 1000, 128, 1, "sum", "x"),
        (5, 100, 32, 4, "max", "x"),
        (7, 77, 16, 4, "sum", "x"),
        (3, 50, 24, 2, "sum", "x"),
        (6, 40, 8, 8, "max", "y"),
        (9, 300, 64, 3, "sum", "y"),
        (3, 2100, 1024, 1, "sum", "x"),
        (3, 10, 7, 3, "sum", "x"),
    ],
)
def test_rows(m, n, shared_by, rows, kind, axis):
    x, y = np.random.default_rng(0).standard_normal((m, n)).astype("f"), np.zeros(m, "f")
    run_serially(row_reduction(m, n, shared_by, rows, kind, axis).func, x, y)
    np.testing.assert_allclose(y, x.max(1) if kind == "max" else x.astype("d").sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [64, 100])
def test_softmax(n):
    x, y = np.random.default_rng(0).standard_normal((3, n)).astype("f"), np.zeros((3, n), "f")
    run_serially(softmax(3, n, 64).func, x, y)
    power = np.exp(x.astype("d") - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, power / power.sum(1, keepdims=True), rtol=1e-5)


def lanes(s):
    (launch,) = lower_device(s.func).launches
    return [x.args[2].value for x in preorder(launch.body) if isinstance(x, Call) and x.op == "lanes"], launch


def test_a_warp_needs_no_shared_memory():
    widths, launch = lanes(row_reduction(4, 64, 32))
    assert widths == [32]
    assert launch.shared_bytes == 0


def test_neighbours_of_a_power_of_two_share_lanes():
    assert lanes(row_reduction(4, 64, 24))[0] == [8]
    assert lanes(row_reduction(4, 64, 7))[0] == []


def test_other_combinations_are_refused():
    x, k = te.placeholder((4, 64), name="X"), te.reduce_axis((0, 64), "k")
    first = te.comm_reducer(lambda a, b: te.if_then_else(a > b, a, b * 1.0), lambda dtype: te.const(0, dtype))
    y = te.compute((4,), lambda i: first(x[i, k], axis=k), name="Y")
    s = Schedule(te.create_prim_func([x, y]))
    i, kk = s.get_loops("Y")
    s.bind(i, "blockIdx.x")
    s.bind(kk, "threadIdx.x")
    with pytest.raises(CodegenError, match="combines values in a way"):
        lower_device(s.func)


def test_loops_that_count_results_and_what_is_added_up_are_refused():
    x, k = te.placeholder((4, 2), name="X"), te.reduce_axis((0, 2), "k")
    s = Schedule(te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="Y")]))
    s.bind(s.fuse(*s.get_loops("Y")), "threadIdx.x")
    with pytest.raises(CodegenError, match="'i_k_fused' counts results too"):
        lower_device(s.func)


def test_threads_that_do_not_come_are_refused():
    with pytest.raises(CodegenError, match="the same extent"):
        lower_device(softmax(3, 64, 32, last=64).func)


@pytest.mark.parametrize("n, threads", [(64, 16), (77, 16), (300, 64)])
def test_what_is_copied_among_the_loops_of_a_reduction_does_not_start_it_again(n, threads):
    s = row_reduction(5, n, threads)
    outer = s.get_loops("Y")[2]
    copy = s.cache_read("Y", 0, "shared")
    s.compute_at(copy, outer)
    s.bind(s.get_loops(copy)[-1], "threadIdx.x")
    x, y = np.random.default_rng(0).random((5, n)).astype("float32"), np.zeros(5, "float32")
    run_serially(s.func, x, y)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5)
