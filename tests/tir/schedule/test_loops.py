"""split, fuse, reorder, add_unit_loop, parallel, vectorize, unroll, bind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autosched import te
from autosched.errors import InvalidValueError, ScheduleError
from autosched.tir import For, IntImm, LoopKind, PrimFunc, Schedule, Var, const
from autosched.tir.function import specialize
from autosched.tir.verify import verify
from tests.tir.programs import assert_same_result, chain, conv, dense, matmul, softmax

# what TVM 0.27 prints for this schedule of a 7 x 9 x 5 matmul
TVM_TILED = """
    for i_0 in T.parallel(2):
        for i_1_init in range(4):
            for j_init in T.vectorized(9):
                with T.block("C_init"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1_init)
                    v_j = T.axis.spatial(9, j_init)
                    T.where(i_0 * 4 + i_1_init < 7)
                    T.reads()
                    T.writes(C[v_i, v_j])
                    C[v_i, v_j] = T.float32(0.0)
        for k, i_1 in T.grid(5, 4):
            for j in T.vectorized(9):
                with T.block("C_update"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                    v_j, v_k = T.axis.remap("SR", [j, k])
                    T.where(i_0 * 4 + i_1 < 7)
                    T.reads(C[v_i, v_j], A[v_i, v_k], B[v_k, v_j])
                    T.writes(C[v_i, v_j])
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
"""


def names(sch: Schedule, block: str) -> list[str]:
    return [sch.get(x).loop_var.name for x in sch.get_loops(block)]


def extents(sch: Schedule, block: str) -> list[int]:
    return [sch.get(x).extent.value for x in sch.get_loops(block)]


def test_the_schedule_that_tvm_documents() -> None:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    sch.reorder(i_0, k, i_1, j)
    sch.parallel(i_0)
    sch.vectorize(j)
    sch.decompose_reduction("C", k)
    assert TVM_TILED.strip() in sch.func.script()
    assert_same_result(matmul(), sch.func)
    verify(sch.func)


@pytest.mark.parametrize(
    ("factors", "made"),
    [
        ([None, 4], [2, 4]), ([4, 4], [4, 4]), ([7, 1], [7, 1]), ([None, 2, 2], [2, 2, 2]), ([3, None], [3, 3]),
        ([None, 16], [1, 16]),
    ],
)  # fmt: skip
def test_split(factors: list[int | None], made: list[int]) -> None:
    sch = Schedule(matmul())
    i, _, _ = sch.get_loops("C")
    parts = sch.split(i, factors)
    assert [sch.get(x).extent.value for x in parts] == made
    assert names(sch, "C")[: len(made)] == [f"i_{n}" for n in range(len(made))]
    assert_same_result(matmul(), sch.func)
    verify(sch.func)


def test_split_of_a_split_simplifies() -> None:
    sch = Schedule(matmul(8, 9, 5))
    i, _, _ = sch.get_loops("C")
    _, i_1 = sch.split(i, [None, 4])
    sch.split(i_1, [2, 2])
    assert "i_0 * 4 + i_1_0 * 2 + i_1_1" in sch.func.script()
    assert "T.where" not in sch.func.script()


def test_split_without_unit_iterations() -> None:
    sch = Schedule(matmul())
    sch.split(sch.get_loops("C")[0], [7, 1], preserve_unit_iters=False)
    assert "i_1" in names(sch, "C") and 'remap("SSR", [i_0, j, k])' in sch.func.script()


@pytest.mark.parametrize("factors", [[2, 2], [None, None], [0, None], [], [-1, 7]])
def test_split_refuses(factors: list[int | None]) -> None:
    sch = Schedule(matmul())
    before = sch.func
    with pytest.raises(ScheduleError, match="split"):
        sch.split(sch.get_loops("C")[0], factors)
    assert sch.func is before


def test_split_refuses_annotated_and_bound_loops() -> None:
    sch = Schedule(matmul())
    i, j, _ = sch.get_loops("C")
    sch.annotate(i, "pragma", 1)
    with pytest.raises(ScheduleError, match="annotations"):
        sch.split(i, [None, 2])
    sch.bind(j, "threadIdx.x")
    with pytest.raises(ScheduleError, match="bound to threadIdx.x"):
        sch.split(j, [None, 2])
    sch.unannotate(i, "pragma")
    sch.split(i, [None, 2])


def test_fuse_names_and_values() -> None:
    sch = Schedule(matmul())
    i, j, _ = sch.get_loops("C")
    sch.fuse(i, j)
    assert names(sch, "C") == ["i_j_fused", "k"]
    assert "i_j_fused // 9" in sch.func.script() and "i_j_fused % 9" in sch.func.script()
    assert_same_result(matmul(), sch.func)


def test_fuse_three_and_split_again() -> None:
    sch = Schedule(matmul())
    fused = sch.fuse(*sch.get_loops("C"))
    assert extents(sch, "C") == [315]
    sch.split(fused, [None, 16])
    assert_same_result(matmul(), sch.func)


def test_split_then_fuse_back() -> None:
    sch = Schedule(matmul(8, 9, 5))
    i_0, i_1 = sch.split(sch.get_loops("C")[0], [None, 4])
    sch.fuse(i_0, i_1)
    assert 'remap("SSR", [i_0_i_1_fused, j, k])' in sch.func.script()


def test_fuse_refuses_loops_that_are_no_chain() -> None:
    sch = Schedule(matmul())
    i, _, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="not the only child"):
        sch.fuse(i, k)


def test_reorder_keeps_other_loops_in_place() -> None:
    sch = Schedule(conv())
    _, o, h, _, rc, _, _ = sch.get_loops("conv")
    sch.reorder(rc, h, o)
    assert names(sch, "conv") == ["n", "rc", "h", "x", "o", "rh", "rw"]
    assert_same_result(conv(), sch.func)


def test_reorder_refuses() -> None:
    sch = Schedule(softmax())
    i, _ = sch.get_loops("out")
    sch.compute_at("total", i)
    sch.compute_at("e", i)
    j = sch.get_loops("out")[-1]
    with pytest.raises(ScheduleError, match="more than the next loop"):
        sch.reorder(j, i)
    with pytest.raises(ScheduleError, match="given twice"):
        sch.reorder(i, i)
    with pytest.raises(ScheduleError, match="not in one chain"):
        sch.reorder(i, sch.get_loops("top")[0])


def test_reorder_keeps_the_start_of_a_reduction_first() -> None:
    func = softmax(4, 3)
    sch = Schedule(func)
    i, k = sch.get_loops("total")
    outer, inner = sch.split(sch.fuse(i, k), [None, 5])
    with pytest.raises(ScheduleError, match="would not begin at its initialisation"):
        sch.reorder(inner, outer)
    sch.decompose_reduction("total", outer)
    sch.reorder(inner, outer)
    verify(sch.func)
    assert_same_result(func, sch.func)


def test_reorder_among_the_loops_of_one_reduction() -> None:
    func = matmul()
    sch = Schedule(func)
    _, j, k = sch.get_loops("C")
    k_0, k_1 = sch.split(k, [None, 3])
    sch.reorder(k_1, j, k_0)
    verify(sch.func)
    assert_same_result(func, sch.func)


def test_reorder_refuses_a_reduction_that_runs_twice() -> None:
    sch = Schedule(matmul())
    u = sch.add_unit_loop("C")
    i, j, k, _ = sch.get_loops("C")
    sch.reorder(k, u)  # extent 1: each point still once
    assert_same_result(matmul(), sch.func)
    wide = Schedule(repeated())
    t, i, k = wide.get_loops("S")
    with pytest.raises(ScheduleError, match="each of its points once"):
        wide.reorder(k, t)
    with pytest.raises(ScheduleError, match="each of its points once"):
        wide.decompose_reduction("S", t)
    wide.decompose_reduction("S", k)
    assert_same_result(repeated(), wide.func)


def repeated() -> PrimFunc:
    """Row sums that are computed twice over, by a loop that nothing depends on."""
    a, r = te.placeholder((3, 4), name="A"), te.reduce_axis((0, 4), "k")
    func = te.create_prim_func([a, te.compute((3,), lambda i: te.sum(a[i, r], axis=r), name="S")])
    again = For(Var("t"), const(0), const(2), LoopKind.SERIAL, func.root.body)
    return func.with_body(replace(func.body, block=replace(func.root, body=again)))


@pytest.mark.parametrize("kind", ["parallel", "vectorize"])
def test_no_threads_over_reductions(kind: str) -> None:
    sch = Schedule(matmul())
    before = sch.func
    with pytest.raises(ScheduleError, match="reduction of block 'C'"):
        getattr(sch, kind)(sch.get_loops("C")[-1])
    assert sch.func is before


def test_kinds() -> None:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    sch.parallel(i)
    sch.vectorize(j)
    sch.unroll(k)
    assert [sch.get(x).kind for x in (i, j, k)] == [LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED]
    sch.unroll(j)  # a second kind replaces the first
    assert sch.get(j).kind is LoopKind.UNROLLED
    assert_same_result(matmul(), sch.func)


def test_parallel_is_refused_after_decompose_reduction() -> None:
    sch = Schedule(matmul())
    i, _, k = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    with pytest.raises(ScheduleError, match="as well|no initialisation|not a"):
        sch.parallel(i)


def test_parallel_allows_private_buffers_and_vectorize_does_not() -> None:
    sch = Schedule(softmax())
    i, j = sch.get_loops("out")
    sch.compute_at("total", i)
    sch.parallel(i)
    assert sch.get(i).kind is LoopKind.PARALLEL
    sch = Schedule(dense())
    i, j = sch.get_loops("E")
    i_0, i_1 = sch.split(i, [None, 2])
    sch.compute_at("D", i_1)
    sch.vectorize(i_1)  # row by row, each row written once
    assert_same_result(dense(), sch.func)


def test_bind() -> None:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.bind(k, "threadIdx.x")  # cooperation: allowed for reductions
    assert sch.get(i).thread == "blockIdx.x"
    with pytest.raises(InvalidValueError, match="unknown thread axis"):
        sch.bind(j, "nowhere")
    with pytest.raises(ScheduleError, match="bound to blockIdx.x"):
        sch.parallel(i)


def test_add_unit_loop() -> None:
    sch = Schedule(chain())
    u = sch.add_unit_loop("B")
    v = sch.add_unit_loop(u)
    assert names(sch, "B") == ["i", "j", "u", "u"] and isinstance(sch.get(v), For)
    assert_same_result(chain(), sch.func)


def test_add_unit_loop_counts_as_the_loops_around_it() -> None:
    n = IntImm(6, "int64")
    a = te.placeholder((n,), name="A")
    func = te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])
    sch = Schedule(func)
    (i,) = sch.get_loops("B")
    unit = sch.add_unit_loop("B")
    sch.add_unit_loop(i)
    assert {sch.get(x).loop_var.dtype for x in sch.get_loops("B")} == {"int64"}
    sch.fuse(i, unit)
    verify(sch.func)
    assert_same_result(func, sch.func)


def test_fused_loops_count_in_the_widest_of_their_types() -> None:
    n = Var("n", "int64")
    a = te.placeholder((n, 3), name="A")
    func = te.create_prim_func([a, te.compute((n, 3), lambda i, j: a[i, j] + 1.0, name="B")])
    sch = Schedule(func)
    assert [sch.get(x).loop_var.dtype for x in sch.get_loops("B")] == ["int64", "int32"]
    for is_reordered in (False, True):
        sch = Schedule(func)
        if is_reordered:
            sch.reorder(*reversed(sch.get_loops("B")))
        fused = sch.fuse(*sch.get_loops("B"))
        assert sch.get(fused).loop_var.dtype == "int64"
        verify(sch.func)
        assert_same_result(specialize(func, {n: 5}), specialize(sch.func, {n: 5}))


def test_vectors_across_rows() -> None:
    """4 lanes over rows of 3: only both loops together show that each element is written once."""
    a = te.placeholder((4, 3), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((4, 3), lambda i, j: a[i, j] + 1.0, name="B")]))
    _, inner = sch.split(sch.fuse(*sch.get_loops("B")), [None, 4])
    sch.vectorize(inner)
    assert "T.vectorized(4)" in sch.mod.script()
