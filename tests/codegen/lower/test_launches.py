"""Nests as launches, thread axes as variables."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.launches import bind_threads
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.script import tir as T
from autosched.testing.gpu import run_serially
from autosched.tir import For, IfThenElse, IntImm, LoopKind, SeqStmt, Var
from autosched.tir.function import shape_vars
from autosched.tir.schedule import Schedule
from tests.codegen.gpu_programs import elementwise, tiled_product


def two_blocks(n=64):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[n - 1 - i] + 1.0, name="C")
    return Schedule(te.create_prim_func([a, c]))


def bind(s, block, threads):
    bx, tx = s.split(s.get_loops(block)[0], [None, threads])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")


def test_axes_of_a_product():
    (launch,) = lower_device(tiled_product(130, 70, 16).func).launches
    assert (launch.grid, launch.block) == ((2, 3, 1), (16, 8, 1))
    assert [a.var.name for a in launch.axes] == ["bx", "by", "tx", "ty"]
    assert not any(isinstance(n, For) and n.thread for n in preorder(launch.body))


def test_each_nest_is_a_launch_and_what_lies_between_is_scratch():
    s = two_blocks()
    bind(s, "B", 16)
    bind(s, "C", 32)
    lowered = lower_device(s.func)
    assert [x.block[0] for x in lowered.launches] == [16, 32]
    assert [b.name for b in lowered.scratch] == ["B"]


def test_fewer_threads_than_the_block_has_wait():
    s = two_blocks()
    (i,) = s.get_loops("C")
    bx, tx = s.split(i, [None, 32])
    s.bind(bx, "blockIdx.x")
    s.compute_at("B", bx)
    s.set_scope("B", 0, "shared")
    s.bind(tx, "threadIdx.x")
    y, x = s.split(s.get_loops("B")[-1], [None, 8])
    s.bind(x, "threadIdx.x")
    (launch,) = lower_device(s.func).launches
    assert launch.block == (32, 1, 1)
    assert any(isinstance(n, IfThenElse) and "tx < 8" in str(n.condition) for n in preorder(launch.body))


def test_a_nest_without_threads_is_refused():
    with pytest.raises(CodegenError, match="bound to no threads") as caught:
        lower_device(two_blocks().func)
    assert "Fallback" in str(caught.value)


def test_a_launch_that_hands_global_memory_to_itself_is_refused():
    s = two_blocks()
    (i,) = s.get_loops("C")
    bx, tx = s.split(i, [None, 32])
    s.bind(bx, "blockIdx.x")
    s.compute_at("B", bx)
    s.bind(tx, "threadIdx.x")
    s.bind(s.get_loops("B")[-1], "threadIdx.x")
    with pytest.raises(CodegenError, match="different threads of one launch"):
        lower_device(s.func)


def test_registers_of_another_thread_are_refused():
    s = two_blocks()
    (i,) = s.get_loops("C")
    bx, tx = s.split(i, [None, 32])
    s.bind(bx, "blockIdx.x")
    s.compute_at("B", bx)
    s.set_scope("B", 0, "local")
    s.bind(tx, "threadIdx.x")
    s.bind(s.get_loops("B")[-1], "threadIdx.x")
    with pytest.raises(CodegenError, match="does not write itself"):
        lower_device(s.func)


def test_what_a_thread_uses_itself_is_kept_in_registers():
    s = two_blocks()
    (i,) = s.get_loops("C")
    bx, tx = s.split(i, [None, 32])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    s.compute_at("B", tx)
    assert not lower_device(s.func).scratch


def shared_rows(read_again):
    """Y[i] = a sum in shared memory that several threads need, computed by each of them for itself."""
    x, k = te.placeholder((6, 5), name="X"), te.reduce_axis((0, 5), "k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    y = te.compute((6, 4), lambda i, j: total[i] + te.const(1.0, "float32") * read_again, name="Y")
    return Schedule(te.create_prim_func([x, y]))


def test_one_thread_writes_what_all_of_them_compute():
    s = shared_rows(1)
    i, j = s.get_loops("Y")
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")
    s.set_scope("total", 0, "shared")
    s.compute_at("total", i)
    (launch,) = lower_device(s.func).launches
    stores = [n for n in preorder(launch.body) if isinstance(n, IfThenElse) and "total[" in str(n.then_case)]
    assert stores
    assert all("tx == 0" in str(n.condition) for n in stores)
    inputs, out = np.arange(30, dtype="f").reshape(6, 5), np.zeros((6, 4), "f")
    run_serially(s.func, inputs, out)
    np.testing.assert_array_equal(out, np.repeat(inputs.sum(1, keepdims=True) + 1, 4, 1))


def test_threads_that_add_up_to_one_element_are_refused():
    s = shared_rows(1)
    flat = s.fuse(*s.get_loops("Y"))
    bx, tx = s.split(flat, [None, 8])
    s.bind(bx, "blockIdx.x")
    s.bind(tx, "threadIdx.x")
    s.compute_at("total", tx)
    s.set_scope("total", 0, "shared")  # too late: each thread computes what it needs alone
    with pytest.raises(CodegenError, match="several threads may add up to one element"):
        lower_device(s.func)


def test_large_register_buffers_are_refused():
    with pytest.raises(CodegenError, match="needs 4096 bytes in each thread"):
        lower_device(tiled_product(64, 64, 8, (64, 64, 8), (32, 32)).func)


def test_vectors_and_tails():
    (launch,) = lower_device(elementwise((1000,)).func).launches
    assert launch.grid == (2, 1, 1)


def of_symbols(*names):
    n = {name: te.var(name, dtype="int64") for name in names}
    a = te.placeholder((n[names[0]],), name="A")
    b = te.placeholder((n[names[-1]],), name="B")
    c = te.compute(a.shape, lambda i: a[i] * 2.0, name="C")
    d = te.compute(b.shape, lambda i: b[i] + 1.0, name="D")
    return Schedule(te.create_prim_func([a, b, c, d]))


def test_the_number_of_blocks_may_come_with_the_call():
    s = of_symbols("n")
    bind(s, "C", 16)
    bind(s, "D", 32)
    lowered = lower_device(s.func)
    ((n, (least, count)),) = lowered.sizes.items()
    assert (n.name, n.dtype, least, count) == ("n", "int32", 1, (1 << 30) - 1)
    assert [str(launch.grid_sizes[0]) for launch in lowered.launches] == ["(n + 15) // 16", "(n + 31) // 32"]
    for launch in lowered.launches:
        (guard,) = (x for x in preorder(launch.body) if isinstance(x, IfThenElse))
        assert "< n" in str(guard.condition) and n in launch.block_vars


def test_blocks_along_one_axis_are_equally_many():
    s = of_symbols("n", "m")
    bind(s, "C", 16)
    bind(s, "D", 16)
    (first, second) = (x for x in preorder(s.func.body) if isinstance(x, For) and x.thread == "blockIdx.x")
    both = For(Var("o", "int64"), IntImm(0, "int64"), IntImm(2, "int64"), LoopKind.SERIAL, SeqStmt((first, second)))
    with pytest.raises(CodegenError, match="two loops that are bound to blockIdx.x"):
        bind_threads(both, sizes={v: (1, 100) for v in shape_vars(s.func)})


def test_the_number_of_threads_is_known():
    s = of_symbols("n")
    for block in ("C", "D"):
        s.bind(s.get_loops(block)[0], "threadIdx.x")
    with pytest.raises(CodegenError, match="its extent is no constant"):
        lower_device(s.func)


def with_rows_shared_out(scope, threads):
    """`threads` threads of a block compute B, whose elements 4 threads read, two each."""
    a = te.placeholder((5,), name="A")
    b = te.compute((5,), lambda i: a[i] * 2.0, name="B")
    s = Schedule(te.create_prim_func([a, te.compute((40,), lambda i: b[i * 3 % 5] + 1.0, name="C")]))
    grid, thread, _ = s.split(s.get_loops("C")[0], [None, 4, 2])
    s.bind(grid, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    s.set_scope("B", 0, scope)
    s.compute_at("B", thread if threads > 4 else grid)
    s.bind(s.split(s.get_loops("B")[-1], [None, threads])[1], "threadIdx.x")
    return s.func


@pytest.mark.parametrize(
    "scope, threads, message",
    [("shared", 8, "in a loop that 4 of them run"), ("global", 4, "written and read by different threads")],
)
def test_what_threads_do_not_have_of_each_other_is_refused(scope, threads, message):
    with pytest.raises(CodegenError, match=message):
        lower_device(with_rows_shared_out(scope, threads))


def test_registers_of_threads_that_write_none_are_refused():
    """Of five threads four copy: thread 4 would read what thread 0 has."""
    a = te.placeholder((5,), name="A")
    s = Schedule(te.create_prim_func([a, te.compute((1, 5), lambda o, i: a[i] * 2.0, name="B")]))
    for loop, axis in zip(s.get_loops("B"), ("blockIdx.x", "threadIdx.x"), strict=True):
        s.bind(loop, axis)
    copy = s.cache_read("B", 0, "local")
    s.compute_at(copy, s.get_loops("B")[0])
    s.bind(s.split(s.get_loops(copy)[-1], [None, 4])[1], "threadIdx.x")
    with pytest.raises(CodegenError, match="does not write itself"):
        lower_device(s.func)


def test_threads_that_write_different_values_to_one_element_are_refused():
    @T.prim_func
    def func(a: T.Buffer((2,), "int32"), b: T.Buffer((1,), "int32")):
        for i in T.thread_binding(2, thread="threadIdx.x"):
            b[0] = T.max(b[0], a[i])

    with pytest.raises(CodegenError, match="values of their own to one element of 'b'"):
        lower_device(func)
