"""Types of calls of the module's own functions, which are not known when the call is written."""

from __future__ import annotations

import dataclasses

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.transform import graph_pass
from autosched.relax.call_result import call_result
from autosched.relax.expr import Call, Expr, Function, If, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import ObjectStructInfo, StructInfo, TupleStructInfo


def is_known(info: StructInfo | None) -> bool:
    """Whether an annotation says what the value is."""
    if isinstance(info, TupleStructInfo):
        return all(map(is_known, info.fields))
    return info is not None and not isinstance(info, ObjectStructInfo)


@graph_pass("InferTypes")
def infer_types(module: IRModule) -> IRModule:
    """Say of every call of a module's function what that function returns, and of every operator what follows.

    Afterwards only calls of functions whose result depends on themselves have no type.
    """
    functions = dict(module.functions)
    for _ in functions:  # each round reaches callers one step further away
        known = {gv.name: f for gv, f in functions.items() if isinstance(f, Function)}
        new = {gv: _Inferrer(known).rewrite(f) if isinstance(f, Function) else f for gv, f in functions.items()}
        if all(new[gv] is f for gv, f in functions.items()):
            break
        functions = new
    return module.with_functions(functions)


class _Inferrer(Rewriter):
    def __init__(self, functions: dict[str, Function]):
        super().__init__()
        self.functions = functions

    def call(self, call: Call, var: Var) -> Expr:
        if is_known(call.struct_info):
            return call
        if isinstance(call.op, GlobalVar):
            callee = self.functions.get(call.op.name)
            if callee is None or not is_known(callee.ret_struct_info):
                return call
            params = [p.struct_info for p in callee.params]
            info = call_result(params, callee.ret_struct_info, [a.struct_info for a in call.args])
            return dataclasses.replace(call, struct_info=info)
        if definition_of(call) is None or not all(is_known(a.struct_info) for a in call.args):
            return call
        return remake(call)

    def value(self, value: Expr, var: Var) -> Expr:
        if isinstance(value, If) and not is_known(value.struct_info):
            info = value.true_branch.struct_info
            info = info if is_known(info) else value.false_branch.struct_info
            return dataclasses.replace(value, struct_info=info) if is_known(info) else value
        return super().value(value, var)
