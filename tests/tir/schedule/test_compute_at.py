"""compute_at and reverse_compute_at: regions, ragged tiles, what is refused."""

from __future__ import annotations

import contextlib

import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.script import from_source
from autosched.tir import Schedule
from autosched.tir.verify import verify
from tests.tir.programs import assert_same_result, chain, conv, conv_nchwc, dense, layer_norm, pool, softmax


def extents(sch: Schedule, block: str) -> list[int]:
    return [sch.get(x).extent.value for x in sch.get_loops(block)]


def test_ragged_tile_of_a_matmul() -> None:
    sch = Schedule(dense(7, 9, 5))
    sch.compute_inline("D")
    i, j = sch.get_loops("E")
    i_0, i_1 = sch.split(i, [None, 4])
    j_0, j_1 = sch.split(j, [None, 4])
    sch.reorder(i_0, j_0, i_1, j_1)
    sch.compute_at("C", j_0)
    assert extents(sch, "C") == [2, 3, 4, 4, 5]
    assert "T.where(i_0 * 4 + ax0 < 7 and j_0 * 4 + ax1 < 9)" in sch.func.script()
    assert_same_result(dense(7, 9, 5), sch.func)
    verify(sch.func)


def test_exact_tiles_need_no_predicate() -> None:
    sch = Schedule(dense(8, 8, 5))
    i, _ = sch.get_loops("E")
    i_0, _ = sch.split(i, [None, 4])
    sch.compute_at("D", i_0)
    assert "T.where" not in sch.func.script()


def test_halo_of_a_convolution() -> None:
    sch = Schedule(conv(hw=6, stride=1))
    h = sch.get_loops("conv")[2]
    h_0, _ = sch.split(h, [None, 2])
    sch.compute_at("pad", h_0)
    assert extents(sch, "pad")[3:] == [2, 4, 8]  # 2 rows of output read 4 rows of input
    assert_same_result(conv(hw=6), sch.func)
    verify(sch.func)


def test_strided_pooling() -> None:
    sch = Schedule(pool(hw=9, k=3, stride=2))
    h = sch.get_loops("pool")[1]
    sch.compute_at("plus", h)
    assert extents(sch, "plus") == [2, 4, 3, 9]
    assert_same_result(pool(hw=9), sch.func)


def test_two_levels() -> None:
    sch = Schedule(conv())
    h = sch.get_loops("relu")[2]
    h_0, _ = sch.split(h, [None, 2])
    sch.compute_at("conv", h_0)
    sch.compute_at("pad", h_0)
    assert [sch.get(b).name for b in sch.get_child_blocks(h_0)] == ["pad", "conv", "relu"]
    assert_same_result(conv(), sch.func)


def test_under_a_fused_loop() -> None:
    sch = Schedule(conv_nchwc())
    sch.compute_inline("pad")
    n, o, h, w, b = sch.get_loops("relu")
    h_0, _ = sch.split(h, [None, 2])
    task = sch.fuse(n, o, h_0)
    sch.parallel(task)
    sch.compute_at("conv", task)
    assert extents(sch, "conv")[1:4] == [2, 5, 2]
    assert_same_result(conv_nchwc(), sch.func)
    verify(sch.func)


@pytest.mark.parametrize("make", [softmax, layer_norm])
def test_reductions_of_a_row(make) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(make())
    i, _ = sch.get_loops("out")
    sch.parallel(i)
    for name in reversed([sch.get(b).name for b in sch.get_child_blocks("root")][:-1]):
        sch.compute_at(name, i)
    assert len(sch.get_child_blocks("root")) == len(sch.get_child_blocks(i))
    assert_same_result(make(), sch.func)
    verify(sch.func)


def test_unit_loops_are_kept_on_demand() -> None:
    sch = Schedule(dense())
    i, _ = sch.get_loops("E")
    sch.compute_at("D", i, preserve_unit_loops=True)
    assert extents(sch, "D") == [7, 1, 9]


def test_index_says_where() -> None:
    sch = Schedule(softmax())
    i, _ = sch.get_loops("out")
    sch.compute_at("total", i)
    with pytest.raises(ScheduleError, match="place 1"):
        sch.compute_at("e", i, index=1)
    sch.compute_at("e", i, index=-2)
    assert [sch.get(b).name for b in sch.get_child_blocks(i)] == ["e", "total", "out"]


def test_reads_at_two_places_are_joined() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    func = te.create_prim_func([a, te.compute((6,), lambda i: b[i] + b[i + 2], name="C")])
    sch = Schedule(func)
    i_0, _ = sch.split(sch.get_loops("C")[0], [None, 2])
    sch.compute_at("B", i_0)
    assert extents(sch, "B") == [3, 4]
    assert_same_result(func, sch.func)


def test_compute_at_refuses() -> None:
    sch = Schedule(softmax())
    before = sch.func
    with pytest.raises(ScheduleError, match="consumer 'out' is not below"):
        sch.compute_at("e", sch.get_loops("total")[0])
    with pytest.raises(ScheduleError, match="output"):
        sch.compute_at("out", sch.get_loops("total")[0])
    with pytest.raises(ScheduleError, match="already below"):
        sch.compute_at("e", sch.get_loops("e")[0])
    assert sch.func is before
    j = sch.get_loops("out")[1]
    sch.vectorize(j)
    with pytest.raises(ScheduleError, match="vectorized"):
        sch.compute_at("total", j)


def test_reverse() -> None:
    sch = Schedule(dense())
    i, j, k = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    j_0, j_1 = sch.split(j, [None, 4])
    sch.reorder(i_0, j_0, k, i_1, j_1)
    sch.reverse_compute_at("D", j_0)
    sch.reverse_compute_at("E", j_0)
    assert extents(sch, "E") == [2, 3, 4, 4]
    assert_same_result(dense(), sch.func)
    verify(sch.func)


def test_reverse_below_a_reduction_is_refused() -> None:
    sch = Schedule(dense())
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    before = sch.func
    for loop in (k, j):
        with pytest.raises(ScheduleError, match="still reduces over loop 'k'"):
            sch.reverse_compute_at("D", loop)
    assert sch.func is before


def test_reverse_refuses_what_is_not_ready() -> None:
    sch = Schedule(pool())
    with pytest.raises(ScheduleError, match="reaches beyond"):
        sch.reverse_compute_at("pool", sch.get_loops("plus")[1])
    sch = Schedule(softmax())
    with pytest.raises(ScheduleError, match="none of its producers|not below"):
        sch.reverse_compute_at("out", sch.get_loops("top")[0])


def test_reverse_of_a_transposition() -> None:
    sch = Schedule(chain())
    i, _ = sch.get_loops("C")
    sch.reverse_compute_at("D", i)
    assert extents(sch, "D") == [5, 6]
    assert_same_result(chain(), sch.func)


def test_reverse_with_a_residual_that_was_complete_before() -> None:
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6, 4), name="B")
    r = te.reduce_axis((0, 6), "r")
    res = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="res")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    func = te.create_prim_func([a, b, te.compute((4, 4), lambda i, j: c[i, j] + res[i, j], name="D")])
    sch = Schedule(func)
    blocks = [sch.get(x).name for x in sch.get_child_blocks("root")]
    first, second = sorted(("res", "C"), key=blocks.index)
    sch.reverse_compute_at("D", sch.get_loops(second)[0])
    with_first = Schedule(func)
    with pytest.raises(ScheduleError, match="not below"):
        with_first.reverse_compute_at("D", with_first.get_loops(first)[0])
    assert_same_result(func, sch.func)


def test_reverse_under_a_parallel_loop_must_not_race() -> None:
    a = te.placeholder((4, 3), name="A")
    b = te.compute((4, 3), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((4, 3), lambda i, j: b[i, j] * 2.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    i, j = sch.get_loops("B")
    sch.parallel(i)
    sch.reverse_compute_at("C", i)
    assert_same_result(func, sch.func)


def test_reverse_keeps_iterations_that_read_outside() -> None:
    """A padding block runs over more than its producer writes: those iterations belong to no part of it."""
    sch = Schedule(conv())
    copy = sch.cache_read("pad", 0, "global")
    loops = sch.get_loops(copy)
    for loop in loops[2:]:
        with pytest.raises(ScheduleError, match="reaches beyond"):
            sch.reverse_compute_at("pad", loop)
    sch.reverse_compute_at("pad", loops[1])
    assert_same_result(conv(), sch.func)


def test_reverse_compute_at_refuses_iterations_that_read_beyond_the_buffer() -> None:
    """Concatenation of two parts, flattened: those of the second part read nothing of the first."""
    a, b = te.placeholder((1, 2), name="A"), te.placeholder((1, 2), name="B")
    first = te.compute((1, 2), lambda i, j: a[i, j] * 2.0, name="first")
    joined = te.compute(
        (4,), lambda f: te.if_then_else(f // 2 < 1, first[f // 2, f % 2], b[f // 2 - 1, f % 2]), name="joined"
    )
    func = te.create_prim_func([a, b, joined])
    for depth in (0, 1):
        sch = Schedule(func)
        with contextlib.suppress(ScheduleError):
            sch.reverse_compute_at("joined", sch.get_loops("first")[depth])
        verify(sch.func)
        assert_same_result(func, sch.func)
    with pytest.raises(ScheduleError, match="reaches beyond"):
        sch = Schedule(func)
        sch.reverse_compute_at("joined", sch.get_loops("first")[1])


def test_a_reduction_goes_on_with_what_each_iteration_has_made_ready() -> None:
    sch = Schedule(softmax())
    sch.reverse_compute_at("total", sch.get_loops("e")[1])
    assert extents(sch, "total") == extents(sch, "e")
    assert_same_result(softmax(), sch.func)
    verify(sch.func)


def test_parts_of_a_reduction_that_come_twice_are_refused() -> None:
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 6), name="k")
    func = te.create_prim_func([a, te.compute((8,), lambda i: te.sum(b[i, k], k), name="C")])
    sch = Schedule(func)
    _, j = sch.get_loops("B")
    sch.add_unit_loop(j)
    sch.reverse_compute_at("C", sch.get_loops("B")[2])
    assert_same_result(func, sch.func)
    backwards = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    func = te.create_prim_func([a, te.compute((8,), lambda i: te.sum(backwards[i, 5 - k], k), name="C")])
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="in order|reaches beyond"):
        sch.reverse_compute_at("C", sch.get_loops("B")[1])  # would begin with the last k, and start anew at the first


def tiles(n: int = 16) -> str:
    """Two element-wise steps; the second works on tiles of 4 x 4, each a block around a block."""
    return f"""
@T.prim_func
def main(A: T.Buffer(({n}, {n}), "float32"), C: T.Buffer(({n}, {n}), "float32")):
    B = T.alloc_buffer(({n}, {n}), "float32")
    for i, j in T.grid({n}, {n}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid({n // 4}, {n // 4}):
        with T.block("tile"):
            ti, tj = T.axis.remap("SS", [i, j])
            T.reads(B[ti * 4:ti * 4 + 4, tj * 4:tj * 4 + 4])
            T.writes(C[ti * 4:ti * 4 + 4, tj * 4:tj * 4 + 4])
            for x, y in T.grid(4, 4):
                with T.block("C"):
                    vx = T.axis.spatial({n}, ti * 4 + x)
                    vy = T.axis.spatial({n}, tj * 4 + y)
                    C[vx, vy] = B[vx, vy] + 1.0
"""


def test_a_producer_moves_to_a_block_of_tiles() -> None:
    func = from_source(tiles())
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("tile")[1])
    assert extents(sch, "B") == [4, 4, 4, 4]
    assert "T.where" not in sch.func.script()
    assert_same_result(func, sch.func)
    verify(sch.func)


@pytest.mark.parametrize(("rows", "moves"), [(8, True), (4, True), (2, False)])
def test_a_block_of_tiles_moves_to_its_producer(rows: int, moves: bool) -> None:
    func = from_source(tiles())
    sch = Schedule(func)
    i, _ = sch.get_loops("B")
    i_0, _ = sch.split(i, [None, rows])
    if not moves:
        with pytest.raises(ScheduleError, match="reaches beyond"):
            sch.reverse_compute_at("tile", i_0)
        return
    sch.reverse_compute_at("tile", i_0)
    assert extents(sch, "tile") == [16 // rows, *([rows // 4] if rows > 4 else []), 4]
    assert_same_result(func, sch.func)
    verify(sch.func)


def test_a_block_of_tiles_moves_to_its_consumer() -> None:
    k = 6
    func = from_source(tiles())
    sch = Schedule(func)
    copy = sch.cache_write("tile", 0, "global")
    i, _ = sch.get_loops(copy)
    i_0, _ = sch.split(i, [None, k])  # 6 rows touch two or three rows of tiles
    sch.compute_at("tile", i_0)
    assert_same_result(func, sch.func)
    verify(sch.func)


def test_a_producer_that_writes_backwards() -> None:
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((9, 7), "float32"), C: T.Buffer((9, 7), "float32")):
    B = T.alloc_buffer((9, 7), "float32")
    for i, j in T.grid(9, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[8 - vi, 6 - vj] = A[vi, vj] + 1.0
    for i, j in T.grid(9, 7):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * 3.0
""")
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("C")[0])
    assert extents(sch, "B") == [9, 7]
    assert "T.axis.spatial(9, 8 - i)" in sch.func.script()
    assert_same_result(func, sch.func)
    sch = Schedule(func)
    sch.compute_inline("B")
    assert_same_result(func, sch.func)
