"""Kernels over a caller's long extents become kernels over symbols of their own, and equal ones are one."""

from __future__ import annotations

import dataclasses

from autosched.ir.module import GlobalVar, IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Expr, Function, Var
from autosched.relax.op.call import is_call_tir, tir_target
from autosched.relax.rewrite import Rewriter
from autosched.tir.function import PrimFunc
from autosched.tir.named_extents import name_extents


class _Caller(Rewriter):
    def __init__(self, made: dict[GlobalVar, GlobalVar]):
        super().__init__()
        self.made = made

    def call(self, call: Call, var: Var) -> Expr:
        if not is_call_tir(call) or (made := self.made.get(tir_target(call))) is None:
            return call
        return dataclasses.replace(call, args=(made, *call.args[1:]))


def name_kernel_extents(module: IRModule) -> IRModule:
    """The module with kernels as `tir.named_extents.name_extents` makes them, those of one form shared."""
    named = {gv: name_extents(f) for gv, f in module.functions.items() if isinstance(f, PrimFunc)}
    changed = {gv: func for gv, func in named.items() if func is not module[gv]}
    if not changed:
        return module
    builder = BlockBuilder(module.with_functions({gv: f for gv, f in module.functions.items() if gv not in changed}))
    made = {gv: builder.add_func(func, gv.name) for gv, func in changed.items()}
    result = builder.get()
    for gv, function in module.functions.items():
        if isinstance(function, Function):
            result.update_func(gv, _Caller(made).rewrite(function))
    return result
