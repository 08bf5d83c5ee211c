"""Quantised values stay bytes where operators between two quantisers would work on their floats.

max_pool2d(dequantise(q))                  ->  dequantise(max_pool2d(q))             which is monotone
quantise(concat(dequantise(p), x))         ->  concat(quantise(dequantise(p)), quantise(x))
quantise(dequantise(q))                    ->  q                                     of one scale and zero point
"""

from __future__ import annotations

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Function, Tuple, Var, const
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import map_functions, users
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.quantised import BYTES, QuantisedRewriter, Scale


class _Keeper(QuantisedRewriter):
    def __init__(self, function: Function):
        super().__init__()
        self.readers = users(function)

    def call(self, call: Call, var: Var) -> Expr:
        new = self.changed(call)
        if isinstance(new, Call):
            self.calls[var] = new
        return new

    def changed(self, call: Call) -> Expr:
        if call.op_name == "relax.nn.max_pool2d":
            return self.pool(call) or call
        info = call.struct_info
        if call.op_name == "relax.astype" and isinstance(info, TensorStructInfo) and info.dtype in BYTES:
            source = self.quantised(call)
            if source is not None:
                return self.as_bytes(call, *source) or call
        return call

    def pool(self, call: Call) -> Expr | None:
        found = self.dequantised(call.args[0])
        if found is None:
            return None
        q, by = found
        return self.floats(self.emit(remake(call, [q])), by)

    def as_bytes(self, call: Call, source: Var, by: Scale) -> Expr | None:
        """What a quantiser's result is, made of bytes alone; None where it has to work on floats."""
        known = self.dequantised(source)
        if known is not None and known[1] == by:
            return known[0]
        joined = self.call_of(source)
        if joined is None or joined.op_name != "relax.concat" or len(self.readers.get(source, ())) != 1:
            return None
        fields = joined.args[0].fields if isinstance(joined.args[0], Tuple) else ()
        if not fields or not all(isinstance(f, Var) for f in fields):
            return None
        parts = [self.part(f, by) for f in fields]
        return remake(joined, [Tuple(tuple(parts))])

    def part(self, x: Expr, by: Scale) -> Expr:
        """A part of what was quantised as a whole."""
        known = self.dequantised(x)
        if known is not None and known[1] == by:
            return known[0]
        limits = np.iinfo(by.dtype)
        value = self.emit(op.round(self.emit(op.divide(x, const(by.scale, "float32")))))
        if by.zero:
            value = self.emit(op.add(value, const(float(by.zero), "float32")))
        return self.emit(op.astype(self.emit(op.clip(value, float(limits.min), float(limits.max))), by.dtype))

    # --- what is there -----------------------------------------------------------------------------------------------

    def quantised(self, call: Call) -> tuple[Var, Scale] | None:
        """(floats, the scale by which they become bytes) of clip(round(x / scale) + zero)."""
        info, clip = call.struct_info, self.call_of(call.args[0])
        if clip is None or clip.op_name != "relax.clip" or not isinstance(info, TensorStructInfo):
            return None
        limits = np.iinfo(info.dtype)
        if (clip.attrs["min"], clip.attrs["max"]) != (limits.min, limits.max):
            return None
        rounded, zero = self.call_of(clip.args[0]), 0.0
        if rounded is not None and rounded.op_name == "relax.add":
            shift = self.number(rounded.args[1])
            if shift is None:
                return None
            rounded, zero = self.call_of(rounded.args[0]), shift
        if rounded is None or rounded.op_name != "relax.round":
            return None
        divided = self.call_of(rounded.args[0])
        if divided is None or divided.op_name != "relax.divide" or not isinstance(divided.args[0], Var):
            return None
        scale, kind = self.number(divided.args[1]), divided.args[0].struct_info
        if scale is None or not 0 < scale < np.inf or not isinstance(kind, TensorStructInfo) or kind.dtype != "float32":
            return None
        return divided.args[0], Scale(scale, int(zero), info.dtype)


def keep_bytes(module: IRModule) -> IRModule:
    """Let maxima, concatenations and pairs of quantisers work on bytes."""
    return map_functions(module, lambda function: _Keeper(function).rewrite(function))


def KeepBytes() -> Pass:  # noqa: N802
    """See `keep_bytes`."""
    return graph_pass("KeepBytes")(keep_bytes)


__all__ = ["KeepBytes", "keep_bytes"]
