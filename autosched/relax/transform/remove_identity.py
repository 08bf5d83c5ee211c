"""Drop operators that change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import graph_pass
from autosched.relax.expr import Call, Constant, Expr, Tuple
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo, same_info


def _first_if_same(call: Call) -> Expr:
    """The argument, where the result has its type (a reshape to the same shape, a cast to the same dtype)."""
    first: Expr = call.args[0]
    return first if same_info(first.struct_info, call.struct_info) else call


def _permute(call: Call) -> Expr:
    first: Expr = call.args[0]
    axes = call.attrs["axes"]
    info = first.struct_info
    assert isinstance(info, TensorStructInfo)
    order = [a % info.ndim for a in axes] if axes is not None else list(range(info.ndim))[::-1]
    return first if order == list(range(info.ndim)) else call


def _concat(call: Call) -> Expr:
    parts = call.args[0]
    return parts.fields[0] if isinstance(parts, Tuple) and len(parts) == 1 else call


def _neutral(value: float, either_side: bool) -> Any:
    """A rule for a binary operator that a constant `value` leaves as it is."""

    def rule(call: Call) -> Expr:
        for at, other in ((1, 0), (0, 1)) if either_side else ((1, 0),):
            c, x = call.args[at], call.args[other]
            if isinstance(c, Constant) and same_info(x.struct_info, call.struct_info) and np.all(c.data == value):
                return x  # type: ignore[no-any-return]
        return call

    return rule


RULES = {
    "identity": lambda call: call.args[0], "reshape": _first_if_same, "flatten": _first_if_same, "squeeze": _first_if_same,
    "astype": _first_if_same, "broadcast_to": _first_if_same, "permute_dims": _permute, "concat": _concat,
    "layout_transform": lambda call: call.args[0] if call.attrs["src_layout"] == call.attrs["dst_layout"] else call,
    "add": _neutral(0, True), "multiply": _neutral(1, True), "subtract": _neutral(0, False), "divide": _neutral(1, False),
}  # fmt: skip


class _Remover(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Any, Call] = {}

    def call(self, call: Call, var: Any) -> Expr:
        rule = RULES.get(call.op_name.removeprefix("relax."))
        result = rule(call) if rule else call
        if isinstance(result, Call) and result.op_name == "relax.reshape":
            result = self.reshape_of_reshape(result)
        if isinstance(result, Call):
            self.made[var] = result
        return result

    def reshape_of_reshape(self, call: Call) -> Expr:
        inner = self.made.get(call.args[0])
        if inner is None or inner.op_name != "relax.reshape":
            return call
        return _first_if_same(remake(call, (inner.args[0], *call.args[1:])))


@graph_pass("remove-identity")
def remove_identity(module: IRModule) -> IRModule:
    """Replace `identity(x)`, a reshape to the same shape, `x + 0` and the like by x; join reshapes of reshapes."""
    return map_functions(module, lambda function: _Remover().rewrite(function))
