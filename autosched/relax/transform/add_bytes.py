"""Sums read quantised values as bytes: a quarter of their floats, which nobody has to write down.

add(x, dequantise(q))  ->  add_dequantised(x, q)          of two dequantised values that which was made first
"""

from __future__ import annotations

from typing import Any

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.op.quantised import add_dequantised
from autosched.relax.rewrite import map_functions
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.quantised import QuantisedRewriter


class _Adder(QuantisedRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Var, int] = {}  # when a variable was bound

    def call(self, call: Call, var: Var) -> Expr:
        new = self.added(call) if call.op_name == "relax.add" else call
        self.calls[var], self.made[var] = new, len(self.made)
        return new

    def added(self, call: Call) -> Call:
        found = [(self.dequantised(a), n) for n, a in enumerate(call.args)]
        byte = [(self.made.get(d[0], -1), n, *d) for d, n in found if d is not None]
        if not byte:
            return call
        _, n, q, by = min(byte, key=lambda b: b[:2])
        x = call.args[1 - n]
        kinds = [v.struct_info for v in (x, q)]
        if any(not isinstance(k, TensorStructInfo) or not k.is_static for k in kinds) or not isinstance(x, Var):
            return call
        if kinds[0].static_shape != kinds[1].static_shape or kinds[0].dtype != "float32":  # type: ignore[union-attr]
            return call
        new: Any = add_dequantised(x, q, scale=by.scale, zero=by.zero)
        assert isinstance(new, Call), "an operator gives a call"
        return new


def add_bytes(module: IRModule) -> IRModule:
    """Let sums read quantised values as bytes."""
    return map_functions(module, lambda function: _Adder().rewrite(function))


def AddBytes() -> Pass:  # noqa: N802
    """See `add_bytes`."""
    return graph_pass("AddBytes")(add_bytes)


__all__ = ["AddBytes", "add_bytes"]
