"""Each rule of the verifier, broken once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from autosched import relax, topi
from autosched.errors import VerifyError
from autosched.ir import GlobalVar, IRModule
from autosched.relax import (
    BindingBlock,
    BlockBuilder,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
    op,
)  # fmt: skip

INFO = TensorStructInfo((3,))
X = Var("x", INFO)


def function(
    *bindings: VarBinding, result: relax.Expr, params: tuple[Var, ...] = (X,), block: type = DataflowBlock
) -> Function:
    return Function(params, SeqExpr((block(bindings),), result), result.struct_info)


def bind(name: str, value: relax.Expr, kind: type = Var) -> VarBinding:
    return VarBinding(kind(name, value.struct_info), value)


def unknown_variable() -> Function:
    b = bind("y", op.exp(Var("free", INFO)))
    return function(b, result=b.var)


def bound_twice() -> Function:
    b = bind("y", op.exp(X))
    return function(b, b, result=b.var)


def escapes() -> Function:
    b = bind("y", op.exp(X), DataflowVar)
    return function(b, result=b.var)


def outside_dataflow() -> Function:
    b = bind("y", op.exp(X), DataflowVar)
    return function(b, result=X, block=BindingBlock)


def nested_call() -> Function:
    b = bind("y", op.exp(op.exp(X)))
    return function(b, result=b.var)


def wrong_variable_type() -> Function:
    b = VarBinding(Var("y", TensorStructInfo((4,))), op.exp(X))
    return function(b, result=b.var)


def wrong_call_type() -> Function:
    b = bind("y", dataclasses.replace(op.exp(X), struct_info=TensorStructInfo((4,))))
    return function(b, result=b.var)


def wrong_result_type() -> Function:
    b = bind("y", op.exp(X))
    return dataclasses.replace(function(b, result=b.var), ret_struct_info=TensorStructInfo((4,)))


def unknown_operator() -> Function:
    b = bind("y", Call(Op("relax.nonsense"), (X,), struct_info=INFO))
    return function(b, result=b.var)


def missing_function() -> Function:
    b = bind("y", relax.call_tir(GlobalVar("nowhere"), X, INFO))
    return function(b, result=b.var)


def parameter_twice() -> Function:
    return function(result=X, params=(X, X))


def untyped_parameter() -> Function:
    return function(result=relax.const(1.0), params=(Var("p"),))


def branch_in_dataflow() -> Function:
    inner = SeqExpr((), X)
    b = bind("y", If(Var("x", INFO), inner, inner, INFO))
    return function(b, result=b.var)


CASES: dict[Callable[[], Function], str] = {
    unknown_variable: "not defined", bound_twice: "bound twice", escapes: "not defined",
    outside_dataflow: "outside of a dataflow block", nested_call: "only variables and constants",
    wrong_variable_type: "the variable is", wrong_call_type: "its operator gives",
    wrong_result_type: "the function says",
    unknown_operator: "unknown operator", missing_function: "no function 'nowhere'", parameter_twice: "listed twice",
    untyped_parameter: "has no type", branch_in_dataflow: "branch inside",
}  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_a_broken_rule_is_refused(make: Callable[[], Function]) -> None:
    module = IRModule({"main": make()})
    with pytest.raises(VerifyError, match=CASES[make]) as error:
        relax.verify(module)
    assert "function 'main'" in str(error.value)
    assert not relax.well_formed(module)


def module_of_add(info: TensorStructInfo) -> IRModule:
    x, y = Var("x", info), Var("y", info)
    bb = BlockBuilder()
    with bb.function("main", [x, y]):
        bb.emit_func_output(bb.emit_te(topi.add, x, y))
    return bb.get()


def call_of_add(*args: Var, out: TensorStructInfo = INFO) -> IRModule:
    module = module_of_add(INFO)
    b = bind("z", relax.call_tir(module.get_global_var("add"), Tuple(args), out))
    module["main"] = function(b, result=b.var, params=tuple(dict.fromkeys(args)))
    return module


def test_call_tir() -> None:
    relax.verify(call_of_add(X, Var("y", INFO)))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (call_of_add(X), "takes 3 tensors, the call passes 2"),
        (call_of_add(X, Var("y", TensorStructInfo((4,)))), "as 'y', got"),
        (call_of_add(X, Var("y", TensorStructInfo((3,), "int32"))), "as 'y', got"),
        (call_of_add(X, Var("y", INFO), out=TensorStructInfo((3, 1))), "as 'T_add', got"),
    ],
)
def test_call_tir_that_does_not_fit(module: IRModule, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        relax.verify(module)


def test_types_of_a_call_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred = []
    definition = relax.op.registry.OPERATORS["add"]
    monkeypatch.setattr(type(definition), "infer", lambda self, infos, attrs: inferred.append(infos) or INFO)
    known, new = bind("y", op.add(X, X)), op.multiply(X, X)
    inferred.clear()
    checked: dict[int, tuple[Call, object]] = {}
    relax.verify(IRModule({"main": function(known, result=known.var)}), checked)
    other = bind("z", dataclasses.replace(new))
    both = Function((X,), SeqExpr((DataflowBlock((known, other)),), other.var), INFO)
    relax.verify(IRModule({"main": both}), checked)
    assert len(inferred) == 2, "once for each of two calls"
    unknown = bind("y", known.value)
    with pytest.raises(VerifyError, match="not defined"):
        relax.verify(IRModule({"main": function(unknown, result=unknown.var, params=())}), checked)


def test_a_call_of_a_function_that_changed_is_looked_at_again() -> None:
    module, checked = call_of_add(X, Var("y", INFO)), dict[int, tuple[Call, object]]()
    relax.verify(module, checked)
    name = module.get_global_var("add")
    changed = module.with_functions({**module.functions, name: module_of_add(TensorStructInfo((4,)))["add"]})
    with pytest.raises(VerifyError, match="got"):
        relax.verify(changed, checked)
