"""Quantised values stay bytes where operators between two quantisers would work on their floats.

max_pool2d(dequantise(q))                  ->  dequantise(max_pool2d(q))             which is monotone
reshape(dequantise(q))                     ->  dequantise(reshape(q))                permutations alike
quantise(concat(dequantise(p), x))         ->  concat(quantise(dequantise(p)), quantise(x))
quantise(f(dequantise(q)))                 ->  q                 where that is what each of 256 bytes becomes: the pair
                                               of one scale, a division by a number that the second scale is divided by
"""

from __future__ import annotations

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Function, Tuple, Var, const
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import map_functions, users
from autosched.relax.struct_info import TensorStructInfo, same_dims
from autosched.relax.transform.blocked import dims_of
from autosched.relax.transform.layout_rules import is_broadcast, is_elementwise
from autosched.relax.transform.quantised import BYTES, Array, QuantisedRewriter, Scale, dtype_of, is_one

# Operators that give a byte for each byte: the maximum is monotone, views only move them.
MOVES = tuple(f"relax.{n}" for n in ("nn.max_pool2d", "reshape", "permute_dims", "expand_dims", "squeeze", "flatten"))
ALL_BYTES = {dtype: np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype) for dtype in BYTES}


class _Keeper(QuantisedRewriter):
    def __init__(self, function: Function):
        super().__init__()
        self.readers = users(function)
        self.functions: dict[Var, tuple[Var, Array]] = {}  # (q, for each byte of it this value's element)

    def call(self, call: Call, var: Var) -> Expr:
        self.learn(call, var)
        new = self.unchanged(var) or self.changed(call)
        if isinstance(new, Call):
            self.calls[var] = new
            self.learn(new, var)
        return new

    def emit(self, value: Expr, name: str = "lv") -> Expr:
        var = super().emit(value, name)
        if isinstance(var, Var) and (call := self.call_of(var)) is not None:
            self.learn(call, var)
        return var

    # --- functions of bytes ------------------------------------------------------------------------------------------

    def learn(self, call: Call, var: Var) -> None:
        """Note what a value's elements are, where each is a function of one byte alone."""
        definition = definition_of(call)
        if definition is None or definition.reference is None or var in self.functions:
            return
        if not (is_elementwise(definition) or is_broadcast(definition)):
            return
        root: Var | None = None
        args: list[Array] = []
        for a in call.args:
            of_bytes = self.of_bytes(a)
            number = self.array(a) if of_bytes is None and is_one(a) else None
            if of_bytes is not None and root in (None, of_bytes[0]):
                root = of_bytes[0]
                args.append(of_bytes[1])
            elif number is not None:
                args.append(number.reshape(()))
            else:
                return
        if root is None or not same_dims(dims_of(root), dims_of(var)):
            return
        with np.errstate(all="ignore"):
            values = definition.run_reference(args, call.attrs)
        self.functions[var] = root, np.asarray(values, dtype_of(var))

    def of_bytes(self, x: object) -> tuple[Var, Array] | None:
        if not isinstance(x, Var):
            return None
        if x in self.functions:
            return self.functions[x]
        return (x, ALL_BYTES[dtype_of(x)]) if dtype_of(x) in BYTES else None

    def unchanged(self, var: Var) -> Var | None:
        """The bytes that a value's are, each of them."""
        if dtype_of(var) not in BYTES or var not in self.functions:
            return None
        root, values = self.functions[var]
        return root if dtype_of(root) == dtype_of(var) and np.array_equal(values, ALL_BYTES[dtype_of(var)]) else None

    # --- what works on bytes -----------------------------------------------------------------------------------------

    def changed(self, call: Call) -> Expr:
        if call.op_name in MOVES:
            return self.moved(call) or call
        info = call.struct_info
        if call.op_name == "relax.astype" and isinstance(info, TensorStructInfo) and info.dtype in BYTES:
            source = self.quantiser(call)
            if source is not None:
                return self.as_bytes(call, *source) or call
        return call

    def moved(self, call: Call) -> Expr | None:
        found = self.dequantised(call.args[0])
        if found is None:
            return None
        q, by = found
        return self.floats(self.emit(remake(call, [q, *call.args[1:]])), by)

    def as_bytes(self, call: Call, source: Var, by: Scale) -> Expr | None:
        """What a quantiser's result is, made of parts; None where it has to work on the whole."""
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


def keep_bytes(module: IRModule) -> IRModule:
    """Let maxima, views, concatenations and pairs of quantisers work on bytes."""
    return map_functions(module, lambda function: _Keeper(function).rewrite(function))


def KeepBytes() -> Pass:  # noqa: N802
    """See `keep_bytes`."""
    return graph_pass("KeepBytes")(keep_bytes)


__all__ = ["KeepBytes", "keep_bytes"]
