"""Results that no kernel writes get a kernel that copies them."""

from __future__ import annotations

import dataclasses

from autosched import topi
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, DataflowBlock, Expr, Function, SeqExpr, Tuple, Var, VarBinding
from autosched.relax.op.call import call_tir, is_call_tir
from autosched.relax.te_call import make_te_call
from autosched.relax.transform.views import is_view


class _Copier:
    """Copies what the caller must own: outputs that are inputs, constants, or share their memory with another one."""

    def __init__(self, function: Function, builder: BlockBuilder):
        self.function, self.builder = function, builder
        self.values: dict[Var, Expr] = {b.var: b.value for b in function.bindings()}
        self.owned: set[Var] = set()
        self.bindings: list[VarBinding] = []

    def root(self, x: Expr) -> Expr:
        """The value whose memory `x` is."""
        while isinstance(x, Var) and x in self.values:
            value = self.values[x]
            if is_view(value):
                x = value.args[0]
            elif isinstance(value, Var | Constant):
                x = value
            else:
                return x
        return x

    def output(self, x: Expr) -> Expr:
        root = self.root(x)
        if isinstance(root, Var) and is_call_tir(self.values.get(root)) and root not in self.owned:
            self.owned.add(root)
            return x
        return self.copy(x)

    def copy(self, x: Expr) -> Var:
        made = make_te_call(topi.identity, (x,), {})
        gvar = self.builder.add_func(made.func, "copy")
        call = call_tir(gvar, Tuple(made.args), made.out)
        var = Var(f"copy_{len(self.bindings)}", made.out)
        self.bindings.append(VarBinding(var, call))
        return var

    def run(self) -> Function:
        body = self.function.body
        result: Expr
        if isinstance(body.body, Tuple):
            result = Tuple(tuple(self.output(f) for f in body.body.fields))
        else:
            result = self.output(body.body)
        if not self.bindings:
            return self.function
        block = DataflowBlock(tuple(self.bindings))
        return dataclasses.replace(self.function, body=SeqExpr((*body.blocks, block), result))


def copy_outputs(module: IRModule) -> IRModule:
    """Give every result of `main` memory of its own, written by a kernel (or a view of such memory)."""
    if "main" not in module or not isinstance(module["main"], Function):
        return module
    builder = BlockBuilder(module)
    main = _Copier(module["main"], builder).run()
    if main is module["main"]:
        return module
    result = builder.get()
    result.update_func(module.get_global_var("main"), main)
    return result


def CopyOutputs() -> Pass:  # noqa: N802
    """See `copy_outputs`."""
    return graph_pass("CopyOutputs")(copy_outputs)
