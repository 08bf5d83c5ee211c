"""Products of bytes become products of 16-bit integers, with the same sums.

x86-64 CPUs without dot products of bytes add the products of pairs of such integers in one instruction, while bytes
take as many instructions again to be widened, once for each tile that reads them.

What Winograd's algorithm computes of bytes, 3x3 convolutions of stride 1, is left: its transforms widen them.

Before:  matmul(x: uint8, w: int8, out_dtype="int32")
After:   matmul(astype(x, "int16"), w: int16, out_dtype="int32")
"""

from __future__ import annotations

import math

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Var
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.layout_rules import is_convolution
from autosched.relax.transform.quantised import dtype_of

WIDE = "int16"
FEW = 16  # channels: with fewer the transforms cost more than they save
LEAST_ROWS = 5  # of a product: with fewer the weights' way from memory is what takes time, and bytes are half as many


class _Widener(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.wide: dict[Expr, Expr] = {}

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name != "relax.matmul" and not is_convolution(call):
            return call
        x, weight = call.args[:2]
        if not isinstance(weight, Constant) or [dtype_of(a) for a in call.args] != ["uint8", "int8"]:
            return call
        if dtype_of(call) != "int32" or (call.op_name == "relax.matmul" and 0 < _rows(call) < LEAST_ROWS):
            return call
        if call.op_name != "relax.matmul" and _is_winograd(call):
            return call
        if x not in self.wide:
            self.wide[x] = self.emit(op.astype(x, WIDE))
        return remake(call, [self.wide[x], Constant(weight.data.astype(WIDE))])


def _is_winograd(call: Call) -> bool:
    """Whether Winograd's algorithm saves products of a convolution; padding with a zero point is none of its."""
    channels, *window = shape_of(call.args[1])[1:]
    plain = all(call.attrs[name] == (1, 1) for name in ("strides", "dilation"))
    return window == [3, 3] and plain and call.attrs["groups"] == 1 and channels >= FEW and not call.attrs["pad_value"]


def _rows(call: Call) -> int:
    """How many rows a product has; 0 where that is known when the model runs."""
    info = call.struct_info
    assert isinstance(info, TensorStructInfo), "a product is a tensor"
    return math.prod(info.static_shape[:-1]) if info.is_static else 0


def widen_bytes(module: IRModule) -> IRModule:
    """Multiply bytes with constant weights as 16-bit integers."""
    return map_functions(module, lambda function: _Widener().rewrite(function))


def WidenBytes() -> Pass:  # noqa: N802
    """See `widen_bytes`."""
    return graph_pass("WidenBytes")(widen_bytes)
