"""Visitors and mutators that users write."""

from __future__ import annotations

from typing import Any

import pytest

from autosched import relax
from autosched.ir import IRModule, structural_equal
from autosched.relax.functor import PyExprMutator, PyExprVisitor, mutator, visitor
from autosched.relax.transform import dataflowblock_pass, function_pass
from autosched.relax.verify import verify
from autosched.script import ir as I
from autosched.script import relax as R


@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.nn.relu(lv)
            gv = R.add(lv1, R.const(1.0, "float32"))
            R.output(gv)
        return gv


def test_visitor_sees_calls_in_order() -> None:
    @visitor
    class Names(PyExprVisitor):
        def __init__(self) -> None:
            self.found: list[str] = []

        def visit_call_(self, op: Any) -> None:
            self.found.append(op.op.name)
            super().visit_call_(op)

        def visit_dataflow_var_def_(self, var: Any) -> None:
            self.found.append(var.name)

    names = Names()
    names.visit_expr(Mod["main"])
    assert names.found == ["relax.matmul", "lv", "relax.nn.relu", "lv1", "relax.add"]


def test_mutator_without_changes_gives_the_same_object() -> None:
    assert PyExprMutator().visit_expr(Mod["main"]) is Mod["main"]


def test_mutator_replaces_and_emits() -> None:
    @mutator
    class Square(PyExprMutator):
        def visit_call_(self, op: Any) -> Any:
            call = self.visit_expr_post_order(op)
            if call.op == relax.Op.get("relax.nn.relu"):
                doubled = self.builder_.emit(relax.op.add(call.args[0], call.args[0]))
                return relax.op.multiply(doubled, call.args[0])
            return call

    function = Square().visit_expr(Mod["main"])
    verify(IRModule({"main": function}))
    text = function.script()
    assert "R.multiply(" in text
    assert "relu" not in text


def test_mutator_changes_types() -> None:
    class Transpose(PyExprMutator):
        def visit_call_(self, op: Any) -> Any:
            call = super().visit_call_(op)
            return relax.op.permute_dims(call) if call.op.name == "relax.nn.relu" else call

    function = Transpose().visit_expr(Mod["main"])
    verify(IRModule({"main": function}))
    assert function.ret_struct_info.static_shape == (4, 2)


def test_mutator_adds_functions() -> None:
    from autosched import topi

    class Lower(PyExprMutator):
        def visit_call_(self, op: Any) -> Any:
            call = self.visit_expr_post_order(op)
            if call.op.name == "relax.nn.relu":
                return self.builder_.call_te(topi.relu, call.args[0])
            return call

    lower = Lower(Mod)
    lower.builder_.update_func(Mod.get_global_var("main"), lower.visit_expr(Mod["main"]))
    module = lower.builder_.get()
    verify(module)
    assert [gv.name for gv in module.get_global_vars()] == ["main", "relu"]


def test_function_and_block_passes() -> None:
    @function_pass(opt_level=1, name="touch")
    def touch(func: Any, mod: Any, ctx: Any) -> Any:
        return func.with_attr("touched", 1)

    @function_pass(opt_level=1)
    class Note:
        def __init__(self, value: int) -> None:
            self.value = value

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            return func.with_attr("note", self.value)

    seen = []

    @dataflowblock_pass(opt_level=1)
    def look(block: Any, mod: Any, ctx: Any) -> Any:
        seen.append(len(block.bindings))
        return block

    assert touch(Mod)["main"].attrs["touched"] == 1
    assert Note(3)(Mod)["main"].attrs["note"] == 3
    assert structural_equal(look(Mod), Mod)
    assert seen == [3]
    assert "touched" not in Mod["main"].attrs


def test_a_pass_that_gives_nonsense_is_refused() -> None:
    @function_pass(opt_level=1)
    def wrong(func: Any, mod: Any, ctx: Any) -> Any:
        return 3

    with pytest.raises(TypeError, match="made a int of the function 'main'"):
        wrong(Mod)
