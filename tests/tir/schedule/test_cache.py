"""cache_read, cache_write, set_scope."""

from __future__ import annotations

import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.script import from_source
from autosched.tir import Schedule
from autosched.tir.expr import SizeVar
from autosched.tir.function import specialize
from autosched.tir.verify import verify
from tests.tir.programs import assert_same_result, dense, matmul, softmax


def test_cache_read_of_an_input() -> None:
    sch = Schedule(matmul())
    copy = sch.cache_read("C", 1, "global")
    assert sch.get(copy).name == "B_global"
    assert [sch.get(x).loop_var.name for x in sch.get_loops(copy)] == ["ax0", "ax1"]
    assert [r.buffer.name for r in sch.get(sch.get_block("C")).reads] == ["A", "B_global"]
    assert_same_result(matmul(), sch.func)
    verify(sch.func)


def test_cache_read_for_one_consumer() -> None:
    sch = Schedule(softmax())
    sch.cache_read("out", "e", "local", consumer_blocks=["out"])
    assert [r.buffer.name for r in sch.get(sch.get_block("total")).reads] == ["e"]
    assert [r.buffer.name for r in sch.get(sch.get_block("out")).reads] == ["e_local", "total"]
    assert_same_result(softmax(), sch.func)


def test_cache_read_between_producer_and_consumer_in_one_nest() -> None:
    sch = Schedule(dense())
    i, _ = sch.get_loops("E")
    sch.compute_at("D", i)
    sch.cache_read("E", 0, "local")
    assert "for ax0, ax1 in T.grid(1, 9)" in sch.func.script()
    assert_same_result(dense(), sch.func)
    verify(sch.func)


def test_cache_read_moves_with_compute_at() -> None:
    sch = Schedule(matmul())
    i, _, _ = sch.get_loops("C")
    i_0, _ = sch.split(i, [None, 4])
    copy = sch.cache_read("C", "A", "global")
    sch.compute_at(copy, i_0)
    assert "i_0 * 4 + ax0 < 7" in sch.func.script()
    assert_same_result(matmul(), sch.func)


def test_cache_write() -> None:
    sch = Schedule(matmul())
    copy = sch.cache_write("C", 0, "local")
    assert sch.get(copy).name == "C_local" and sch.get(sch.get_block("C")).writes[0].buffer.scope == "local"
    i, j = sch.get_loops(copy)
    i_0, _ = sch.split(i, [None, 4])
    sch.compute_at("C", i_0)
    assert_same_result(matmul(), sch.func)
    verify(sch.func)


def test_cache_write_refuses_after_decomposition() -> None:
    sch = Schedule(matmul())
    sch.decompose_reduction("C", sch.get_loops("C")[-1])
    with pytest.raises(ScheduleError, match="initialisation is a block of its own"):
        sch.cache_write("C_update", 0, "local")


def test_what_updates_a_buffer_reads_no_copy_of_it() -> None:
    sch = Schedule(dense())
    sch.decompose_reduction("C", sch.get_loops("C")[-1])
    with pytest.raises(ScheduleError, match="'C_update' writes 'C' as well"):
        sch.cache_read("D", "C", "global", ["C_update"])


def test_readers_at_different_depths_are_refused() -> None:
    sch = Schedule(softmax())
    sch.reverse_compute_at("total", sch.get_loops("e")[0])
    before = sch.func
    with pytest.raises(ScheduleError, match="outside of them"):
        sch.cache_read("total", "e", "global")
    with pytest.raises(ScheduleError, match="outside of them|others outside"):
        sch.cache_write("e", 0, "global")
    assert sch.func is before


def test_a_copy_for_the_readers_outside_of_the_producers_loops() -> None:
    sch = Schedule(softmax())
    sch.reverse_compute_at("total", sch.get_loops("e")[0])
    for reader in ("total", "out"):
        with pytest.raises(ScheduleError, match="name consumer_blocks that stand together"):
            sch.cache_read(reader, "e", "global")
    sch.cache_read("out", "e", "global", consumer_blocks=["out"])
    sch.cache_read("total", "e", "local", consumer_blocks=["total"])
    verify(sch.func)
    assert_same_result(softmax(), sch.func)


def test_a_copy_of_what_was_moved_below_its_producer() -> None:
    sch = Schedule(softmax(1, 5))
    sch.reverse_compute_at("total", sch.get_loops("e")[0])
    copy = sch.cache_write("total", 0, "global")
    sch.cache_write(copy, 0, "global")
    verify(sch.func)
    assert_same_result(softmax(1, 5), sch.func)


def test_set_scope() -> None:
    sch = Schedule(dense())
    sch.set_scope("C", 0, "local")
    (c,) = [b for b in sch.func.root.alloc_buffers if b.name == "C"]
    assert c.scope == "local" and sch.get(sch.get_block("D")).reads[0].buffer is c
    verify(sch.func)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda s: s.set_scope("E", 0, "local"), "interface"),
        (lambda s: s.set_scope("C", 0, "nowhere"), "unknown storage scope"),
        (lambda s: s.cache_read("C", 7, "global"), "no read buffer 7"),
        (lambda s: s.cache_read("C", "nothing", "global"), "it reads \\['A', 'B'\\]"),
        (lambda s: s.cache_write("C", 1, "global"), "no write buffer 1"),
        (lambda s: s.cache_read("C", 0, "global", ["E"]), "'E' does not read"),
    ],
)
def test_refusals(call, reason: str) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(dense())
    before = sch.func
    with pytest.raises(ScheduleError, match=reason):
        call(sch)
    assert sch.func is before


def test_copies_of_what_gets_shorter_with_a_size_stay_inside() -> None:
    """The extent 40 - n is 40 at most: loops of that many would leave the buffer."""
    n = SizeVar("n", "int64")
    a = te.placeholder((40 - n, 8), "float32", name="a")
    given = te.placeholder((n,), "bool", name="given")
    b = te.compute((40 - n, 8), lambda i, j: a[i, j] * 2.0, name="b")
    func = te.create_prim_func([a, given, b])
    for copy in (lambda s: s.cache_read("b", 0, "global"), lambda s: s.cache_write("b", 0, "global")):
        sch = Schedule(func)
        i, _ = sch.get_loops(copy(sch))
        sch.split(i, [None, 8])
        for size in (3, 8, 39):
            assert_same_result(specialize(func, {n: size}), specialize(sch.func, {n: size}))


def test_copies_inside_of_a_block_keep_its_part_of_a_buffer() -> None:
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((12, 8), "float32"), C: T.Buffer((12, 8), "float32")):
    for t in range(3):
        with T.block("rows"):
            vt = T.axis.spatial(3, t)
            T.reads(A[vt * 4:vt * 4 + 4, 0:8])
            T.writes(C[vt * 4:vt * 4 + 4, 0:8])
            for i, j in T.grid(4, 8):
                with T.block("C"):
                    vi = T.axis.spatial(12, vt * 4 + i)
                    vj = T.axis.spatial(8, j)
                    C[vi, vj] = A[vi, vj] * 2.0
""")
    sch = Schedule(func)
    sch.cache_read("C", 0, "local")
    sch.cache_write("C", 0, "local")
    rows = sch.get(sch.get_block("rows"))
    assert [(b.name, [n.value for n in b.shape]) for b in rows.alloc_buffers] == [
        ("A_local", [4, 8]),
        ("C_local", [4, 8]),
    ]
    assert [sch.get(b).name_hint for b in sch.get_child_blocks("rows")] == ["A_local", "C", "C_local"]
    assert [r.buffer.name for r in rows.reads + rows.writes] == ["A", "C"]
    assert_same_result(func, sch.func)
    verify(sch.func)


def test_cache_read_for_named_consumers_leaves_the_block_itself() -> None:
    sch = Schedule(softmax())
    reader, other = (sch.get(b).name_hint for b in sch.get_consumers("e"))
    sch.cache_read(reader, "e", "global", consumer_blocks=[other])
    assert "e" in [r.buffer.name for r in sch.get(sch.get_block(reader)).reads]
    assert "e_global" in [r.buffer.name for r in sch.get(sch.get_block(other)).reads]
    assert_same_result(softmax(), sch.func)
