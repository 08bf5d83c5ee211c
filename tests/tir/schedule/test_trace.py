"""The trace: its JSON and Python forms, and replays."""

from __future__ import annotations

import json

import pytest

from autosched.errors import InvalidValueError, ScheduleError
from autosched.ir import structural_equal
from autosched.tir import PrimFunc, Schedule, Trace
from tests.tir.programs import conv_nchwc, dense, matmul, softmax


def scheduled_matmul() -> Schedule:
    sch = Schedule(matmul())
    i, j, k = sch.get_loops(sch.get_block("C"))
    i_0, i_1 = sch.split(i, [None, 4])
    sch.reorder(i_0, k, i_1, j)
    sch.parallel(i_0)
    sch.vectorize(j)
    sch.annotate(k, "note", "text")
    sch.unannotate(k, "note")
    sch.decompose_reduction("C", k)
    return sch


def scheduled_dense() -> Schedule:
    sch = Schedule(dense())
    sch.compute_inline("D")
    local = sch.cache_write("C", 0, "local")
    sch.set_scope("C", 0, "local")
    tiles = sch.sample_perfect_tile(sch.get_loops("E")[0], 2)
    i_0, _ = sch.split(sch.get_loops("E")[0], tiles)
    sch.compute_at(local, i_0)
    copy = sch.cache_read("C", "A", "global", consumer_blocks=["C"])
    sch.transform_layout(copy, ("write", 0), lambda i, k: (k, i))
    sch.transform_block_layout(copy, lambda i, k: (k, i))
    sch.unroll(sch.fuse(*sch.get_loops(copy)))
    return sch


def scheduled_softmax() -> Schedule:
    sch = Schedule(softmax(), seed=3)
    _, k_1 = sch.split(sch.get_loops("total")[-1], [None, 4])
    sch.rfactor(k_1, 0)
    sch.add_unit_loop("out")
    factor = sch.sample_categorical([2, 4], [0.5, 0.5])
    sch.split(sch.get_loops("out")[1], [None, factor])
    sch.reverse_compute_at("e", sch.get_loops("top")[0], index=-1)
    return sch


SCHEDULED = (scheduled_matmul, scheduled_dense, scheduled_softmax)


def origin(make) -> PrimFunc:  # type: ignore[no-untyped-def]
    return {"scheduled_matmul": matmul, "scheduled_dense": dense, "scheduled_softmax": softmax}[make.__name__]()


def test_json_form() -> None:
    sch = Schedule(matmul())
    i, _, _ = sch.get_loops(sch.get_block("C"))
    sch.split(i, [None, 4])
    sch.annotate(sch.get_loops("C")[0], "key", "value")
    assert sch.trace.as_json() == [
        [
            ["GetBlock", [], ["C", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["Split", ["l1", "None", 4], [True, False], ["l4", "l5"]],
            ["GetBlock", [], ["C", "main"], ["b6"]],
            ["GetLoops", ["b6"], [], ["l7", "l8", "l9", "l10"]],
            ["Annotate", ["l7", '"value"'], ["key"], []],
        ],
        [],
    ]


def test_python_form_runs() -> None:
    trace = scheduled_matmul().trace
    lines = trace.as_python()
    assert lines[0] == 'b0 = sch.get_block(name="C", func_name="main")'
    assert lines[1] == "l1, l2, l3 = sch.get_loops(block=b0)"
    factors = "factors=[None, 4], preserve_unit_iters=True, disable_predication=False"
    assert lines[2] == f"l4, l5 = sch.split(loop=l1, {factors})"
    head, second, *body = str(trace).splitlines()
    assert (head, second) == ("# from autosched import tir", "def apply_trace(sch: tir.Schedule) -> None:")
    assert body == [f"  {line}" for line in lines]


@pytest.mark.parametrize("make", SCHEDULED)
def test_python_text_means_the_same(make) -> None:  # type: ignore[no-untyped-def]
    done, sch = make(), Schedule(origin(make))
    lines = done.trace.as_python()
    lines = [x if "transform_layout" not in x else x.replace("buffer_index=0", "buffer=('write', 0)") for x in lines]
    exec("\n".join(lines), {"sch": sch})
    assert structural_equal(sch.func, done.func)


@pytest.mark.parametrize("make", SCHEDULED)
def test_replays(make) -> None:  # type: ignore[no-untyped-def]
    done = make()
    again, from_json = Schedule(origin(make)), Schedule(origin(make))
    done.trace.apply_to_schedule(again)
    Trace.apply_json_to_schedule(json.loads(json.dumps(done.trace.as_json())), from_json)
    assert structural_equal(done.func, again.func) and structural_equal(done.func, from_json.func)
    assert from_json.trace.as_json() == done.trace.as_json() == again.trace.as_json()
    from_text = Schedule(origin(make))
    Trace.apply_json_to_schedule(done.trace.to_json_text(), from_text)
    assert structural_equal(done.func, from_text.func)


def test_replay_on_another_shape_takes_the_same_steps() -> None:
    sch = Schedule(matmul(11, 13, 4))
    scheduled_matmul().trace.apply_to_schedule(sch)
    assert sch.get(sch.get_loops("C_update")[0]).extent.value == 3


def test_replay_where_it_does_not_apply() -> None:
    with pytest.raises(ScheduleError):
        scheduled_matmul().trace.apply_to_schedule(Schedule(conv_nchwc()))


def test_decisions_can_be_changed() -> None:
    done = scheduled_softmax()
    (inst,) = [i for i in done.trace.insts if i.kind == "SampleCategorical"]
    for decision in (0, 1):
        sch = Schedule(softmax())
        done.trace.with_decision(inst, decision).apply_to_schedule(sch)
        assert [i for i in sch.trace.insts if i.kind == "SampleCategorical"][0] in sch.trace.decisions
        assert sch.trace.as_json()[1][-1][1] == decision
    sch = Schedule(softmax())
    done.trace.apply_to_schedule(
        sch, decision_provider=lambda i, inputs, attrs, d: 1 if i.kind == "SampleCategorical" else d
    )
    assert sch.trace.as_json()[1][-1][1] == 1


def test_simplified_drops_unused_queries() -> None:
    sch = Schedule(matmul())
    sch.get_loops("C")
    sch.get_producers("C")
    sch.split(sch.get_loops("C")[0], [None, 2])
    short = sch.trace.simplified()
    assert [i.kind for i in short.insts] == ["GetBlock", "GetLoops", "Split"]
    again = Schedule(matmul())
    short.apply_to_schedule(again)
    assert structural_equal(again.func, sch.func)


def test_append_and_pop() -> None:
    trace = scheduled_softmax().trace.copy()
    n = len(trace.insts)
    last = trace.pop()
    assert last is not None and len(trace.insts) == n - 1
    trace.append(last)
    assert len(trace.insts) == n
    assert Trace().pop() is None


@pytest.mark.parametrize(
    "wrong",
    [
        "not json",
        3,
        [[["Nonsense", [], [], []]], []],
        [[["GetBlock", [], [], []]], []],
        [[["Parallel", ["l1"], [], []]], []],
        [[["Split"]], []],
    ],
)
def test_malformed(wrong) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(matmul())
    with pytest.raises(InvalidValueError):
        Trace.apply_json_to_schedule(wrong, sch)
    assert structural_equal(sch.func, matmul())
