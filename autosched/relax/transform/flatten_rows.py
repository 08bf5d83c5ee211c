"""Products of many rows with one matrix have all rows in one axis: tiles of rows need not end where images do."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, ShapeExpr, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import Dim
from autosched.relax.transform.blocked import dims_of
from autosched.tir.expr import PrimExpr, const, const_int, mul
from autosched.tir.simplify import Analyzer

PACKED = ("nn.matmul_nbits", "nn.matmul_nbits_zeros")
PRODUCTS = ("matmul", *PACKED)  # whose first argument has the rows


class _Flattener(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        definition = definition_of(call)
        if definition is None or definition.name not in PRODUCTS:
            return call
        rows, matrix = dims_of(call.args[0]), dims_of(call.args[1])
        few = (0,) if definition.name in PACKED else (0, 1)  # a batch of one is a product of matrices already
        if len(matrix) != 2 or len(rows) < 3 or const_int(product_of(rows[:-2])) in few:
            return call
        flat = self.emit(op.reshape(call.args[0], ShapeExpr((product_of(rows[:-1]), rows[-1]))))
        product = self.emit(remake(call, [flat, *call.args[1:]]))
        return op.reshape(product, ShapeExpr(dims_of(var)))


def product_of(extents: Sequence[Dim]) -> PrimExpr:
    """The product of extents, simplified."""
    found: PrimExpr = const(1, "int64")
    for extent in extents:
        found = mul(found, extent)
    return Analyzer().simplify(found)


def flatten_rows(module: IRModule) -> IRModule:
    """matmul([…, m, k], [k, n]) becomes one product of matrices, between views."""
    return map_functions(module, lambda function: _Flattener().rewrite(function))


def FlattenRows() -> Pass:  # noqa: N802
    """See `flatten_rows`."""
    return graph_pass("FlattenRows")(flatten_rows)


__all__ = ["FlattenRows", "flatten_rows"]
