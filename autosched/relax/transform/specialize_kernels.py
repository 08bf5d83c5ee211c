"""Kernels of symbolic sizes become kernels of the sizes that they are called with."""

from __future__ import annotations

import dataclasses

from autosched.errors import ShapeError
from autosched.ir.module import GlobalVar, IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Expr, Function, ShapeExpr, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import StructInfo, TensorStructInfo, tensor_infos
from autosched.relax.transform.dead_code import remove_unused_functions
from autosched.tir.expr import Var as SymbolicSize
from autosched.tir.expr import const_int
from autosched.tir.function import PrimFunc, shape_vars, specialize


class _Specializer(Rewriter):
    def __init__(self, module: IRModule, builder: BlockBuilder):
        super().__init__()
        self.module, self.builder = module, builder

    def call(self, call: Call, var: Var) -> Expr:
        if not is_call_tir(call) or call.struct_info is None:
            return call
        gvar = tir_target(call)
        func = self.module[gvar]
        if not isinstance(func, PrimFunc) or not shape_vars(func):
            return call
        values = _sizes(func, call)
        if values is None or set(values) < set(shape_vars(func)):
            return call
        made = self.builder.add_func(specialize(func, values), gvar.name)
        return dataclasses.replace(call, args=(made, call.args[1]))


def _sizes(func: PrimFunc, call: Call) -> dict[SymbolicSize, int] | None:
    """The values of a kernel's symbols where a call's shapes are known; None where they are not.

    Raises ShapeError where one symbol has two values.
    """
    infos: list[StructInfo | None] = [x.struct_info for x in tir_inputs(call)]
    infos += tensor_infos(call.struct_info)
    values: dict[SymbolicSize, int] = {}
    pairs = [(b.shape, i.shape) for b, i in zip(func.buffers, infos, strict=False) if isinstance(i, TensorStructInfo)]
    free = [p for p in func.params if p not in func.buffer_map]
    if len(call.args) > 2 and isinstance(call.args[2], ShapeExpr):
        pairs.append((tuple(free), call.args[2].values))
    for own, given in pairs:
        for extent, size in zip(own, given or (), strict=False):
            number = const_int(size)
            if not isinstance(extent, SymbolicSize) or number is None:
                continue
            if values.setdefault(extent, number) != number:
                name = tir_target(call).name
                raise ShapeError(f"kernel '{name}': '{extent.name}' is {values[extent]} and {number}")
    return values or None


def specialize_kernels(module: IRModule) -> IRModule:
    """The module with a kernel for each set of sizes that a symbolic one is called with."""
    if not any(isinstance(f, PrimFunc) and shape_vars(f) for f in module.functions.values()):
        return module
    builder = BlockBuilder(module)
    changed: dict[GlobalVar, Function] = {}
    for gv, function in module.functions.items():
        if isinstance(function, Function):
            new = _Specializer(module, builder).rewrite(function)
            if new is not function:
                changed[gv] = new
    if not changed:
        return module
    result = builder.get()
    for gv, function in changed.items():
        result.update_func(gv, function)
    kept = [gv.name for gv, f in module.functions.items() if isinstance(f, Function) or "global_symbol" in f.attrs]
    return remove_unused_functions(result, kept)
