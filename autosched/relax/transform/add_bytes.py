"""Sums read quantised values as bytes, a quarter of their floats, and those of bfloat16 as they are.

add(x, dequantise(q))            ->  add_dequantised(x, q)
add(x, astype(b, "float32"))     ->  add_widened(x, b)                               b: bfloat16
layout_transform(dequantise(q))  ->  dequantise(layout_transform(q))

Of two such values that is read whose convolution or product comes first: the sum joins the kernel of the other.
"""

from __future__ import annotations

import math

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.op.quantised import add_dequantised, add_widened
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import map_functions
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.layout_rules import is_broadcast, is_elementwise
from autosched.relax.transform.quantised import QuantisedRewriter, dtype_of

MOVES = ("relax.layout_transform", "relax.reshape", "relax.add_dequantised", "relax.add_widened")


class _Adder(QuantisedRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.kernel: dict[Var, int] = {}  # of an element-wise value the last call before it that is none

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name == "relax.layout_transform" and (moved := self.moved(call)) is not None:
            new = moved
        else:
            new = self.added(call) if call.op_name == "relax.add" else call
        definition = definition_of(call)
        joins = call.op_name in MOVES or (
            definition is not None and (is_elementwise(definition) or is_broadcast(definition))
        )
        before = (self.kernel.get(a, -1) for a in call.args if isinstance(a, Var))
        self.kernel[var] = max(before, default=-1) if joins else len(self.kernel)
        return new

    def moved(self, call: Call) -> Call | None:
        """The floats of bytes whose layout is changed, where no channels are added that would get values."""
        found = self.dequantised(call.args[0])
        shapes = shape_of(call.args[0]), shape_of(call)
        if found is None or math.prod(shapes[0]) != math.prod(shapes[1]):
            return None
        return self.floats(self.emit(remake(call, [found[0]])), found[1])

    def added(self, call: Call) -> Call:
        found = [(self.dequantised(a) or self.widened(a), n) for n, a in enumerate(call.args)]
        byte = [(self.kernel.get(d[0], -1), n, *d) for d, n in found if d is not None]
        if not byte:
            return call
        _, n, q, by = min(byte, key=lambda b: b[:2])
        x = call.args[1 - n]
        kinds = [v.struct_info for v in (x, q)]
        if any(not isinstance(k, TensorStructInfo) or not k.is_static for k in kinds) or not isinstance(x, Var):
            return call
        if kinds[0].static_shape != kinds[1].static_shape or kinds[0].dtype != "float32":
            return call
        new = add_widened(x, q) if by is None else add_dequantised(x, q, scale=by.scale, zero=by.zero)
        assert isinstance(new, Call), "an operator gives a call"
        return new

    def widened(self, x: object) -> tuple[Var, None] | None:
        """The values of bfloat16 that floats are made of."""
        call = self.call_of(x)
        if call is None or call.op_name != "relax.astype" or dtype_of(call.args[0]) != "bfloat16":
            return None
        return (call.args[0], None) if isinstance(call.args[0], Var) else None


def add_bytes(module: IRModule) -> IRModule:
    """Let sums read quantised values as bytes."""
    return map_functions(module, lambda function: _Adder().rewrite(function))


def AddBytes() -> Pass:  # noqa: N802
    """See `add_bytes`."""
    return graph_pass("AddBytes")(add_bytes)


__all__ = ["AddBytes", "add_bytes"]
