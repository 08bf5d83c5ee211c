"""Each group of kernels becomes one PrimFunc."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from autosched.errors import UsageError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import FrozenDict, Node, PerType
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from autosched.relax.op.call import call_tir, is_call_tir, tir_inputs, tir_target
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo, TupleStructInfo, tensor_infos
from autosched.relax.transform.dead_code import remove_unused_functions
from autosched.te.prim_func import UniqueNames
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Let, PrimExpr
from autosched.tir.expr import Var as TirVar
from autosched.tir.function import PrimFunc, bound_by_statements, make_root
from autosched.tir.functor import rewrite, substitute
from autosched.tir.stmt import Block, Stmt, seq

_KINDS = PerType(lambda kind: next((k for k in (TirVar, Buffer) if issubclass(kind, k)), None))

Buffers: TypeAlias = Any  # a Buffer, or a tuple of them for a tuple of tensors


def _flat(x: Buffers) -> list[Buffer]:
    return [b for f in x for b in _flat(f)] if isinstance(x, tuple) else [x]


class _Merger:
    """The PrimFunc of one group: the bodies in order, over shared buffers."""

    def __init__(self, module: IRModule, name: str, function: Function):
        self.module, self.name, self.function = module, name, function
        self.buffer_names, self.block_names = UniqueNames(), UniqueNames()
        self.buffers: dict[Var, Buffers] = {}
        self.local: list[Buffer] = []
        self.bodies: list[Stmt] = []

    def refuse(self, why: str) -> UsageError:
        """The error for a group that is no one kernel."""
        return UsageError(f"FuseTIR: function '{self.name}' {why}", hint="leave out its attribute Primitive")

    def new_buffer(self, name: str, shape: tuple[PrimExpr, ...], dtype: str) -> Buffer:
        return Buffer(self.buffer_names(_identifier(name)), shape, dtype)

    def buffer_for(self, name: str, info: object) -> Buffers:
        """Buffers of a parameter; of a tuple one for each of its tensors."""
        if isinstance(info, TupleStructInfo):
            return tuple(self.buffer_for(f"{name}_{i}", f) for i, f in enumerate(info.fields))
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise self.refuse(f"takes '{name}', whose shape is not known")
        return self.new_buffer(name, info.shape.values, info.dtype)

    def merge(self) -> PrimFunc:
        for p in self.function.params:
            self.buffers[p] = self.buffer_for(p.name, p.struct_info)
        for b in self.function.bindings():
            value = b.value
            if isinstance(value, Call) and is_call_tir(value):
                self.inline(b.var, value)
            elif isinstance(value, Var | Tuple | TupleGetItem):
                self.buffers[b.var] = self.of(value)
            else:
                raise self.refuse(f"binds '{b.var.name}' to more than kernels and tuples")
        inputs = [b for p in self.function.params for b in _flat(self.buffers[p])]
        outputs = _flat(self.of(self.function.body.body))
        if len(set(outputs)) < len(outputs) or set(outputs) & set(inputs):
            raise self.refuse("gives back a value twice, or one that it was given")
        params = {TirVar(f"p_{b.name}", "handle"): b for b in [*inputs, *outputs]}
        local = tuple(b for b in self.local if b not in outputs)
        body = make_root(seq(*self.bodies), local)
        return PrimFunc(tuple(params), params, body, attrs=FrozenDict({"tir.noalias": True}))

    def of(self, x: object) -> Buffers:
        """The buffers that hold a value."""
        match x:
            case Var() if x in self.buffers:
                return self.buffers[x]
            case Tuple():
                return tuple(map(self.of, x.fields))
            case TupleGetItem():
                return self.of(x.tuple_value)[x.index]
        raise self.refuse(f"has a {type(x).__name__} where only values of the group may stand")

    def inline(self, var: Var, call: Call) -> None:
        """Append the body of a kernel, its buffers replaced by the caller's and its variables by new ones."""
        func: PrimFunc = self.module[tir_target(call)]
        inputs = [b for a in tir_inputs(call) for b in _flat(self.of(a))]
        own_outs = func.buffers[len(inputs) :]
        infos = tensor_infos(call.struct_info)
        sizes = _unified(func.buffers, [b.shape for b in inputs] + [i.shape.values for i in infos])

        def copy(buffer: Buffer) -> Buffer:
            shape = tuple(substitute(n, sizes) for n in buffer.shape)
            made = self.new_buffer(f"{buffer.name}_intermediate", shape, buffer.dtype)
            self.local.append(made)
            return made

        outs = [copy(b) for b in own_outs]
        self.buffers[var] = tuple(outs) if isinstance(call.struct_info, TupleStructInfo) else outs[0]
        mapping: dict[Buffer, Buffer] = dict(zip(func.buffers, [*inputs, *outs], strict=True))
        for b in func.root.alloc_buffers:
            mapping[b] = copy(b)
        self.bodies.append(substitute(self.renewed(func.root.body, mapping), sizes))

    def renewed(self, body: Stmt, buffers: dict[Buffer, Buffer]) -> Stmt:
        variables = {v: TirVar(v.name, v.dtype) for v in bound_by_statements(body)}
        lets: dict[TirVar, TirVar] = {}  # bound inside of expressions

        def step(x: Node) -> object:
            kind = _KINDS[type(x)]
            if kind is TirVar:
                return variables.get(x, x)  # type: ignore[call-overload]
            if kind is Buffer:
                return buffers.get(x, x)  # type: ignore[call-overload]
            if isinstance(x, Block):
                name = self.block_names(x.name_hint)
                return x if name == x.name_hint else dataclasses.replace(x, name_hint=name)
            if isinstance(x, Let):
                lets[x.var] = TirVar(x.var.name, x.var.dtype)
            return x

        made = rewrite(body, step)
        return rewrite(made, lambda x: lets.get(x, x) if isinstance(x, TirVar) else x) if lets else made


def _unified(buffers: Sequence[Buffer], shapes: Sequence[Sequence[PrimExpr]]) -> dict[TirVar, PrimExpr]:
    """What the symbols in a kernel's shapes are where it is called."""
    sizes: dict[TirVar, PrimExpr] = {}
    for buffer, shape in zip(buffers, shapes, strict=True):
        for own, given in zip(buffer.shape, shape, strict=True):
            if isinstance(own, TirVar) and own is not given:
                sizes.setdefault(own, given)
    return sizes


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"v_{text}"


class _Caller(Rewriter):
    def __init__(self, merged: Mapping[GlobalVar, BaseFunc]):
        super().__init__()
        self.merged = merged

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(call.op, GlobalVar) or call.op not in self.merged:
            return call
        info = call.struct_info
        out = list(tensor_infos(info)) if isinstance(info, TupleStructInfo) else info
        made = call_tir(call.op, Tuple(tuple(x for a in call.args for x in self.tensors(a))), out)
        nested = isinstance(info, TupleStructInfo) and any(isinstance(f, TupleStructInfo) for f in info.fields)
        return _nested(info, iter(range(len(out))), self.emit(made)) if nested else made  # type: ignore[arg-type]

    def tensors(self, x: Expr) -> list[Expr]:
        """The tensors of an argument, of a tuple one by one."""
        if isinstance(x, Tuple):
            return [t for f in x.fields for t in self.tensors(f)]
        if isinstance(x.struct_info, TupleStructInfo):
            count = range(len(x.struct_info.fields))
            return [t for i in count for t in self.tensors(self.emit(TupleGetItem(x, i)))]
        return [x]


def _nested(info: object, places: Iterator[int], flat: Expr) -> Expr:
    """A tuple of tuples made of the items of a flat one, in order."""
    if isinstance(info, TupleStructInfo):
        return Tuple(tuple(_nested(f, places, flat) for f in info.fields))
    return TupleGetItem(flat, next(places))


def _is_group(function: object) -> bool:
    return isinstance(function, Function) and bool(function.attrs.get("Primitive"))


def fuse_tir(module: IRModule) -> IRModule:
    """Turn each `Primitive` function into a PrimFunc of the same name and its calls into `call_tir`.

    Tuples among the parameters and results become their tensors, one by one. What lies between two kernels of a group
    becomes a buffer of the root block, named …_intermediate. Functions that nobody calls afterwards are dropped.
    Raises UsageError for a group that is no one kernel.
    """
    groups = {gv: f for gv, f in module.functions.items() if _is_group(f)}
    merged = {gv: _Merger(module, gv.name, f).merge() for gv, f in groups.items()}
    functions: dict[GlobalVar, BaseFunc] = {}
    for gv, f in module.functions.items():
        if gv in merged:
            functions[gv] = merged[gv]
        else:
            functions[gv] = _Caller(merged).rewrite(f) if isinstance(f, Function) else f
    return remove_unused_functions(module.with_functions(functions))


def FuseTIR() -> Pass:  # noqa: N802
    """See `fuse_tir`."""
    return graph_pass("FuseTIR")(fuse_tir)
