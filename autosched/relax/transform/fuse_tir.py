"""Each group of kernels becomes one PrimFunc."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict, walk
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Expr, Function, Tuple, Var
from autosched.relax.op.call import call_tir, tir_inputs, tir_target
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo, TupleStructInfo
from autosched.relax.transform.dead_code import remove_unused_functions
from autosched.te.prim_func import UniqueNames
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm
from autosched.tir.expr import Var as TirVar
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import rewrite
from autosched.tir.stmt import Block, For, LetStmt, Stmt, seq


def bound_vars(node: Any) -> list[TirVar]:
    """The variables that loops, blocks and lets below `node` introduce."""
    found: list[TirVar] = []
    for x in walk(node):
        if isinstance(x, For):
            found.append(x.loop_var)
        elif isinstance(x, LetStmt):
            found.append(x.var)
        elif isinstance(x, Block):
            found += [iv.var for iv in x.iter_vars]
    return found


class _Merger:
    """The PrimFunc of one group: the bodies in order, over shared buffers."""

    def __init__(self, module: IRModule, function: Function):
        self.module, self.function = module, function
        self.buffer_names, self.block_names = UniqueNames(), UniqueNames()
        self.buffers: dict[Var, Buffer] = {}
        self.local: list[Buffer] = []
        self.bodies: list[Stmt] = []

    def new_buffer(self, name: str, shape: tuple[Any, ...], dtype: str) -> Buffer:
        return Buffer(self.buffer_names(_identifier(name)), shape, dtype)

    def buffer_for(self, var: Var) -> Buffer:
        info = var.struct_info
        assert isinstance(info, TensorStructInfo), "groups compute tensors"
        shape = tuple(IntImm(s, "int64") for s in info.static_shape)
        return self.new_buffer(var.name, shape, info.dtype)

    def merge(self) -> PrimFunc:
        for p in self.function.params:
            self.buffers[p] = self.buffer_for(p)
        for b in self.function.bindings():
            assert isinstance(b.value, Call), "groups are made of kernel calls"
            self.inline(b.var, b.value)
        result = self.function.body.body
        assert isinstance(result, Var), "a group has one result"
        out = self.buffers[result]
        params = {TirVar(f"p_{b.name}", "handle"): b for b in [*(self.buffers[p] for p in self.function.params), out]}
        local = tuple(b for b in self.local if b is not out)
        body = make_root(seq(*self.bodies), local)
        return PrimFunc(tuple(params), params, body, attrs=FrozenDict({"tir.noalias": True}))

    def inline(self, var: Var, call: Call) -> None:
        """Append the body of a kernel, its buffers replaced by the caller's and its variables by new ones."""
        func: PrimFunc = self.module[tir_target(call)]
        inputs = [self.buffers[a] for a in tir_inputs(call)]  # type: ignore[index]
        *_, own_out = func.buffers
        out = self.new_buffer(f"{own_out.name}_intermediate", own_out.shape, own_out.dtype)
        self.buffers[var] = out
        self.local.append(out)
        mapping: dict[Buffer, Buffer] = dict(zip(func.buffers, [*inputs, out], strict=True))
        for b in func.root.alloc_buffers:
            mapping[b] = self.new_buffer(f"{b.name}_intermediate", b.shape, b.dtype)
            self.local.append(mapping[b])
        self.bodies.append(self.renewed(func.root.body, mapping))

    def renewed(self, body: Stmt, buffers: dict[Buffer, Buffer]) -> Stmt:
        variables = {v: TirVar(v.name, v.dtype) for v in bound_vars(body)}

        def step(x: Any) -> Any:
            if isinstance(x, TirVar):
                return variables.get(x, x)
            if isinstance(x, Buffer):
                return buffers.get(x, x)
            if isinstance(x, Block):
                name = self.block_names(x.name_hint)
                return x if name == x.name_hint else dataclasses.replace(x, name_hint=name)
            return x

        return rewrite(body, step)


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"v_{text}"


class _Caller(Rewriter):
    def __init__(self, merged: Mapping[GlobalVar, Any]):
        super().__init__()
        self.merged = merged

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(call.op, GlobalVar) or call.op not in self.merged:
            return call
        info = call.struct_info
        out = list(info.fields) if isinstance(info, TupleStructInfo) else info
        return call_tir(call.op, Tuple(call.args), out)


def _is_group(function: Any) -> bool:
    return isinstance(function, Function) and bool(function.attrs.get("Primitive"))


def fuse_tir(module: IRModule) -> IRModule:
    """Turn each `Primitive` function into a PrimFunc of the same name and its calls into `call_tir`.

    What lies between two kernels of a group becomes a buffer of the root block, named …_intermediate. Functions that
    nobody calls afterwards are dropped.
    """
    groups = {gv: f for gv, f in module.functions.items() if _is_group(f)}
    merged = {gv: _Merger(module, f).merge() for gv, f in groups.items()}
    functions: dict[GlobalVar, Any] = {}
    for gv, f in module.functions.items():
        if gv in merged:
            functions[gv] = merged[gv]
        else:
            functions[gv] = _Caller(merged).rewrite(f) if isinstance(f, Function) else f
    return remove_unused_functions(module.with_functions(functions))


def FuseTIR() -> Pass:  # noqa: N802
    """See `fuse_tir`."""
    return graph_pass("FuseTIR")(fuse_tir)
