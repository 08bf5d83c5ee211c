"""One form for what can be written in several."""

from __future__ import annotations

import dataclasses
from typing import Any

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo, graph_pass
from autosched.relax import op
from autosched.relax.expr import (
    Binding, Call, Constant, DataflowBlock, DataflowVar, Expr, Function, Tuple, TupleGetItem, Var, VarBinding,
)  # fmt: skip
from autosched.relax.rewrite import Rewriter, map_functions, rewrite_calls, users
from autosched.relax.struct_info import TensorStructInfo


class _Aliases(Rewriter):
    """`y = x` disappears, `(a, b)[0]` becomes a."""

    def __init__(self) -> None:
        super().__init__()
        self.tuples: dict[Var, Tuple] = {}

    def value(self, value: Expr, var: Var) -> Expr:
        if isinstance(value, Tuple):
            self.tuples[var] = value
        if isinstance(value, TupleGetItem):
            known = self.tuples.get(value.tuple_value)  # type: ignore[arg-type]
            if known is not None:
                return known.fields[value.index]
        return super().value(value, var)


def _absorb_output_aliases(function: Function) -> Function:
    """`lv = f(x); gv = lv` where gv leaves the block: bind f(x) to gv, and use gv where lv was used."""
    blocks, replaced = [], Rewriter()
    read = users(function)
    for block in function.body.blocks:
        defined = {b.var for b in block.bindings}
        renamed: dict[Var, Var] = {}
        for b in block.bindings:
            source = b.value
            if isinstance(block, DataflowBlock) and not isinstance(b.var, DataflowVar) and isinstance(source, DataflowVar):
                if source in defined and source not in renamed and b.var in read:
                    renamed[source] = b.var
        replaced.replaced.update(renamed)
        bindings: list[Binding] = []
        for b in block.bindings:
            if b.var in renamed.values() and renamed.get(b.value) is b.var:  # type: ignore[call-overload]
                continue
            value = replaced.substitute(b.value)
            var = renamed.get(b.var, b.var)
            changed = value is not b.value or var is not b.var
            bindings.append(dataclasses.replace(b, var=var, value=value) if changed else b)  # type: ignore[type-var]
        blocks.append(type(block)(tuple(bindings)))
    if not replaced.replaced:
        return function
    body = dataclasses.replace(function.body, blocks=tuple(blocks), body=replaced.substitute(function.body.body))
    return dataclasses.replace(function, body=body)


def _canonicalize_bindings(module: IRModule) -> IRModule:
    """No variable is only another name for a variable; items of tuples that are known are taken directly."""
    return map_functions(module, lambda function: _absorb_output_aliases(_Aliases().rewrite(function)))


canonicalize_bindings = Pass(_canonicalize_bindings, PassInfo(0, "CanonicalizeBindings"))


def CanonicalizeBindings() -> Pass:  # noqa: N802  (TVM's name)
    """Remove bindings that only rename."""
    return canonicalize_bindings


def _info(x: Any) -> TensorStructInfo:
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    return info


def _mean(call: Call, emit: Any) -> Expr:
    """The mean over the image of [N, C, H, W] is a pooling, which layouts understand."""
    info = _info(call.args[0])
    axes = call.attrs["axis"]
    if info.ndim != 4 or axes is None or not info.is_static:
        return call
    over = sorted(a % 4 for a in ((axes,) if isinstance(axes, int) else axes))
    if over != [2, 3]:
        return call
    pooled = op.nn.adaptive_avg_pool2d(call.args[0], output_size=1)
    return pooled if call.attrs["keepdims"] else op.reshape(emit(pooled), _info(call).shape)


def _view(call: Call, emit: Any) -> Expr:
    return op.reshape(call.args[0], _info(call).shape) if _info(call).is_static else call


def _constant_second(definition: Any) -> Any:
    """Of a commutative operator, the constant stands second."""

    def rule(call: Call, emit: Any) -> Expr:
        a, b = call.args
        return definition(b, a) if isinstance(a, Constant) and not isinstance(b, Constant) else call  # type: ignore[no-any-return]

    return rule


OPERATOR_RULES = {
    "mean": _mean, "expand_dims": _view, "squeeze": _view, "flatten": _view, "add": _constant_second(op.add),
    "multiply": _constant_second(op.multiply), "maximum": _constant_second(op.maximum), "minimum": _constant_second(op.minimum),
}  # fmt: skip


@graph_pass("canonicalize-operators")
def canonicalize_operators(module: IRModule) -> IRModule:
    """Means over images become poolings, views become reshapes, constants stand second in commutative operators."""
    return rewrite_calls(module, OPERATOR_RULES)
