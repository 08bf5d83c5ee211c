"""`lower` shows plain loops."""

from __future__ import annotations

import pytest

import autosched
from autosched import te
from autosched.ir import structural_equal, walk
from autosched.tir import Block, For, Schedule


def product() -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((7, 5), name="x")
    return x, te.compute((7, 5), lambda i, j: x[i, j] * 2.0, name="y")


def test_a_lowered_function_has_loops_and_no_blocks() -> None:
    x, y = product()
    lowered = autosched.lower([x, y], name="twice")
    nodes = list(walk(lowered["twice"].body))
    assert not any(isinstance(node, Block) for node in nodes)
    assert [node.loop_var.name for node in nodes if isinstance(node, For)] == ["i", "j"]


def test_a_schedule_its_module_and_its_function_lower_alike() -> None:
    sch = Schedule(te.create_prim_func(list(product())))
    sch.split(sch.get_loops(sch.get_block("y"))[1], (None, 4))
    lowered = autosched.lower(sch)
    assert structural_equal(lowered["main"], autosched.lower(sch.mod)["main"])
    assert structural_equal(lowered["main"], autosched.lower(sch.mod["main"])["main"])


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="schedule"):
        autosched.lower("a string")
