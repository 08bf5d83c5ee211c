"""Calls that run as one kernel become one function."""

from __future__ import annotations

import dataclasses

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict, Span
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)  # fmt: skip
from autosched.relax.names import UniqueNames
from autosched.relax.op.call import call_tir, tir_inputs, tir_target
from autosched.relax.struct_info import TupleStructInfo
from autosched.relax.transform.canonicalize_bindings import canonicalize_function
from autosched.relax.transform.fusion_groups import Group, find_groups


class _Extraction:
    """The function of one group: parameters for what comes from outside, in order of first use."""

    def __init__(self, group: Group):
        self.group = group
        self.outside: dict[object, Var] = {}  # value from outside (constants by their array) -> parameter
        self.arguments: list[Expr] = []
        self.inside: dict[Var, Var] = {}
        self.names = UniqueNames()

    def value(self, x: Expr) -> Expr:
        if isinstance(x, Var) and x in self.inside:
            return self.inside[x]
        key = x.identity if isinstance(x, Constant) else x
        if key not in self.outside:
            name = f"param_{len(self.outside)}" if isinstance(x, Constant) else "x"
            if isinstance(x, Var) and not isinstance(x, DataflowVar):
                name = x.name
            self.outside[key] = Var(self.names(name), x.struct_info)
            self.arguments.append(x)
        return self.outside[key]

    def function(self) -> Function:
        bindings = []
        last = self.group.members[-1]
        for m in self.group.members:
            call = m.call
            info = call.struct_info
            out = list(info.fields) if isinstance(info, TupleStructInfo) else info
            new = call_tir(tir_target(call), Tuple(tuple(self.value(a) for a in tir_inputs(call))), out)
            kind = Var if m is last else DataflowVar
            var = kind(self.names("gv" if m is last else "lv"), m.var.struct_info)
            self.inside[m.var] = var
            bindings.append(VarBinding(var, new))
        result = self.inside[last.var]
        body = SeqExpr((DataflowBlock(tuple(bindings)),), result)
        return Function(tuple(self.outside.values()), body, result.struct_info, True, FrozenDict({"Primitive": True}))


def _group_name(group: Group) -> str:
    return "_".join(["fused", *(tir_target(m.call).name for m in group.members)])[:120]


def _origin(group: Group) -> Span | None:
    """The names of the model's nodes that a group computes, where they are known."""
    names = [m.call.span.file for m in group.members if m.call.span is not None and not m.call.span.line]
    return Span(", ".join(dict.fromkeys(names)), 0) if names else None


def _fuse_function(function: Function, groups: list[Group], builder: BlockBuilder) -> Function:
    calls: dict[Var, Call] = {}
    inner: set[Var] = set()
    for group in groups:
        extraction = _Extraction(group)
        gvar: GlobalVar = builder.add_func(extraction.function(), _group_name(group))
        last = group.members[-1]
        info, origin = last.var.struct_info, _origin(group)
        calls[last.var] = Call(gvar, tuple(extraction.arguments), struct_info=info, span=origin)
        inner |= {m.var for m in group.members[:-1]}
    blocks: list[BindingBlock] = []
    for block in function.body.blocks:
        bindings: list[Binding] = []
        for b in block.bindings:
            if b.var in calls:
                bindings.append(VarBinding(b.var, calls[b.var]))
            elif b.var not in inner:
                bindings.append(b)
        blocks.append(dataclasses.replace(block, bindings=tuple(bindings)))
    fused = dataclasses.replace(function, body=SeqExpr(tuple(blocks), function.body.body))
    return canonicalize_function(
        fused, {v: DataflowVar("lv", v.struct_info) for v in calls if isinstance(v, DataflowVar)}
    )


def fuse_ops(module: IRModule, with_sums: bool = True) -> IRModule:
    """Move groups of kernel calls into private functions with the attribute `Primitive`; equal groups share one.

    with_sums  whether a convolution or product takes in the sum with another tensor of its result's shape
    """
    builder = BlockBuilder(module)
    fused: dict[GlobalVar, Function] = {}
    for gv, function in module.functions.items():
        if isinstance(function, Function) and not function.attrs.get("Primitive"):
            groups = find_groups(module, function, with_sums)
            if groups:
                fused[gv] = _fuse_function(function, groups, builder)
    if not fused:
        return module
    result = builder.get()
    for gv, function in fused.items():
        result.update_func(gv, function)
    return result


def FuseOps(fuse_opt_level: int = -1, with_sums: bool = True) -> Pass:  # noqa: N802
    """See `fuse_ops`; level 0 fuses nothing, any other everything."""
    return graph_pass("FuseOps")(lambda module: module if fuse_opt_level == 0 else fuse_ops(module, with_sums))
