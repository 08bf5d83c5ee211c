"""The steps of TVM's default build by name.

What such a step prepares for TVM's VM, the build here does by itself (views, memory planning, shapes of calls); then
the pass gives the module as it is, so that a pipeline written for TVM runs and builds to the same result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import BindingBlock, Call, DataflowBlock, Expr, Function, If, SeqExpr, Var
from autosched.relax.rewrite import Rewriter, map_functions
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
        def _binding(self, b: Any) -> None:
            if type(b.var) is not Var:
                new = Var(b.var.name, b.var.struct_info)
                self.replaced[b.var], self._changed = new, True
                b = dataclasses.replace(b, var=new)
            super()._binding(b)

    def change(function: Function) -> Function:
        renamed = Renamer().rewrite(function)
        if not any(isinstance(block, DataflowBlock) for block in renamed.body.blocks):
            return renamed
        return dataclasses.replace(renamed, body=_plain_blocks(renamed.body))

    return graph_pass("ToNonDataflow")(lambda module: map_functions(module, change))


def ConvertToDataflow(min_size: int = 2) -> Pass:  # noqa: N802
    """Plain blocks of at least `min_size` bindings without branches become dataflow blocks."""

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
        return dataclasses.replace(function, body=dataclasses.replace(function.body, blocks=blocks))

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


def _own_step(name: str, what: str) -> Callable[..., Pass]:
    def make(*_: Any, **__: Any) -> Pass:
        return graph_pass(name)(lambda module: module)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"TVM's step that {what}: the build does that by itself; the module stays as it is."
    return make


RewriteDataflowReshape = _own_step("RewriteDataflowReshape", "makes reshapes views")
RemovePurityChecking = _own_step("RemovePurityChecking", "drops the checks of purity")
CallTIRRewrite = _own_step("CallTIRRewrite", "allocates the results of kernels")
StaticPlanBlockMemory = _own_step("StaticPlanBlockMemory", "lets tensors share memory")
RewriteCUDAGraph = _own_step("RewriteCUDAGraph", "records CUDA graphs")
LowerAllocTensor = _own_step("LowerAllocTensor", "lowers allocations")
KillAfterLastUse = _own_step("KillAfterLastUse", "frees tensors")
LowerRuntimeBuiltin = _own_step("LowerRuntimeBuiltin", "lowers builtins of the VM")
ComputePrimValue = _own_step("ComputePrimValue", "computes scalars")
VMShapeLower = _own_step("VMShapeLower", "computes shapes at run time")
AllocateWorkspace = _own_step("AllocateWorkspace", "allocates the workspace of external libraries")
UpdateVDevice = _own_step("UpdateVDevice", "places values on devices")
FastMathTransform = _own_step("FastMathTransform", "replaces functions by faster, less exact ones")
LambdaLift = _own_step("LambdaLift", "moves inner functions out")
DataflowUseInplaceCalls = _own_step("DataflowUseInplaceCalls", "reuses the memory of arguments")
TopologicalSort = _own_step("TopologicalSort", "orders bindings")
RealizeVDevice = _own_step("RealizeVDevice", "places values on devices")
OptimizeLayoutTransform = _own_step("OptimizeLayoutTransform", "drops pairs of layout transforms")
