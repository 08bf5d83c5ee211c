"""Products with constant weights on bfloat16: both factors are rounded to it, sums stay float32.

Everything else is computed in float32: norms, softmax, sums, activations, convolutions, attention, products of two
computed values. So each value is rounded once on its way into a product and nowhere else, and half as many bytes of
weights are read.

Before:  y: float32 = matmul(x, w)
After:   y: float32 = matmul(astype(x, "bfloat16"), w_bfloat16, out_dtype="float32")
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, bindings_of, map_functions
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.runtime.bfloat16 import know_dtype

NARROW, WIDE = "bfloat16", "float32"
PRECISION = "autosched.precision"  # attribute of a module: what its products' factors are rounded to


class _Narrower(Rewriter):
    def __init__(self, constants: dict[Var, Constant]):
        super().__init__()
        self.constants = constants
        self.weights: dict[int, Constant] = {}
        self.rows: dict[Expr, Expr] = {}

    def call(self, call: Call, var: Var) -> Expr:
        definition = definition_of(call)
        if definition is None or definition.name != "matmul" or not _is_wide(call) or not _is_wide(call.args[0]):
            return call
        x, given = call.args
        weight = self.constants.get(given) if isinstance(given, Var) else given
        if not isinstance(weight, Constant) or weight.data.ndim != 2 or weight.data.dtype != WIDE:
            return call
        return remake(call, [self.narrow(x), self.narrow_weight(weight)], {"out_dtype": WIDE})

    def narrow(self, x: Expr) -> Expr:
        if x not in self.rows:
            self.rows[x] = self.emit(op.astype(x, NARROW))
        return self.rows[x]

    def narrow_weight(self, weight: Constant) -> Constant:
        key = id(weight.data)
        if key not in self.weights:
            self.weights[key] = Constant(np.ascontiguousarray(weight.data.astype(NARROW)))
        return self.weights[key]


def _is_wide(x: Expr) -> bool:
    return isinstance(x.struct_info, TensorStructInfo) and x.struct_info.dtype == WIDE


def narrow_products(module: IRModule) -> IRModule:
    """See above; keeps the types of inputs and outputs. Raises InvalidTypeError where ml_dtypes is missing."""

    know_dtype(NARROW)

    def convert(function: Function) -> Function:
        known = {b.var: b.value for b in bindings_of(function.body) if isinstance(b.value, Constant)}
        return _Narrower(known).rewrite(function)

    return map_functions(module, convert)


def NarrowProducts() -> Pass:  # noqa: N802
    """See `narrow_products`."""
    return graph_pass("NarrowProducts")(narrow_products)


def holds_bfloat16(module: IRModule, name: str = "main") -> bool:
    """Whether a function has parameters or constants of bfloat16: its products are meant to be of it."""
    function = module[name]
    values: list[Any] = [*function.params, *_constants(function)]
    return any(info.dtype == NARROW for v in values for info in tensor_infos(v.struct_info))


def _constants(function: Function) -> list[Constant]:
    found = []
    for b in bindings_of(function.body):
        arguments = b.value.args if isinstance(b.value, Call) else (b.value,)
        found += [a for a in arguments if isinstance(a, Constant)]
    return found


__all__ = ["NARROW", "PRECISION", "NarrowProducts", "holds_bfloat16", "narrow_products"]
