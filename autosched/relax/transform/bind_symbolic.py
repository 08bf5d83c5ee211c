"""Symbolic dimensions get their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autosched.errors import InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.node import preorder
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Binding, Call, Expr, Function, MatchCast, PrimValue, SeqExpr, Tuple, Var
from autosched.relax.op.registry import definition_of
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import (
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from autosched.relax.transform.specialize_kernels import specialize_kernels
from autosched.tir.expr import PrimExpr, const
from autosched.tir.expr import Var as TirVar
from autosched.tir.functor import substitute
from autosched.tir.simplify import Analyzer

Values = Mapping[TirVar, int]

Numbers = Mapping[TirVar, PrimExpr]


def symbolic_dims(function: Function) -> list[TirVar]:
    """The symbols in the shapes of a function's parameters, in order of first use."""
    found: dict[TirVar, None] = {}
    for p in function.params:
        for node in preorder(p.struct_info) if p.struct_info is not None else ():
            if isinstance(node, TirVar):
                found[node] = None
    return list(found)


def _dim(x: PrimExpr, values: Numbers) -> PrimExpr:
    new = substitute(x, values)
    return x if new is x else Analyzer().simplify(new)


def bind_info(info: object, values: Numbers) -> Any:
    """An annotation (or None) with the symbols replaced."""
    match info:
        case TensorStructInfo() if info.shape is not None:
            return TensorStructInfo(ShapeExpr(tuple(_dim(d, values) for d in info.shape)), info.dtype)
        case TupleStructInfo():
            return TupleStructInfo(tuple(bind_info(f, values) for f in info.fields))
        case ShapeStructInfo() if info.values is not None:
            return ShapeStructInfo(tuple(_dim(d, values) for d in info.values))
        case PrimStructInfo() if info.value is not None:
            return PrimStructInfo(info.dtype, _dim(info.value, values))
    return info


class _Binder(Rewriter):
    def __init__(self, values: Numbers):
        super().__init__()
        self.values = values

    def argument(self, x: object) -> Any:
        if isinstance(x, ShapeExpr):
            return ShapeExpr(tuple(_dim(d, self.values) for d in x))
        if isinstance(x, PrimValue):
            return PrimValue(_dim(x.value, self.values))
        return Tuple(tuple(map(self.argument, x.fields))) if isinstance(x, Tuple) else x

    def call(self, call: Call, var: Var) -> Expr:
        args = tuple(map(self.argument, call.args))
        definition = definition_of(call)
        if definition is not None:
            return definition.make(args, call.attrs)
        sinfo = tuple(bind_info(s, self.values) for s in call.sinfo_args)
        info = bind_info(call.struct_info, self.values)
        return dataclasses.replace(call, args=args, sinfo_args=sinfo, struct_info=info)

    def value(self, value: Expr, var: Var) -> Expr:
        return self.argument(value) if isinstance(value, ShapeExpr | PrimValue | Tuple) else super().value(value, var)

    def _binding(self, b: Binding) -> None:
        if isinstance(b, MatchCast):
            info = bind_info(b.struct_info, self.values)
            new = dataclasses.replace(b.var, struct_info=info)
            self.replaced[b.var], self._changed = new, True
            b = MatchCast(new, b.value, info)
        super()._binding(b)


def bind_function(function: Function, values: Values) -> Function:
    """The function for given values of its symbols."""
    numbers = {v: const(int(n), v.dtype) for v, n in values.items()}
    binder = _Binder(numbers)
    params = []
    for p in function.params:
        params.append(dataclasses.replace(p, struct_info=bind_info(p.struct_info, numbers)))
        binder.replaced[p] = params[-1]
    body: SeqExpr = binder.rewrite(function).body
    return dataclasses.replace(
        function, params=tuple(params), body=body, ret_struct_info=body.body.struct_info or function.ret_struct_info
    )


def bind_sizes(function: Function, binding_map: Mapping[str, int] | Mapping[TirVar, int]) -> Function:
    """The function for values of symbols that are given by name or variable. Raises ValueError for unknown ones."""
    names = {k if isinstance(k, str) else k.name: n for k, n in binding_map.items()}
    values = {v: names[v.name] for v in symbolic_dims(function) if v.name in names}
    if unknown := sorted(set(names) - {v.name for v in values}):
        raise InvalidValueError(f"no symbolic dimension '{unknown[0]}'")
    return bind_function(function, values) if values else function


def BindSymbolicVars(binding_map: Mapping[str, int] | Mapping[TirVar, int], func_name: str | None = None) -> Pass:  # noqa: N802
    """Bind symbolic dimensions, by name or variable, of one function or of all.

    Raises ValueError for a name that no function has.
    """

    def bind(module: IRModule) -> IRModule:
        names = {k if isinstance(k, str) else k.name: n for k, n in binding_map.items()}
        functions, seen = dict(module.functions), set()
        for gv, f in functions.items():
            if isinstance(f, Function) and func_name in (None, gv.name):
                values = {v: names[v.name] for v in symbolic_dims(f) if v.name in names}
                seen |= {v.name for v in values}
                functions[gv] = bind_function(f, values) if values else f
        if unknown := sorted(set(names) - seen):
            raise InvalidValueError(f"no symbolic dimension '{unknown[0]}'")
        return specialize_kernels(module.with_functions(functions))

    return graph_pass("BindSymbolicVars")(bind)
