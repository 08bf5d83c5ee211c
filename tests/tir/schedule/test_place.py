"""Errors of primitives show the function with the culprit marked, when they are shown."""

from __future__ import annotations

import pickle

import pytest

from autosched.errors import ScheduleError
from autosched.ir import printing
from autosched.tir import Schedule
from tests.tir.programs import dense


def refused(level: str, action: str) -> ScheduleError:
    sch = Schedule(dense(), error_render_level=level)
    with pytest.raises(ScheduleError) as caught:
        if action == "inline":
            sch.compute_inline("E")
        else:
            sch.split(sch.get_loops("C")[1], [2, 2])
    return caught.value


def marked(text: str) -> list[str]:
    """What stands above carets."""
    lines = text.splitlines()
    return [
        above[below.index("^") : below.rindex("^") + 1]
        for above, below in zip(lines, lines[1:])
        if below.strip() and not below.strip(" ^")
    ]


def test_a_block_is_marked() -> None:
    line, *ir = str(refused("detail", "inline")).splitlines()
    assert line.startswith("compute_inline: block 'E' writes 'E'")
    assert ir[0] == "@T.prim_func"
    assert marked("\n".join(ir)) == ['with T.block("E"):']


def test_a_loop_is_marked() -> None:
    assert marked(str(refused("detail", "split"))) == ["j"]


@pytest.mark.parametrize("level", ["fast", "none"])
def test_one_line_where_that_is_asked_for(level: str) -> None:
    error = refused(level, "inline")
    assert str(error) == error.line and "\n" not in str(error)


def test_the_picture_shows_the_function_as_it_was_refused() -> None:
    sch = Schedule(dense())
    sch.split(sch.get_loops("C")[0], [None, 2])
    with pytest.raises(ScheduleError) as caught:
        sch.compute_inline("E")
    sch.compute_inline("D")
    assert "i_0, i_1" in str(caught.value) and 'T.block("D")' in str(caught.value)


def test_nothing_is_drawn_before_the_text_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(printing, "text", lambda node, **options: drawn.append(node) or "the function")
    error = refused("detail", "inline")
    assert "compute_inline" in error.line and drawn == []
    assert str(error).endswith("\nthe function") and len(drawn) == 1


def test_another_process_gets_the_line() -> None:
    error = refused("detail", "inline")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ScheduleError and str(copy) == error.line


def test_copies_of_a_schedule_keep_the_level() -> None:
    sch = Schedule(dense(), error_render_level="fast").copy()
    with pytest.raises(ScheduleError) as caught:
        sch.compute_inline("E")
    assert "\n" not in str(caught.value)
