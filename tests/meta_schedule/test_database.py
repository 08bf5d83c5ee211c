"""Databases of tuning records."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched import meta_schedule as ms
from autosched.errors import RecordError
from autosched.ir import IRModule
from autosched.meta_schedule.database import OrderedUnionDatabase
from autosched.script import from_source
from autosched.tir import PrimFunc, Schedule


def scaled(n: int) -> PrimFunc:
    text = f"""
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in range({n}):
        with T.block("b"):
            vi = T.axis.spatial({n}, i)
            B[vi] = A[vi] * T.float32(2)
"""
    function = from_source(text)
    assert isinstance(function, PrimFunc)
    return function


def record(database: ms.Database, func: PrimFunc, factor: int, seconds: float) -> None:
    workload = database.commit_workload(func)
    sch = Schedule(func)
    (loop,) = sch.get_loops(sch.get_block("b"))
    sch.split(loop, [None, factor])
    database.commit_tuning_record(ms.TuningRecord(sch.trace, workload, [seconds], None, None))


def test_the_fastest_record_answers() -> None:
    database = ms.Database.create("memory")
    record(database, scaled(16), 4, 2.0)
    record(database, scaled(16), 8, 1.0)
    record(database, scaled(16), 2, 1e10)  # failed
    assert len(database) == 3 and database.has_workload(scaled(16)) and not database.has_workload(scaled(8))
    best = database.query_schedule(IRModule({"main": scaled(16)}), "llvm")
    assert best is not None and [int(best.get(x).extent) for x in best.get_loops(best.get_block("b"))] == [2, 8]
    assert database.query_tuning_record(scaled(8), "llvm") is None
    assert [r.run_secs for r in database.get_top_k(database.commit_workload(scaled(16)), 5)] == [[1.0], [2.0]]


def test_files_hold_everything(tmp_path: Path) -> None:
    written = ms.JSONDatabase(work_dir=tmp_path)
    record(written, scaled(16), 4, 2.0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["database_tuning_record.json", "database_workload.json"]
    read = ms.JSONDatabase(work_dir=tmp_path)
    assert len(read) == 1 and read.query_ir_module(scaled(16), "llvm") is not None
    read.commit_workload(scaled(16))  # known already
    assert len((tmp_path / "database_workload.json").read_text().splitlines()) == 1
    pruned = ms.MemoryDatabase()
    read.dump_pruned(pruned)
    assert len(pruned) == 1
    (tmp_path / "database_tuning_record.json").write_text("[5, 3]\n")
    with pytest.raises(RecordError, match="damaged"):
        ms.JSONDatabase(work_dir=tmp_path)


def test_unions_and_current() -> None:
    slow, fast = ms.MemoryDatabase(), ms.MemoryDatabase()
    record(slow, scaled(16), 4, 2.0)
    record(fast, scaled(16), 8, 1.0)
    union, ordered = ms.Database.create("union", slow, fast), OrderedUnionDatabase(slow, fast)
    assert union.query(scaled(16), "llvm", kind="record").run_secs == [1.0]
    assert ordered.query(scaled(16), "llvm", kind="record").run_secs == [2.0]
    assert ms.Database.current() is None
    with slow:
        assert ms.Database.current() is slow


@pytest.mark.parametrize(
    "bad",
    [
        lambda: ms.Database.create("nobody"), lambda: ms.JSONDatabase(),
        lambda: ms.MemoryDatabase().commit_workload(3), lambda: ms.MemoryDatabase().commit_tuning_record(3),  # type: ignore[arg-type]
        lambda: ms.MemoryDatabase().query(scaled(4), "llvm", kind="x"), lambda: ms.tune_tir(3, "llvm", "x", 1),
        lambda: ms.tune_tir(scaled(4), "llvm", "x", 0), lambda: ms.space_generator.create("x"),
        lambda: ms.TuneContext().generate_design_space(),
    ],
)  # fmt: skip
def test_refused(bad: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        bad()  # type: ignore[operator]


def test_a_function_as_space_makes_candidates() -> None:
    def space(sch: Schedule) -> None:
        (loop,) = sch.get_loops(sch.get_block("b"))
        sch.split(loop, sch.sample_perfect_tile(loop, 2))

    context = ms.TuneContext(scaled(16), target="llvm", space_generator=space)
    assert len(context.generate_design_space()) == 1
    context.pre_tuning(3, 2)
    assert [len(context.generate_measure_candidates() or ()) for _ in range(3)] == [2, 1, 0]
    context.post_tuning()
