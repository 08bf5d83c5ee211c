"""What is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import (
    Binding,
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    If,
    Op,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)  # fmt: skip
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.tir.simplify import form_key

SMALL_BYTES = 256  # constants up to this size are compared by content


def expression_key(x: object) -> object:
    """A hashable form, equal for expressions of equal values; large constants are compared by identity."""
    match x:
        case Var() | GlobalVar() | Op():
            return ("id", id(x))
        case Constant():
            return _constant_key(x.data)
        case ShapeExpr():
            return ("shape", *map(form_key, x.values))
        case PrimValue():
            return ("value", form_key(x.value))
        case StringImm():
            return ("text", x.value)
        case Tuple():
            return ("tuple", *map(expression_key, x.fields))
        case TupleGetItem():
            return ("item", x.index, expression_key(x.tuple_value))
        case Call():
            attrs = tuple(sorted((k, repr(v)) for k, v in x.attrs.items()))
            return ("call", expression_key(x.op), *map(expression_key, x.args), attrs)
    return ("id", id(x))


class _Unifier(Rewriter):
    def __init__(self, call_only: bool, skip: Callable[[Call], bool] | None, keep_names: bool):
        super().__init__()
        self.keep_names = keep_names
        self.call_only = call_only
        self.skip = skip or (lambda call: False)
        self.known: dict[object, Var] = {}
        # the bindings of the block whose variables are known: others' may be out of scope
        self.block: list[Binding] | None = None

    def value(self, value: Expr, var: Var) -> Expr:
        if not isinstance(value, Call) and (self.call_only or not isinstance(value, TupleGetItem)):
            return value
        if isinstance(value, Call) and not isinstance(value.op, Op):
            return value
        if isinstance(value, Call) and (value.op_name == "relax.call_packed" or self.skip(value)):
            return value
        if self.block is not self._bindings:
            self.block, self.known = self._bindings, {}
        key = expression_key(value)
        if key in self.known:
            if self.keep_names and not (self._dataflow and not isinstance(var, DataflowVar)):
                self._bindings.append(VarBinding(var, self.known[key]))
            return self.known[key]
        self.known[key] = var
        return value


def _constant_key(array: np.ndarray) -> object:
    if array.nbytes <= SMALL_BYTES:
        return ("const", str(array.dtype), array.shape, array.tobytes())
    return ("const", id(array))


def eliminate_common_subexpr(
    module: IRModule, call_only: bool = False, skip: Callable[[Call], bool] | None = None, keep_names: bool = False
) -> IRModule:
    """Bind equal calls once, but not those that `skip` holds for.

    keep_names  the variables that are not read any more stay, as other names
    Functions with branches, whose scopes differ, are left as they are.
    """

    def unify(function: Function) -> Function:
        if any(isinstance(b.value, If) for b in function.bindings()):
            return function
        return _Unifier(call_only, skip, keep_names).rewrite(function)

    return map_functions(module, unify)


def EliminateCommonSubexpr(  # noqa: N802
    call_only: bool = False, skip: Callable[[Call], bool] | None = None, keep_names: bool = True
) -> Pass:
    """See `eliminate_common_subexpr`."""
    return graph_pass("EliminateCommonSubexpr")(
        lambda module: eliminate_common_subexpr(module, call_only, skip, keep_names)
    )
