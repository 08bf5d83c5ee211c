"""Products of many rows with one matrix have all rows in one axis: tiles of rows need not end where images do."""

from __future__ import annotations

import math

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, ShapeExpr, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.transform.blocked import shape_of


class _Flattener(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        definition = definition_of(call)
        if definition is None or definition.name != "matmul":
            return call
        rows, matrix = map(shape_of, call.args)
        if len(matrix) != 2 or len(rows) < 3 or math.prod(rows[:-2]) <= 1:
            return call
        flat = self.emit(op.reshape(call.args[0], ShapeExpr((math.prod(rows[:-1]), rows[-1]))))
        product = self.emit(remake(call, [flat, call.args[1]]))
        return op.reshape(product, ShapeExpr(shape_of(var)))


def flatten_rows(module: IRModule) -> IRModule:
    """matmul([…, m, k], [k, n]) becomes one product of matrices, between views."""
    return map_functions(module, lambda function: _Flattener().rewrite(function))


def FlattenRows() -> Pass:  # noqa: N802
    """See `flatten_rows`."""
    return graph_pass("FlattenRows")(flatten_rows)


__all__ = ["FlattenRows", "flatten_rows"]
