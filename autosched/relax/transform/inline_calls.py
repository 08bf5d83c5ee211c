"""Calls of functions of the module replaced by what the functions do."""

from __future__ import annotations

from collections.abc import Callable

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.analysis import detect_recursion
from autosched.relax.expr import Call, Expr, Function, If, Var, VarBinding
from autosched.relax.rewrite import Rewriter
from autosched.relax.transform.dead_code import remove_unused_functions


class _Inliner(Rewriter):
    def __init__(self, functions: dict[str, Function]):
        super().__init__()
        self.functions = functions

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(call.op, GlobalVar) or call.op.name not in self.functions:
            return call
        function = self.functions[call.op.name]
        body = Rewriter()  # its own variables, standing for the caller's values
        body.replaced.update(zip(function.params, call.args, strict=True))
        for b in function.bindings():
            assert isinstance(b, VarBinding), "what can be inlined only binds values"
            value = body.substitute(b.value)
            inner = self.call(value, b.var) if isinstance(value, Call) else value
            body.replaced[b.var] = self.emit(inner, b.var.name) if isinstance(inner, Call) else inner
        result: Expr = body.substitute(function.body.body)
        return result


def _is_straight(function: Function) -> bool:
    """Whether a function only binds values: no branches, no casts of shapes."""
    return all(isinstance(b, VarBinding) and not isinstance(b.value, If | Function) for b in function.bindings())


def InlinePrivateFunctions() -> Pass:  # noqa: N802
    """Put the bodies of private functions in the place of their calls; those that call themselves stay."""

    def inline(module: IRModule) -> IRModule:
        calling = {gv.name for group in detect_recursion(module) for gv in group}
        recursive = {id(module[name]) for name in calling}
        return inline_calls(module, lambda f: "global_symbol" not in f.attrs and id(f) not in recursive)

    return graph_pass("InlinePrivateFunctions")(inline)


def inline_calls(module: IRModule, chosen: Callable[[Function], bool]) -> IRModule:
    """Put the bodies of the chosen functions in the place of their calls; the functions go.

    A function with branches is called as before.
    """
    inner = {
        gv.name: f for gv, f in module.functions.items() if isinstance(f, Function) and chosen(f) and _is_straight(f)
    }  # fmt: skip
    if not inner:
        return module
    functions = {
        gv: _Inliner(inner).rewrite(f) if isinstance(f, Function) and gv.name not in inner else f
        for gv, f in module.functions.items()
    }  # fmt: skip
    kept = [gv.name for gv in functions if gv.name not in inner]
    return remove_unused_functions(module.with_functions(functions), kept)
