"""Rewriting functions, and what reads what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched import relax
from autosched.ir import IRModule
from autosched.relax import BlockBuilder, Call, Expr, TensorStructInfo, Var, op
from autosched.relax.rewrite import Rewriter, map_functions, users


def module() -> IRModule:
    x = Var("x", TensorStructInfo((2, 3)))
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(op.exp(x))
            b = bb.emit(op.nn.relu(a))
            c = bb.emit_output(op.add(b, a))
        bb.emit_func_output(c)
    return bb.get()


def rewrite_calls(m: IRModule, rules: dict[str, Callable[[Call, Callable[..., Expr]], Expr]]) -> IRModule:
    """Calls replaced by operator name, by what `rule(call, emit)` gives."""

    class Calls(Rewriter):
        def call(self, call: Call, var: Var) -> Expr:
            rule = rules.get(call.op_name.removeprefix("relax."))
            return rule(call, self.emit) if rule else call

    return map_functions(m, lambda function: Calls().rewrite(function))


def names(m: IRModule) -> list[tuple[str, str]]:
    return [(b.var.name, b.value.op_name.removeprefix("relax.")) for b in m["main"].bindings()]


def test_nothing_changed_gives_the_same_object() -> None:
    m = module()
    assert rewrite_calls(m, {}) is m
    assert rewrite_calls(m, {"relu": lambda call, emit: call}) is m


def test_a_call_is_replaced_by_calls() -> None:
    m = rewrite_calls(module(), {"nn.relu": lambda call, emit: op.maximum(call.args[0], op.exp(relax.const(0.0)))})
    assert names(m) == [("lv", "exp"), ("lv2", "exp"), ("lv1", "maximum"), ("gv", "add")]
    relax.verify(m)


def test_a_call_is_replaced_by_its_argument() -> None:
    m = rewrite_calls(module(), {"nn.relu": lambda call, emit: call.args[0]})
    assert names(m) == [("lv", "exp"), ("gv", "add")]
    relax.verify(m)
    np.testing.assert_allclose(relax.evaluate(m, [np.zeros((2, 3), "f")]), np.full((2, 3), 2.0))


def test_an_output_keeps_its_variable() -> None:
    m = rewrite_calls(module(), {"add": lambda call, emit: call.args[0]})
    assert [b.var.name for b in m["main"].bindings()] == ["lv", "lv1", "gv"]
    relax.verify(m)


def test_a_new_type_goes_on_to_the_result() -> None:
    class Wider(Rewriter):
        def call(self, call: Call, var: Var) -> Expr:
            return op.reshape(call, (3, 2)) if call.op_name == "relax.add" else call

    m = module()
    m["main"] = Wider().rewrite(m["main"])
    assert m["main"].ret_struct_info.static_shape == (3, 2)
    relax.verify(m)


def test_users() -> None:
    main = module()["main"]
    x, (a, b, c) = main.params[0], [b.var for b in main.bindings()]
    assert users(main) == {x: [a], a: [b, c], b: [c], c: [None]}


def test_rewriting_inside_branches() -> None:
    cond, x = Var("c", TensorStructInfo((), "bool")), Var("x", TensorStructInfo((3,)))

    def branch(value: Call) -> relax.SeqExpr:
        v = Var("v", value.struct_info)
        return relax.SeqExpr((relax.BindingBlock((relax.VarBinding(v, value),)),), v)

    choice = relax.If(cond, branch(op.exp(x)), branch(op.nn.relu(x)), x.struct_info)
    y = Var("y", x.struct_info)
    body = relax.SeqExpr((relax.BindingBlock((relax.VarBinding(y, choice),)),), y)
    m = IRModule({"main": relax.Function((cond, x), body, y.struct_info)})
    relax.verify(m)
    changed = rewrite_calls(m, {"nn.relu": lambda call, emit: op.negative(call.args[0])})
    ones = np.ones(3, "f")
    np.testing.assert_allclose(relax.evaluate(changed, [np.bool_(False), ones]), -ones)
    np.testing.assert_allclose(relax.evaluate(changed, [np.bool_(True), ones]), np.exp(ones))
