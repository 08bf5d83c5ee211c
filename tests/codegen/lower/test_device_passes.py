"""TVM's passes that lower for a GPU: threads unified, virtual ones unrolled, copies ahead, barriers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched import te, tir
from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.cross_thread import is_lane_reduction
from autosched.errors import CodegenError, InvalidValueError
from autosched.ir import IRModule, preorder
from autosched.target import Target
from autosched.tir import Allocate, BlockRealize, BufferStore, For, IfThenElse, LoopKind, PrimFunc, Schedule

T = tir.transform


def product(m: int, n: int, k: int) -> PrimFunc:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "r")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def chained(n: int) -> PrimFunc:
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] * 2.0, name="C")
    return te.create_prim_func([a, te.compute((n,), lambda i: c[i] + 1.0, name="D")])


def tiled(*, pipelined: bool = False, virtual: bool = False) -> PrimFunc:
    """A product whose factor of few columns is copied to shared memory by the threads of a block."""
    sch = Schedule(product(32, 32, 32))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    by, vy, ty = sch.split(i, [None, 2 if virtual else 1, 8])
    bx, tx = sch.split(j, [None, 8])
    ko, ki = sch.split(k, [None, 8])
    sch.reorder(by, bx, vy, ty, tx, ko, ki)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, axis)
    if virtual:
        sch.bind(vy, "vthread.y")
    copy = sch.cache_read(block, 0, "shared")  # of rows, which the threads along x share
    sch.compute_at(copy, ko)
    first, second = sch.get_loops(copy)[-2:]
    half, inner = sch.split(second, [2, None])
    sch.bind(sch.split(first, [None, 8])[1], "threadIdx.y")
    sch.bind(half, "threadIdx.x")
    if pipelined:
        sch.annotate(ko, "software_pipeline_stage", [0, 1])
        sch.annotate(ko, "software_pipeline_order", [0, 1])
    return sch.func


def summed() -> PrimFunc:
    sch = Schedule(product(4, 4, 64))
    i, j, k = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.bind(sch.split(k, [None, 32])[1], "threadIdx.x")
    return sch.func


def through(func: PrimFunc, *passes: Callable[[IRModule], IRModule]) -> PrimFunc:
    mod = IRModule({"main": func})
    for step in passes:
        mod = step(mod)
    return mod["main"]


def bound(func: PrimFunc) -> list[str]:
    return [x.thread for x in preorder(func.body) if isinstance(x, For) and x.kind == LoopKind.THREAD_BINDING]


def test_each_thread_axis_becomes_one_loop_outside() -> None:
    old = tiled()
    assert bound(old).count("threadIdx.y") == bound(old).count("threadIdx.x") == 2
    new = through(old, T.LowerOpaqueBlock())
    assert bound(new) == ["blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"]
    assert [x for x in preorder(new.body) if isinstance(x, IfThenElse)], "two of eight threads copy"
    shared = [x.buffer for x in preorder(new.body) if isinstance(x, Allocate)]
    assert [(b.scope, len(b.shape), int(b.shape[1])) for b in shared] == [("shared", 2, 8)]
    assert autosched.lower(old)["main"].script() == new.script()


def test_results_of_one_nest_that_another_reads_stay_whole() -> None:
    sch = Schedule(chained(64))
    for name in ("C", "D"):
        (i,) = sch.get_loops(name)
        outer, inner = sch.split(i, [None, 32])
        sch.bind(outer, "blockIdx.x")
        sch.bind(inner, "threadIdx.x")
    new = through(sch.func, T.LowerOpaqueBlock())
    kept = [x.buffer for x in preorder(new.body) if isinstance(x, Allocate)]
    assert [(b.name, b.scope, int(b.shape[0])) for b in kept] == [("C", "global", 64)]
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tir.interpret(new, [a, out])
    np.testing.assert_array_equal(out, a * 2 + 1)


def test_functions_without_threads_stay() -> None:
    plain = through(product(4, 4, 4), T.LowerOpaqueBlock())
    for step in (T.InjectVirtualThread(), T.InjectSoftwarePipeline(), T.ThreadSync("shared")):
        assert through(plain, step).script() == plain.script()


def test_virtual_threads_become_loops_that_are_unrolled() -> None:
    old = through(tiled(virtual=True), T.LowerOpaqueBlock())
    assert "vthread.y" in bound(old)
    new = through(old, T.InjectVirtualThread())
    assert "vthread.y" not in bound(new)
    assert [x for x in preorder(new.body) if isinstance(x, For) and x.kind == LoopKind.UNROLLED]


def test_copies_run_ahead_into_two_versions() -> None:
    old = through(tiled(pipelined=True), T.LowerOpaqueBlock())
    new = through(old, T.InjectSoftwarePipeline())
    sizes = [next(x.buffer for x in preorder(f.body) if isinstance(x, Allocate)) for f in (old, new)]
    assert [len(b.shape) for b in sizes] == [2, 3]
    assert "software_pipeline_stage" in old.script()
    assert "software_pipeline_stage" not in new.script()


def test_barriers_stand_where_threads_meet() -> None:
    lowered = through(tiled(), T.LowerOpaqueBlock())
    new = through(lowered, T.ThreadSync("shared"))
    assert sum(map(is_barrier, preorder(new.body))) == 2  # before the copy of the next iteration, and behind it
    assert through(lowered, T.ThreadSync("shared.dyn")).script() == lowered.script()


def test_barriers_are_refused_for_scopes_that_are_not_shared() -> None:
    lowered = through(tiled(), T.LowerOpaqueBlock())
    with pytest.raises(InvalidValueError, match="scope 'global'"):
        through(lowered, T.ThreadSync("global"))


def test_threads_that_share_a_sum_combine_their_parts() -> None:
    old = summed()
    new = through(old, T.LowerCrossThreadReduction())
    assert not any(map(is_lane_reduction, preorder(old.body)))
    assert any(map(is_lane_reduction, preorder(new.body)))
    with pytest.raises(CodegenError, match=r"comes before tvm\.lower"):
        through(through(old, T.LowerOpaqueBlock()), T.LowerCrossThreadReduction())


@pytest.mark.parametrize("name", ["InjectVirtualThread", "InjectSoftwarePipeline"])
def test_blocks_are_lowered_before(name: str) -> None:
    with pytest.raises(CodegenError, match=rf"{name} takes functions without blocks"):
        through(tiled(), getattr(T, name)())


def test_functions_without_a_schedule_get_blocks_and_threads() -> None:
    plain = product(32, 32, 32)
    with Target("cuda"):
        new = through(plain, T.DefaultGPUSchedule())
    assert {"blockIdx.x", "threadIdx.x"} <= set(bound(new))
    assert any(isinstance(x, BlockRealize) for x in preorder(new.body))
    assert sum(isinstance(x, BufferStore) for x in preorder(new.body))
    with Target("cuda"):
        assert through(new, T.DefaultGPUSchedule()).script() == new.script()
    with Target("llvm"):
        assert through(plain, T.DefaultGPUSchedule()).script() == plain.script()
    with pytest.raises(RuntimeError, match="current target"):
        through(plain, T.DefaultGPUSchedule())
