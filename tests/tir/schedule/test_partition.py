"""loop_partition, merge, reorder_block_iter_var, and sampled places: the result stays, misuse is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.ir import structural_equal
from autosched.tir import PrimFunc, Schedule, interpret


def two_nests(*, chained: bool = False) -> PrimFunc:
    a = te.placeholder((10, 3), name="A")
    b = te.compute((10, 3), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((10, 3), lambda i, j: (b if chained else a)[i, j] * 2.0, name="C")
    return te.create_prim_func([a, b, c])


def row_sums() -> PrimFunc:
    a = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    return te.create_prim_func([a, te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="S")])


def same_result(before: PrimFunc, sch: Schedule) -> bool:
    arrays = [np.arange(np.prod([int(d) for d in b.shape]), dtype=b.dtype) for b in before.buffers]
    arrays = [x.reshape([int(d) for d in b.shape]) for x, b in zip(arrays, before.buffers, strict=True)]
    results = []
    for func in (before, sch.func):
        copies = [x.copy() for x in arrays]
        interpret(func, copies)
        results.append(copies)
    return all(np.array_equal(x, y) for x, y in zip(*results, strict=True))


def replays(func: PrimFunc, sch: Schedule) -> bool:
    again, text = Schedule(func), Schedule(func)
    sch.trace.apply_to_schedule(again)
    sch.trace.apply_json_to_schedule(sch.trace.as_json(), text)
    return structural_equal(again.mod, sch.mod) and structural_equal(text.mod, sch.mod)


@pytest.mark.parametrize("sizes", [[2, None], [None, 4], [1, 2, 7], [2, 3]])
def test_partition(sizes: list[int | None]) -> None:
    func = two_nests()
    sch = Schedule(func)
    loops = sch.loop_partition(sch.get_loops("B")[0], sizes)
    extents = [int(sch.get(x).extent) for x in loops]
    assert sum(extents) == 10
    assert same_result(func, sch)
    assert replays(func, sch)


@pytest.mark.parametrize("sizes", [[2, 9], [11], [None, None], [10, None], [0, None]])
def test_partition_refuses_sizes(sizes: Any) -> None:
    sch = Schedule(two_nests())
    before = sch.mod
    with pytest.raises(ScheduleError, match="loop_partition"):
        sch.loop_partition(sch.get_loops("B")[0], sizes)
    assert structural_equal(sch.mod, before)


def test_partition_refuses_reductions() -> None:
    sch = Schedule(row_sums())
    with pytest.raises(ScheduleError, match="reduces over 'k'"):
        sch.loop_partition(sch.get_loops("S")[1], [2, None])


def test_merge() -> None:
    func = two_nests()
    sch = Schedule(func)
    loop = sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    assert len(sch.get_child_blocks(loop)) == 2
    assert same_result(func, sch)
    assert replays(func, sch)


def test_merge_refuses_what_depends() -> None:
    sch = Schedule(two_nests(chained=True))
    with pytest.raises(ScheduleError, match="uses what one before it writes"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="one behind the other"):
        sch.merge(*sch.get_loops("B"))


def test_reorder_block_iter_var() -> None:
    func = two_nests()
    sch = Schedule(func)
    sch.reorder_block_iter_var("B", [1, 0])
    assert [int(iv.dom.extent) for iv in sch.get(sch.get_block("B")).iter_vars] == [3, 10]
    assert same_result(func, sch)
    assert replays(func, sch)
    with pytest.raises(ScheduleError, match="no order of 2 variables"):
        sch.reorder_block_iter_var("B", [0, 0])


@pytest.mark.parametrize("decision", [-2, -1, 0, 1])
def test_sampled_location(decision: int) -> None:
    a = te.placeholder((10, 3), name="A")
    b = te.compute((10, 3), lambda i, j: a[i, j] + 1.0, name="B")
    func = te.create_prim_func([a, te.compute((10, 3), lambda i, j: b[i, j] * 2.0, name="C")])
    sch = Schedule(func, seed=1)
    place = sch.sample_compute_location("B", decision=decision)
    sch.compute_at("B", place)
    assert ('T.block("B")' in sch.func.script()) == (decision != -2)  # TVM's numbers: -1 is the root, -2 inline
    assert same_result(func, sch)
    assert replays(func, sch)
    Schedule(func, seed=decision + 3).sample_compute_location("B")  # one that it chooses itself


def test_sampled_location_refuses_unknown_loops() -> None:
    sch = Schedule(two_nests(chained=True))
    with pytest.raises(ScheduleError, match="no loop 2"):
        sch.sample_compute_location("B", decision=2)


def test_partitioned_tile() -> None:
    sch = Schedule(
        te.create_prim_func([(a := te.placeholder((64,), name="A")), te.compute((64,), lambda i: a[i], name="B")])
    )
    (loop,) = sch.get_loops("B")
    factors = sch.sample_partitioned_tile(loop, 3, partition_pos=1, innerpart_factor=16)
    values = [sch.get(f) for f in factors]
    assert np.prod(values) == 64
    assert np.prod(values[1:]) % 16 == 0


def test_postproc_is_left_out() -> None:
    func = two_nests()
    sch = Schedule(func)
    sch.reorder(*reversed(sch.get_loops("B")))
    sch.enter_postproc()
    sch.parallel(sch.get_loops("C")[0])
    assert "Parallel" not in [row[0] for row in sch.trace.as_json(remove_postproc=True)[0]]
    assert replays(func, sch)
