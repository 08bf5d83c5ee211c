"""Schedule as an object: references, names, copies, errors that change nothing, sampling."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError, TVMError
from autosched.ir import IRModule, structural_equal
from autosched.tir import Block, For, PrimFunc, Schedule
from tests.tir.programs import assert_same_result, chain, dense, matmul, softmax


def names(sch: Schedule, blocks: list) -> list[str]:  # type: ignore[type-arg]
    return [sch.get(b).name for b in blocks]


def test_takes_functions_and_modules_and_changes_neither() -> None:
    func = matmul()
    module = IRModule({"main": func, "other": chain()})
    sch = Schedule(module)
    sch.split(sch.get_loops("C")[0], [None, 4])
    assert module["main"] is func and sch.mod["main"] is sch.func is not func
    assert sch.mod["other"] is module["other"]
    with pytest.raises(InvalidTypeError):
        Schedule(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="error_render_level"):
        Schedule(func, error_render_level="loud")


def test_several_functions() -> None:
    sch = Schedule(IRModule({"first": matmul(), "second": chain()}))
    with pytest.raises(InvalidValueError, match="several functions"):
        sch.get_block("C")
    block = sch.get_block("C", func_name="first")
    assert isinstance(sch.get(block), Block)
    sch.work_on("second")
    assert sch.func_working_on is not None and sch.func_working_on.name == "second"
    with pytest.raises(ScheduleError, match="different functions"):
        sch.compute_at("B", sch.get_loops(block)[0])


def test_queries() -> None:
    sch = Schedule(softmax())
    assert names(sch, sch.get_child_blocks("root")) == ["top", "e", "total", "out"]
    assert names(sch, sch.get_producers("out")) == ["e", "total"]
    assert names(sch, sch.get_consumers("e")) == ["total", "out"]
    assert names(sch, sch.get_output_blocks("root")) == ["out"]
    loop = sch.get_loops("out")[0]
    assert names(sch, sch.get_child_blocks(loop)) == ["out"]
    assert isinstance(sch.get(loop), For) and sch.get_sref(loop) is sch.get(loop)
    with pytest.raises(ScheduleError, match="its blocks are root, top"):
        sch.get_block("nothing")


def test_errors_are_tvm_errors() -> None:
    sch = Schedule(matmul())
    with pytest.raises(TVMError):
        sch.compute_inline("C")
    with pytest.raises(RuntimeError):
        sch.compute_inline("C")


def test_dead_references() -> None:
    sch = Schedule(dense())
    i, j = sch.get_loops("E")
    block = sch.get_block("D")
    sch.fuse(i, j)
    with pytest.raises(ValueError, match="consumed"):
        sch.split(i, [None, 2])
    sch.compute_inline(block)
    with pytest.raises(ValueError, match="no longer"):
        sch.get(block)
    with pytest.raises(TypeError):
        sch.split("i", [2, None])  # type: ignore[arg-type]
    loop = sch.get_loops("E")[0]
    sch.remove_rv(loop)
    with pytest.raises(ValueError):
        sch.get(loop)


def test_a_block_keeps_its_reference_when_renamed() -> None:
    sch = Schedule(matmul())
    a, b = sch.get_block("C"), sch.get_block("C")
    sch.decompose_reduction("C", sch.get_loops("C")[-1])
    assert sch.get(a).name == sch.get(b).name == "C_update"


def test_a_failed_primitive_changes_neither_function_nor_trace() -> None:
    sch = Schedule(matmul())
    block = sch.get_block("C")
    before, done = sch.func, len(sch.trace.insts)
    with pytest.raises(ScheduleError):
        sch.compute_inline(block)
    assert sch.func is before and len(sch.trace.insts) == done


def test_copies_go_their_own_way() -> None:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    other = sch.copy()
    other.fuse(i, j)
    sch.split(i, [None, 2])
    assert len(other.get_loops("C")) == 2 and len(sch.get_loops("C")) == 4
    assert [x.kind for x in other.trace.insts].count("Fuse") == 1
    assert all(x.kind != "Fuse" for x in sch.trace.insts)


def test_repeated_block_names_are_made_unique() -> None:
    func = chain()
    first, *rest = func.root.body.seq
    twice = replace(rest[0].body.body, block=replace(rest[0].body.body.block, name_hint="B"))
    again = replace(rest[0], body=replace(rest[0].body, body=twice))
    wrong = func.with_body(
        replace(func.body, block=replace(func.root, body=replace(func.root.body, seq=(first, again, rest[1]))))
    )
    sch = Schedule(wrong)
    assert names(sch, sch.get_child_blocks("root")) == ["B", "B_1", "D"]
    assert_same_result(func, sch.func)


def test_annotations() -> None:
    sch = Schedule(matmul())
    i = sch.get_loops("C")[0]
    sch.annotate(i, "pragma_auto_unroll_max_step", 16)
    sch.annotate("C", "note", "text")
    assert sch.get(i).annotations == {"pragma_auto_unroll_max_step": 16}
    assert sch.get(sch.get_block("C")).annotations["note"] == "text"
    sch.unannotate("C", "note")
    assert "note" not in sch.get(sch.get_block("C")).annotations
    with pytest.raises(ScheduleError, match="no annotation 'note'"):
        sch.unannotate("C", "note")


def test_sampling_is_repeatable_and_decided() -> None:
    def tiles(seed: int) -> list[int]:
        sch = Schedule(matmul(64, 64, 64), seed=seed)
        rvs = sch.sample_perfect_tile(sch.get_loops("C")[0], 3, max_innermost_factor=4)
        sch.split(sch.get_loops("C")[0], rvs)
        return [sch.get(v) for v in rvs]

    assert tiles(1) == tiles(1)
    assert len({tuple(tiles(s)) for s in range(20)}) > 3
    for s in range(5):
        a, b, c = tiles(s)
        assert a * b * c == 64 and c <= 4
    sch = Schedule(matmul(8, 8, 8))
    rvs = sch.sample_perfect_tile(sch.get_loops("C")[0], 2, decision=[2, 4])
    assert [sch.get(v) for v in rvs] == [2, 4]
    with pytest.raises(ScheduleError, match="no tiling"):
        sch.sample_perfect_tile(sch.get_loops("C")[0], 2, decision=[3, 4])
    rv = sch.sample_categorical([16, 64], [0.0, 1.0])
    assert sch.get(rv) == 64


def test_the_function_is_the_same_until_something_is_done() -> None:
    func = softmax()
    assert structural_equal(Schedule(func).func, func)
    assert isinstance(Schedule(func).func, PrimFunc)
