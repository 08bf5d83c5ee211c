"""A result that is a tuple with a name becomes the tuple of its parts."""

from __future__ import annotations

import dataclasses

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import (
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)  # fmt: skip
from autosched.relax.rewrite import map_functions
from autosched.relax.struct_info import TupleStructInfo


class _Unpacker:
    """Finds the parts of a result, and gives those of a dataflow block names that are seen outside."""

    def __init__(self, function: Function):
        self.values: dict[Var, Expr] = {b.var: b.value for b in function.bindings()}
        self.names: dict[Expr, Var] = {}

    def parts(self, x: Expr) -> Expr:
        while isinstance(x, Var) and isinstance(self.values.get(x), Var):
            x = self.values[x]
        if isinstance(x, Var) and isinstance(self.values.get(x), Tuple):
            x = self.values[x]
        if isinstance(x, Tuple):
            return Tuple(tuple(map(self.parts, x.fields)))
        if isinstance(x.struct_info, TupleStructInfo):
            return Tuple(tuple(self.parts(TupleGetItem(x, i)) for i in range(len(x.struct_info.fields))))
        return x if isinstance(x, Constant) else self.outside(x)

    def outside(self, x: Expr) -> Expr:
        if isinstance(x, Var) and not isinstance(x, DataflowVar):
            return x
        return self.names.setdefault(x, Var(f"result_{len(self.names)}", x.struct_info))


def _unpacked(function: Function) -> Function:
    body = function.body
    if isinstance(body.body, Tuple) or not isinstance(body.body.struct_info, TupleStructInfo):
        return function
    unpacker = _Unpacker(function)
    result = unpacker.parts(body.body)
    named = tuple(VarBinding(var, value) for value, var in unpacker.names.items())
    *before, last = body.blocks or (BindingBlock(()),)
    if named and not isinstance(last, DataflowBlock):
        return function  # only a dataflow block ends in names for its values
    last = dataclasses.replace(last, bindings=(*last.bindings, *named))
    return dataclasses.replace(function, body=SeqExpr((*before, last), result))


def unpack_result(module: IRModule) -> IRModule:
    """Return `(a, b)` for `t = (a, b); return t`, whatever the depth."""
    return map_functions(module, _unpacked)


def UnpackResult() -> Pass:  # noqa: N802
    """See `unpack_result`."""
    return graph_pass("UnpackResult")(unpack_result)
