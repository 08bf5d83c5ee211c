"""Bindings that only rename go."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)  # fmt: skip
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import same_info


class _Canonicalizer(Rewriter):
    """Replaces `y = x` by x everywhere, and items of known tuples by the items."""

    def __init__(self, promoted: dict[Var, Var], keep_tuples: bool):
        super().__init__()
        self.promoted, self.keep_tuples = promoted, keep_tuples
        self.tuples: dict[Var, Tuple] = {}  # what variables are bound to
        self.replaced = dict(promoted)

    def _binding(self, b: Binding) -> None:
        promoted = self.promoted.get(b.var)
        if promoted is not None:
            self._changed = True
            b = dataclasses.replace(b, var=promoted)  # type: ignore[type-var]
        value = self.substitute(b.value)
        if isinstance(b, VarBinding) and self.is_name(value) and same_info(value.struct_info, b.var.struct_info):
            outside = self._dataflow and not isinstance(b.var, DataflowVar) and isinstance(value, DataflowVar)
            if value is b.var:
                self._changed = True
                return
            if not outside:
                self._changed = True
                self.replaced[b.var] = value
                return
        if self.keep_tuples and isinstance(b, VarBinding) and isinstance(value, Tuple):
            self._changed = self._changed or value is not b.value
            self.tuples[b.var] = value
            self._bindings.append(dataclasses.replace(b, value=value))
            return
        item = value.tuple_value if isinstance(value, TupleGetItem) else None
        if isinstance(item, Var) and item in self.tuples and isinstance(b, VarBinding):
            field = self.tuples[item].fields[value.index]
            return self._binding(dataclasses.replace(b, value=field))
        super()._binding(b)

    @staticmethod
    def is_name(value: object) -> bool:
        return isinstance(value, Var | Constant)

    def value(self, value: Expr, var: Var) -> Expr:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            return value.tuple_value.fields[value.index]
        return super().value(value, var)


def _promotions(block: BindingBlock) -> dict[Var, Var]:
    """Dataflow variables that get an output's name: for `lv = …; gv = lv` the pair (lv, gv)."""
    own = {b.var: b.value for b in block.bindings}
    result: dict[Var, Var] = {}
    for b in block.bindings:
        source = b.value
        while isinstance(source, DataflowVar) and isinstance(own.get(source), DataflowVar):
            source = own[source]
        if (
            isinstance(b.var, DataflowVar)
            or not isinstance(source, DataflowVar)
            or source not in own
            or source in result
        ):
            continue
        if same_info(source.struct_info, b.var.struct_info):
            result[source] = b.var
    return result


def canonicalize_function(
    function: Function, renamed: Mapping[Var, Var] | None = None, keep_tuples: bool = False
) -> Function:
    """The function without bindings that only give another name; outputs are bound to what computes them.

    renamed      variables that get another name, where an output's name does not come first
    keep_tuples  tuples stay bound, as in TVM, though their items are known
    """
    promoted: dict[Var, Var] = dict(renamed or {})
    for block in function.body.blocks:
        if isinstance(block, DataflowBlock):
            promoted |= _promotions(block)
    return _Canonicalizer(promoted, keep_tuples).rewrite(function)


def canonicalize_bindings(module: IRModule, keep_tuples: bool = False) -> IRModule:
    """Remove renaming bindings and items of tuples that are known."""
    return map_functions(module, lambda function: canonicalize_function(function, keep_tuples=keep_tuples))


def CanonicalizeBindings(keep_tuples: bool = True) -> Pass:  # noqa: N802
    """See `canonicalize_bindings` and `canonicalize_function`."""
    return graph_pass("CanonicalizeBindings")(lambda module: canonicalize_bindings(module, keep_tuples))
