"""Calls that run as one kernel become one function."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

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
from autosched.relax.struct_info import TensorStructInfo, TupleStructInfo
from autosched.relax.transform.canonicalize_bindings import canonicalize_function
from autosched.relax.transform.fusion_groups import Group, Joins, find_groups


class _Extraction:
    """The function of one group: parameters for what comes from outside, in order of first use.

    arguments  what comes from outside; constants are told apart by their array
    calls      for each call the numbers of what it reads and of its result: values as they occur
    """

    def __init__(self, group: Group):
        self.group = group
        self.arguments: list[Expr] = []
        self.calls: list[tuple[tuple[int, ...], int]] = []
        numbers: dict[object, int] = {}
        for m in group.members:
            reads = []
            for x in tir_inputs(m.call):
                key = x.identity if isinstance(x, Constant) else x
                if key not in numbers:
                    numbers[key] = len(numbers)
                    self.arguments.append(x)
                reads.append(numbers[key])
            numbers[m.var] = len(numbers)
            self.calls.append((tuple(reads), numbers[m.var]))

    def form(self) -> Hashable | None:
        """Equal only for groups whose functions are equal; None where that is not seen at once."""
        infos = [x.struct_info for x in (*self.arguments, *(m.call for m in self.group.members))]
        types = [(i.dtype, i.static_shape) for i in infos if isinstance(i, TensorStructInfo) and i.is_static]
        if len(types) < len(infos):
            return None
        return tuple(tir_target(m.call) for m in self.group.members), tuple(self.calls), tuple(types)

    def function(self) -> Function:
        names, bindings = UniqueNames(), []
        variables: dict[int, Var] = {}
        params: list[Var] = []
        last = self.group.members[-1]
        for m, (reads, result) in zip(self.group.members, self.calls, strict=True):
            for number in reads:
                if number not in variables:
                    x = self.arguments[len(params)]
                    name = f"param_{len(params)}" if isinstance(x, Constant) else "x"
                    if isinstance(x, Var) and not isinstance(x, DataflowVar):
                        name = x.name
                    variables[number] = Var(names(name), x.struct_info)
                    params.append(variables[number])
            info = m.call.struct_info
            out = list(info.fields) if isinstance(info, TupleStructInfo) else info
            new = call_tir(tir_target(m.call), Tuple(tuple(variables[number] for number in reads)), out)
            kind = Var if m is last else DataflowVar
            variables[result] = kind(names("gv" if m is last else "lv"), m.var.struct_info)
            bindings.append(VarBinding(variables[result], new))
        body = SeqExpr((DataflowBlock(tuple(bindings)),), variables[self.calls[-1][1]])
        return Function(tuple(params), body, body.body.struct_info, True, FrozenDict({"Primitive": True}))


def _group_name(group: Group) -> str:
    return "_".join(["fused", *(tir_target(m.call).name for m in group.members)])[:120]


def _origin(group: Group) -> Span | None:
    """The names of the model's nodes that a group computes, where they are known."""
    names = [m.call.span.file for m in group.members if m.call.span is not None and not m.call.span.line]
    return Span(", ".join(dict.fromkeys(names)), 0) if names else None


def _fuse_function(function: Function, groups: list[Group], builder: BlockBuilder) -> Function:
    calls: dict[Var, Call] = {}
    inner: set[Var] = set()
    made: dict[Hashable, GlobalVar] = {}
    for group in groups:
        extraction = _Extraction(group)
        form = extraction.form()
        gvar = made.get(form)
        if gvar is None:
            gvar = builder.add_func(extraction.function(), _group_name(group))
        if form is not None:
            made[form] = gvar
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


def fuse_ops(module: IRModule, with_sums: bool = True, joins: Joins | None = None) -> IRModule:
    """Move groups of kernel calls into private functions with the attribute `Primitive`; equal groups share one.

    with_sums  whether a convolution or product takes in the sum with another tensor of its result's shape
    joins      which two convolutions or products become one kernel with all behind both; None: none
    """
    builder = BlockBuilder(module)
    fused: dict[GlobalVar, Function] = {}
    for gv, function in module.functions.items():
        if isinstance(function, Function) and not function.attrs.get("Primitive"):
            groups = find_groups(module, function, with_sums, joins)
            if groups:
                fused[gv] = _fuse_function(function, groups, builder)
    if not fused:
        return module
    result = builder.get()
    for gv, function in fused.items():
        result.update_func(gv, function)
    return result


def FuseOps(fuse_opt_level: int = -1, with_sums: bool = True, joins: Joins | None = None) -> Pass:  # noqa: N802
    """See `fuse_ops`; level 0 fuses nothing, any other everything."""
    return graph_pass("FuseOps")(lambda module: module if fuse_opt_level == 0 else fuse_ops(module, with_sums, joins))
