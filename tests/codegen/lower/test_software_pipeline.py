"""Loops whose statements work on different iterations."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.software_pipeline import ASYNC, STAGE
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.script import tir as T
from autosched.testing.gpu import run_serially
from autosched.tir import Call, For, Stmt
from autosched.tir.schedule import Schedule
from tests.codegen.gpu_programs import tensor_core_product


def product(stages, sizes=(70, 66, 128), tile=(32, 32, 32)):
    return tensor_core_product(*sizes, "float16", tile, stages=stages)


def calls(stmt, name):
    return [x for x in preorder(stmt) if isinstance(x, Call) and x.op == name]


def main_loop(s):
    (launch,) = lower_device(s.func).launches
    return next(n for n in preorder(launch.body) if isinstance(n, For) and calls(n, "cp_async_wait")), launch


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_results(stages):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype("e") for shape in ((70, 128), (128, 66)))
    bias, out = rng.integers(-8, 8, 66).astype("f"), np.zeros((70, 66), "f")
    run_serially(product(stages).func, a, b, bias, out)
    np.testing.assert_array_equal(out, a.astype("f") @ b.astype("f") + bias)


@pytest.mark.parametrize("stages", [2, 3])
def test_versions_waits_and_one_barrier(stages):
    loop, launch = main_loop(product(stages))
    copied = {x.args[0].buffer for x in calls(loop, "cp_async")}
    assert {b.shape[0].value for b in copied} == {stages}
    assert loop.extent.value == 128 // 32 + stages - 1
    assert [x.args[0].value for x in calls(loop, "cp_async_wait")] == [stages - 2]
    assert len(calls(loop, "cp_async_commit")) == 1
    assert sum(isinstance(n, Stmt) and is_barrier(n) for n in preorder(loop)) == 1
    assert launch.shared_bytes > stages * 32 * 32 * 2


def test_copies_that_are_left_out_fill_with_0():
    conditions = [str(x.args[3]) for x in calls(main_loop(product(2))[0], "cp_async")]
    assert conditions == ["by * 32 + tz * 16 + ty * 8 + tx // 4 < 70"]  # columns are 66, which cuts vectors of 8


def test_copies_whose_lanes_part_are_done_at_once():
    loop, _ = main_loop(product(2, (64, 68, 64)))
    assert len({x.args[0].buffer for x in calls(loop, "cp_async")}) == 1  # a vector of 8 columns of 68 may be cut


def test_stages_for_another_number_of_statements_are_refused():
    s = product(0)
    outer = s.get_loops("A_shared")[4]
    s.annotate(outer, "software_pipeline_stage", [0, 0, 0, 1, 1, 1, 1])
    with pytest.raises(CodegenError, match="for 3 statements"):
        lower_device(s.func)


def test_a_reader_before_its_writer_is_refused():
    s = product(0)
    outer = s.get_loops("A_shared")[4]
    s.annotate(outer, "software_pipeline_stage", [1, 0, 0])
    with pytest.raises(CodegenError, match="before it is written"):
        lower_device(s.func)


def test_a_register_buffer_of_two_stages_is_refused():
    a = te.placeholder((8, 32), name="A")
    b = te.compute((8, 32), lambda i, j: a[i, j] * 2.0, name="B")
    s = Schedule(te.create_prim_func([a, te.compute((8, 32), lambda i, j: b[i, j] + 1.0, name="C")]))
    i, j = s.get_loops("C")
    s.reorder(j, i)
    s.bind(j, "threadIdx.x")
    s.set_scope("B", 0, "local")
    s.compute_at("B", i)
    s.annotate(i, "software_pipeline_stage", [0, 1])
    with pytest.raises(CodegenError, match="'B', which has no versions"):
        lower_device(s.func)


@T.prim_func
def read_behind_the_loop(A: T.Buffer((4, 32), "float32"), B: T.Buffer((32, 4), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((4, 32), "float32", scope="shared")
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            for i in T.serial(4, annotations={STAGE: [0], ASYNC: [0]}):
                S[i, tx] = A[i, tx]
            for j in range(4):
                B[tx, j] = S[j, 31 - tx]


@T.prim_func
def read_in_the_same_stage(A: T.Buffer((4, 32), "float32"), B: T.Buffer((32, 4), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((4, 32), "float32", scope="shared")
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            for i in T.serial(4, annotations={STAGE: [0, 0], ASYNC: [0]}):
                S[i, tx] = A[i, tx]
                B[tx, i] = S[i, 31 - tx]


@pytest.mark.parametrize("func, copies, waits", [(read_behind_the_loop, 1, [0]), (read_in_the_same_stage, 0, [])])
def test_who_reads_a_copy_waits_for_it(func, copies, waits):
    (launch,) = lower_device(func).launches
    assert len(calls(launch.body, "cp_async")) == copies
    assert [x.args[0].value for x in calls(launch.body, "cp_async_wait")] == waits
    a, b = np.arange(128, dtype="f").reshape(4, 32), np.zeros((32, 4), "f")
    run_serially(func, a, b)
    np.testing.assert_array_equal(b, a[:, ::-1].T)
