"""decompose_reduction and rfactor."""

from __future__ import annotations

import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.script import from_source
from autosched.tir import LoopKind, PrimFunc, Schedule
from autosched.tir.verify import verify
from tests.tir.programs import argmax, assert_same_result, dense, matmul, pool, softmax


@pytest.mark.parametrize("position", [0, 1, 2])
def test_decompose_at_every_loop(position: int) -> None:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    init = sch.decompose_reduction(block, sch.get_loops("C")[position])
    assert (sch.get(init).name, sch.get(block).name) == ("C_init", "C_update")
    assert sch.get(block).init is None
    assert len(sch.get_loops(init)) == 2
    assert_same_result(matmul(), sch.func)
    verify(sch.func)


def test_loop_kinds_go_along() -> None:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    sch.vectorize(j)
    init = sch.decompose_reduction("C", k)
    i_init, j_init = sch.get_loops(init)
    assert sch.get(j_init).kind is LoopKind.VECTORIZED
    assert (sch.get(i_init).loop_var.name, sch.get(j_init).loop_var.name) == ("i_init", "j_init")


def test_tails_of_the_reduction_leave_the_init_alone() -> None:
    sch = Schedule(matmul())
    _, _, k = sch.get_loops("C")
    k_0, k_1 = sch.split(k, [None, 3])
    sch.decompose_reduction("C", k_0)
    assert sch.func.script().count("T.where") == 1
    assert_same_result(matmul(), sch.func)


def test_two_outputs() -> None:
    sch = Schedule(argmax())
    sch.decompose_reduction("best", sch.get_loops("best")[0])
    assert_same_result(argmax(), sch.func)
    verify(sch.func)


def test_decompose_refuses() -> None:
    sch = Schedule(dense())
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    before = sch.func
    with pytest.raises(ScheduleError, match="belongs to the reduction"):
        sch.decompose_reduction("C", i)
    with pytest.raises(ScheduleError, match="not around"):
        sch.decompose_reduction("C", sch.get_loops("E")[0])
    with pytest.raises(ScheduleError, match="no initialisation"):
        sch.decompose_reduction("E", sch.get_loops("E")[0])
    assert sch.func is before


@pytest.mark.parametrize("factors", [[None, 4], [4, 4], [2, None], [None, 8], [16, 1]])
@pytest.mark.parametrize("which", [0, 1])
def test_rfactor_of_every_tiling(factors: list[int | None], which: int) -> None:
    """Tails leave some partial results without any element: they must still be neutral."""
    func = softmax(3, 7)
    for block in ("top", "total"):
        sch = Schedule(func)
        loops = sch.split(sch.get_loops(block)[-1], factors)
        partial = sch.rfactor(loops[which], 0)
        assert sch.get(partial).name == f"{block}_rf"
        assert_same_result(func, sch.func)
        verify(sch.func)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_factor_axis(axis: int) -> None:
    sch = Schedule(matmul())
    _, k_1 = sch.split(sch.get_loops("C")[-1], [None, 2])
    sch.rfactor(k_1, axis)
    (rf,) = [b for b in sch.func.root.alloc_buffers if b.name == "C_rf"]
    assert rf.const_shape()[axis] == 2
    assert_same_result(matmul(), sch.func)


def test_partial_sums_can_be_vectorized() -> None:
    sch = Schedule(softmax(3, 10))
    i, _ = sch.get_loops("out")
    sch.compute_at("total", i)
    k_0, k_1 = sch.split(sch.get_loops("total")[-1], [None, 4])
    partial = sch.rfactor(k_1, 0)
    sch.vectorize(sch.get_loops(partial)[-1])
    sch.decompose_reduction(partial, sch.get_loops(partial)[1])
    assert_same_result(softmax(3, 10), sch.func)
    verify(sch.func)


def test_whole_reduction_becomes_spatial() -> None:
    sch = Schedule(matmul())
    partial = sch.rfactor(sch.get_loops("C")[-1], 0)
    assert sch.get(partial).init is None
    assert_same_result(matmul(), sch.func)


def test_several_reduction_axes() -> None:
    func = pool()
    sch = Schedule(func)
    *_, rh, rw = sch.get_loops("pool")
    sch.rfactor(rw, 0)
    assert_same_result(func, sch.func)
    sch = Schedule(func)
    *_, rh, rw = sch.get_loops("pool")
    fused = sch.fuse(rh, rw)
    _, inner = sch.split(fused, [None, 2])
    sch.rfactor(inner, 0)
    assert_same_result(func, sch.func)


def test_products_have_one_as_neutral_element() -> None:
    a = te.placeholder((2, 6), name="A")
    r = te.reduce_axis((0, 6), "r")
    func = te.create_prim_func([a, te.compute((2,), lambda i: te.prod(a[i, r], axis=r), name="P")])
    sch = Schedule(func)
    _, r_1 = sch.split(sch.get_loops("P")[-1], [None, 4])
    sch.rfactor(r_1, 0)
    assert_same_result(func, sch.func)


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_fused_axes_of_which_the_lanes_move_the_last_alone(lanes: int) -> None:
    """Lanes that divide the last axis leave the first to the loop around them, which the two share."""
    x = te.placeholder((3, 8), name="X")
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 8), "j")
    func = te.create_prim_func([x, te.compute((1,), lambda _: te.sum(x[i, j], axis=[i, j]), name="S")])
    sch = Schedule(func)
    fused = sch.fuse(*sch.get_loops("S")[1:])
    sch.rfactor(sch.split(fused, [None, lanes])[1])
    verify(sch.func)
    assert_same_result(func, sch.func)


@pytest.mark.parametrize(("pieces", "lanes"), [(2, 2), (3, 2), (4, 4), (5, 3)])
def test_partial_results_in_pieces_and_these_in_lanes(pieces: int, lanes: int) -> None:
    """Where pieces do not come out even, their update stands under a condition, which the lanes keep."""
    x = te.placeholder((3, 7), name="X")
    i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 7), "j")
    func = te.create_prim_func([x, te.compute((1,), lambda _: te.max(x[i, j], axis=[i, j]), name="M")])
    sch = Schedule(func)
    piece, _ = sch.split(sch.fuse(*sch.get_loops("M")[1:]), [pieces, None])
    partial = sch.rfactor(piece)
    sch.rfactor(sch.split(sch.get_loops(partial)[-1], [None, lanes])[1])
    verify(sch.func)
    assert_same_result(func, sch.func)


def test_rfactor_refuses() -> None:
    sch = Schedule(matmul())
    i, _, k = sch.get_loops("C")
    before = sch.func
    with pytest.raises(ScheduleError, match="does not run over a reduction alone"):
        sch.rfactor(i)
    with pytest.raises(ScheduleError, match="out of range"):
        sch.rfactor(k, 5)
    assert sch.func is before
    best = Schedule(argmax())
    with pytest.raises(ScheduleError, match="not a sum"):
        best.rfactor(best.get_loops("best")[-1])


def test_the_init_stays_in_bounds_where_points_and_reduction_share_a_loop() -> None:
    func = softmax(3, 10)
    sch = Schedule(func)
    i, k = sch.get_loops("total")
    sch.decompose_reduction("total", sch.split(sch.fuse(i, k), [None, 2, 2])[0])
    verify(sch.func)
    assert "< 3" in sch.func.script()
    assert_same_result(func, sch.func)


@pytest.mark.parametrize("which", [0, 1])
def test_partial_sums_keep_their_bound_when_they_move(which: int) -> None:
    func = matmul(3, 4, 8)
    sch = Schedule(func)
    k_0, k_1 = sch.split(sch.get_loops("C")[-1], [None, 3])
    partial = sch.rfactor((k_0, k_1)[which])
    sch.compute_at(partial, sch.get_loops("C")[-1])
    verify(sch.func)
    assert_same_result(func, sch.func)


def test_the_init_does_not_run_where_the_update_does_not() -> None:
    """The split leaves the outer loop in nothing but the condition, beside a loop that the init does not have."""
    func = chain_into_a_sum()
    sch = Schedule(func)
    sch.reverse_compute_at("total", sch.get_loops("twice")[0])
    _, inner = sch.split(sch.get_loops("twice")[0], [2, None])
    sch.decompose_reduction("total", inner)
    verify(sch.func)
    assert_same_result(func, sch.func)


def chain_into_a_sum() -> PrimFunc:
    a = te.placeholder((1, 6), name="A")
    twice = te.compute((1, 6), lambda i, j: a[i, j] * 2.0, name="twice")
    k = te.reduce_axis((0, 6), "k")
    return te.create_prim_func([a, te.compute((1,), lambda i: te.sum(twice[i, k], axis=k), name="total")])


def test_an_init_and_an_update_of_different_elements_are_refused() -> None:
    func = from_source("""
@T.prim_func
def f(A: T.Buffer((4, 4, 8), "float32"), C: T.Buffer((4, 4), "float32")):
    for i, j, k in T.grid(4, 4, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vj, vi] = C[vj, vi] + A[vi, vj, vk]
""")
    for act in (lambda s: s.rfactor(s.get_loops("C")[2], 0), lambda s: s.decompose_reduction("C", s.get_loops("C")[2])):
        with pytest.raises(ScheduleError, match="different elements"):
            act(Schedule(func))


def test_the_start_values_of_a_tile_are_a_block_that_decompose_reduction_moves() -> None:
    sch = Schedule(matmul(8, 12, 6))
    i, j, k = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    j_0, j_1 = sch.split(j, [None, 6])
    k_0, k_1 = sch.split(k, [None, 3])
    sch.reorder(i_0, j_0, k_0, i_1, j_1, k_1)
    tile = sch.blockize(i_1)
    start = sch.decompose_reduction(tile, k_0)
    assert [sch.get(b).name_hint for b in sch.get_child_blocks(start)] == ["C_init"]
    verify(sch.func)
    assert_same_result(matmul(8, 12, 6), sch.func)


def test_rfactor_puts_the_combination_behind_the_loops_or_inside() -> None:
    for method in ("rfactor", "rfactor_inside"):
        sch = Schedule(matmul(8, 12, 6))
        *_, k = sch.get_loops("C")
        getattr(sch, method)(sch.split(k, [None, 3])[1], 0)
        assert [sch.get(x).extent.value for x in sch.get_loops("C")] == [8, 12, 3]
        first, other = (sch.get(sch.get_loops(name)[0]).loop_var for name in ("C", "C_rf"))
        assert (first is other) == (method == "rfactor_inside")
        assert [iv.kind for iv in sch.get(sch.get_block("C")).iter_vars] == ["R", "S", "S"]
        assert_same_result(matmul(8, 12, 6), sch.func)
