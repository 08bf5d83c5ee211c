"""Carets under a node."""

from __future__ import annotations

from autosched.script import text_with_mark
from autosched.script.printer.marks import around, render
from autosched.tir.functor import blocks, loads
from tests.script import samples


def test_a_block_is_marked_at_its_first_line() -> None:
    func = samples.scheduled_matmul()
    lines = text_with_mark(func, blocks(func)[1]).splitlines()
    at = lines.index('                with T.block("C_init"):')
    assert lines[at + 1] == " " * 16 + "^" * len('with T.block("C_init"):')
    assert sum("^" in line for line in lines) == 1


def test_a_loop_inside_a_grid_is_marked_at_its_variable() -> None:
    func = samples.fused_matmul_add()
    lines = text_with_mark(func, func.root.body.seq[0].body).splitlines()
    at = next(n for n, line in enumerate(lines) if "for i0, i1, k" in line)
    assert lines[at + 1] == " " * lines[at].index("i1") + "^^"


def test_an_expression_is_marked_inside_its_line() -> None:
    func = samples.fused_matmul_add()
    load = loads(blocks(func)[1].body)[1]
    lines = text_with_mark(func, load, context=0).splitlines()
    assert lines[0] == lines[-1] == "…"
    assert lines[1][lines[2].index("^") : lines[2].rindex("^") + 1] == "lv3[v_i0, v_k]"


def test_a_node_from_elsewhere_marks_nothing() -> None:
    func = samples.fused_matmul_add()
    assert "^" not in text_with_mark(func, blocks(samples.fused_matmul_add())[1])


def test_context_lines_and_numbers() -> None:
    lines = [f"line {i}" for i in range(9)]
    lines[4] = f"line {around('4')}"
    assert render(lines, numbers=True, context=1) == "…\n4 line 3\n5 line 4\n       ^\n6 line 5\n…"


def test_nested_marks() -> None:
    assert render([f"a {around('b ' + around('c'))}"]) == "a b c\n  ^^^"
