"""Names: legal, unique while visible, free afterwards."""

from __future__ import annotations

from autosched.script.printer.names import Names, legal
from autosched.tir import Var


def test_legal() -> None:
    assert [legal(n) for n in ("fc1.weight", "in", "3x", "", "naïve", "a b-c")] == [
        "fc1_weight", "in_", "v_3x", "v_", "naïve", "a_b_c",
    ]  # fmt: skip


def test_a_name_is_given_once_while_visible_and_again_afterwards() -> None:
    names, first, second, third = Names(), Var("i"), Var("i"), Var("i")
    with names.frame():
        assert names.define(first, "i") == "i"
        with names.frame():
            assert names.define(second, "i") == "i_1"
        assert names.find(second) is None
        assert names.define(third, "i") == "i_1"
    assert names.define(second, "i") == "i"


def test_what_is_defined_twice_keeps_its_name() -> None:
    names, var = Names(), Var("i")
    assert names.define(var, "i") == names.define(var, "other") == "i"


def test_reserved_names_are_not_given() -> None:
    names = Names(["T"])
    names.reserve("Module")
    assert names.define(Var("T"), "T") == "T_1"
    assert names.define(Var("Module"), "Module") == "Module_1"


def test_a_name_for_the_outermost_frame_outlives_inner_ones() -> None:
    names, var = Names(), Var("n")
    with names.frame():
        names.define(var, "n", outermost=True)
    assert names.find(var) == "n"
