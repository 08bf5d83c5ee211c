"""Compute equal things once."""

from __future__ import annotations

from typing import Any

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.transform import Pass, PassInfo
from autosched.relax.expr import Call, Constant, Expr, Op, ShapeExpr, Tuple, TupleGetItem, Var
from autosched.relax.op.call import CALL_TIR
from autosched.relax.op.registry import definition_of
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.tir.simplify import form_key


def _key(x: Any) -> Any:
    """A hashable key, equal for expressions that certainly compute the same."""
    match x:
        case Constant():
            return ("constant", id(x.data))
        case Var() | GlobalVar() | Op():
            return id(x)
        case ShapeExpr():
            return ("shape", *map(form_key, x.values))
        case Tuple():
            return ("tuple", *map(_key, x.fields))
        case TupleGetItem():
            return ("item", x.index, _key(x.tuple_value))
        case Call():
            return (_key(x.op), *map(_key, x.args), tuple(sorted((k, repr(v)) for k, v in x.attrs.items())))
    return ("id", id(x))


class _Sharer(Rewriter):
    def __init__(self, call_only: bool) -> None:
        super().__init__()
        self.known: dict[Any, Var] = {}
        self.call_only = call_only

    def value(self, value: Expr, var: Var) -> Expr:
        pure = isinstance(value, Call) and (value.op is CALL_TIR or definition_of(value) is not None)
        if not pure and not (isinstance(value, TupleGetItem) and not self.call_only):
            return value
        return self.known.setdefault(_key(value), var) if self.known.get(_key(value), var) is not var else self._new(value, var)

    def _new(self, value: Expr, var: Var) -> Expr:
        self.known[_key(value)] = var
        return value


def EliminateCommonSubexpr(call_only: bool = False) -> Pass:  # noqa: N802  (TVM's name)
    """A call that repeats an earlier one becomes that one's variable. Constants count as equal if they are one array."""

    def run(module: IRModule) -> IRModule:
        return map_functions(module, lambda function: _Sharer(call_only).rewrite(function))

    return Pass(run, PassInfo(0, "EliminateCommonSubexpr"))


eliminate_common_subexpr = EliminateCommonSubexpr()
