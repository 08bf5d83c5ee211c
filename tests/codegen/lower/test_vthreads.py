"""Virtual threads: what each of them holds stays in registers, however far apart it lies."""

from __future__ import annotations

import numpy as np

from autosched import te
from autosched.codegen.lower.device import lower_device
from autosched.ir.node import preorder
from autosched.te import create_prim_func
from autosched.testing.gpu import run_serially
from autosched.tir import Allocate, Schedule


def strided(n: int, rows: int) -> Schedule:
    """B = 2 * A + 1, where a thread has `rows` neighbours in each of two places that lie 8 * rows apart."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * te.const(2.0, "float32"), name="B")
    c = te.compute((n,), lambda i: b[i] + te.const(1.0, "float32"), name="C")
    sch = Schedule(create_prim_func([a, c]))
    block, far, thread, near = sch.split(sch.get_loops("C")[0], [None, 2, 8, rows])
    for loop, axis in ((block, "blockIdx.x"), (far, "vthread.x"), (thread, "threadIdx.x")):
        sch.bind(loop, axis)
    sch.compute_at("B", thread)
    sch.set_scope("B", 0, "local")
    del near
    return sch


def registers(sch: Schedule) -> list[tuple[int, ...]]:
    (launch,) = lower_device(sch.func).launches
    return [s.buffer.const_shape() for s in preorder(launch.body) if isinstance(s, Allocate)]


def test_a_register_buffer_has_a_part_for_each_virtual_thread() -> None:
    assert registers(strided(128, 4)) == [(2, 4)]


def test_results_where_the_tile_does_not_divide() -> None:
    for n in (5, 61, 128, 131):
        x, out = np.arange(n, dtype=np.float32), np.full(n, np.nan, np.float32)
        run_serially(strided(n, 4).func, x, out)
        np.testing.assert_array_equal(out, 2 * x + 1)


def test_sums_that_threads_share_are_kept_for_each_virtual_thread() -> None:
    a, k = te.placeholder((7, 8), name="A"), te.reduce_axis((0, 8), "k")
    sch = Schedule(create_prim_func([a, te.compute((7,), lambda i: te.sum(a[i, k], axis=k), name="B")]))
    i, along = sch.get_loops("B")
    for loop, axis in zip(sch.split(i, [2, None]), ("vthread.x", "threadIdx.y"), strict=True):
        sch.bind(loop, axis)
    sch.bind(sch.split(along, [None, 4])[1], "threadIdx.x")
    x, out = np.arange(56, dtype="f").reshape(7, 8), np.zeros(7, "f")
    run_serially(sch.func, x, out)
    np.testing.assert_array_equal(out, x.sum(1))
