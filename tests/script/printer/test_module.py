"""Modules: a class of functions, sorted by name."""

from __future__ import annotations

from autosched.ir import GlobalVar, IRModule
from autosched.script import script
from tests.script import samples


def test_functions_are_sorted_and_clashing_names_numbered() -> None:
    lines = script(samples.many_functions(), name="Three").splitlines()
    assert lines[:5] == [
        "# from autosched.script import ir as I", "# from autosched.script import tir as T", "", "@I.ir_module",
        "class Three:",
    ]  # fmt: skip
    assert lines[5] == '    I.module_attrs({"version": 2})'
    names = [line.split("(")[0] for line in lines if line.startswith("    def ")]
    assert names == ["    def a", "    def b_second", "    def b_second_1"]


def test_an_empty_module() -> None:
    assert script(IRModule()) == "# from autosched.script import ir as I\n\n@I.ir_module\nclass Module:\n    pass"


def test_a_global_var() -> None:
    assert script(GlobalVar("main")) == str([GlobalVar("main")])[1:-1] == 'I.GlobalVar("main")'
