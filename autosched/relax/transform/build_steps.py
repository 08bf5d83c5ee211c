"""Steps of TVM's default build that change what is seen in the module; `absent_passes` names the others."""

from __future__ import annotations

import dataclasses

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Node, map_children
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    Op,
    SeqExpr,
    Var,
)
from autosched.relax.names import UniqueNames
from autosched.relax.rewrite import Rewriter, map_functions, used_vars
from autosched.relax.struct_info import same_info
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.tir.function import PrimFunc


class _Flattener(Rewriter):
    """Binds nested calls, which is all that is to do in a well-formed function."""

    def call(self, call: Call, var: Var) -> Expr:
        return call


def Normalize() -> Pass:  # noqa: N802
    """Every nested call gets a variable of its own."""
    return graph_pass("Normalize")(lambda module: map_functions(module, lambda f: _Flattener().rewrite(f)))


def _plain_blocks(body: SeqExpr) -> SeqExpr:
    bindings = tuple(b for block in body.blocks for b in block.bindings)
    return dataclasses.replace(body, blocks=(BindingBlock(bindings),) if bindings else ())


def ToNonDataflow() -> Pass:  # noqa: N802
    """Dataflow blocks become plain ones, and their variables plain variables."""

    class Renamer(Rewriter):
        def _binding(self, b: Binding) -> None:
            if type(b.var) is not Var:
                new = Var(b.var.name, b.var.struct_info)
                self.replaced[b.var], self._changed = new, True
                b = dataclasses.replace(b, var=new)  # type: ignore[type-var]
            super()._binding(b)

    def change(function: Function) -> Function:
        renamed = Renamer().rewrite(function)
        if not any(isinstance(block, DataflowBlock) for block in renamed.body.blocks):
            return renamed
        return dataclasses.replace(renamed, body=_plain_blocks(renamed.body))

    return graph_pass("ToNonDataflow")(lambda module: map_functions(module, change))


def ConvertToDataflow(min_size: int = 2) -> Pass:  # noqa: N802
    """Plain blocks of at least `min_size` bindings without branches become dataflow blocks.

    Variables that nobody reads behind such a block become dataflow variables.
    """

    class Renamer(Rewriter):
        inner: frozenset[Var] = frozenset()

        def _binding(self, b: Binding) -> None:
            if b.var not in self.inner:
                super()._binding(b)
                return
            new, value = DataflowVar(b.var.name, b.var.struct_info), self.substitute(b.value)
            self.replaced[b.var], self._changed = new, True
            self._bindings.append(dataclasses.replace(b, var=new, value=value))  # type: ignore[type-var]

    def change(function: Function) -> Function:
        blocks = tuple(
            DataflowBlock(block.bindings)
            if type(block) is BindingBlock and len(block.bindings) >= min_size
            and not any(isinstance(b.value, If) for b in block.bindings)
            else block
            for block in function.body.blocks
        )  # fmt: skip
        if all(a is b for a, b in zip(blocks, function.body.blocks, strict=True)):
            return function
        renamer = Renamer()
        shown = set(used_vars(function.body.body))
        inner: list[Var] = []
        for before, block in reversed([*zip(function.body.blocks, blocks, strict=True)]):
            if block is not before:
                inner += (b.var for b in block.bindings if b.var not in shown)
            shown.update(v for b in block.bindings for v in used_vars(b.value))
        renamer.inner = frozenset(inner)
        changed = dataclasses.replace(function, body=dataclasses.replace(function.body, blocks=blocks))
        return renamer.rewrite(changed) if inner else changed

    return graph_pass("ConvertToDataflow")(lambda module: map_functions(module, change))


def AttachGlobalSymbol() -> Pass:  # noqa: N802
    """Every function that has no `global_symbol` gets its name."""

    def attach(module: IRModule) -> IRModule:
        functions = {
            gv: f.with_attr("global_symbol", gv.name)
            if isinstance(f, Function | PrimFunc) and "global_symbol" not in f.attrs else f
            for gv, f in module.functions.items()
        }  # fmt: skip
        return module.with_functions(functions)

    return graph_pass("AttachGlobalSymbol")(attach)


def NormalizeGlobalVar() -> Pass:  # noqa: N802
    """Every function with a `global_symbol` is called by it; others that were called so get a number."""

    def normalize(module: IRModule) -> IRModule:
        symbols = {gv: f.attrs.get("global_symbol") for gv, f in module.functions.items() if hasattr(f, "attrs")}
        if all(symbol in (None, gv.name) for gv, symbol in symbols.items()):
            return module
        names = UniqueNames(symbol for symbol in symbols.values() if symbol is not None)
        new = {gv: GlobalVar(symbols.get(gv) or names(gv.name)) for gv in module.functions}

        def step(x: object) -> object:
            return new.get(x, x) if isinstance(x, GlobalVar) else map_children(x, step) if isinstance(x, Node) else x

        functions = {new[gv]: step(f) if isinstance(f, Function) else f for gv, f in module.functions.items()}
        return IRModule(functions, module.attrs, module.global_infos)

    return graph_pass("NormalizeGlobalVar")(normalize)


class _Unchecked(Rewriter):
    """Calls of registered functions without the promise that they have no effects."""

    def call(self, call: Call, var: Var) -> Expr:
        if not (isinstance(call.op, Op) and call.op.name == "relax.call_pure_packed"):
            return call
        return Call(call.args[0], call.args[1:], call.attrs, call.sinfo_args, call.struct_info, call.span)


def RemovePurityChecking() -> Pass:  # noqa: N802
    """Mark pure functions as such for good (`relax.force_pure`), and let them call registered functions plainly."""

    def change(function: Function) -> Function:
        if not function.is_pure or function.attrs.get("relax.force_pure"):
            return function
        return _Unchecked().rewrite(function).with_attr("relax.force_pure", True)

    return graph_pass("RemovePurityChecking")(lambda module: map_functions(module, change))


class _Unpaired(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[Var, Call] = {}

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name != "relax.layout_transform":
            return call
        before = self.sources.get(call.args[0])
        if before is not None and before.attrs["src_layout"] == call.attrs["dst_layout"]:
            if same_info(before.args[0].struct_info, call.struct_info):
                return before.args[0]  # type: ignore[no-any-return]
        self.sources[var] = call
        return call


def OptimizeLayoutTransform() -> Pass:  # noqa: N802
    """A change of layout right behind the opposite one goes, and with it that one where nothing else reads it."""

    def change(function: Function) -> Function:
        new = _Unpaired().rewrite(function)
        return function if new is function else remove_unused_bindings(new)

    return graph_pass("OptimizeLayoutTransform")(lambda module: map_functions(module, change))
