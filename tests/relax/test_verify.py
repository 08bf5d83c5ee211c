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


def call_of_add(*args: Var, out: TensorStructInfo = INFO) -> IRModule:
    y = Var("y", INFO)
    bb = BlockBuilder()
    with bb.function("main", [X, y]):
        bb.emit_func_output(bb.emit_te(topi.add, X, y))
    module = bb.get()
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
