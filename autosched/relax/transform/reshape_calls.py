"""Reshapes: PrimFuncs that copy their input in its order are calls of `reshape` again, and needless ones go."""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, DataflowVar, Expr, Function, ShapeExpr, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo, same_dims
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.tir.reshape_pattern import has_reshape_pattern


class _Calls(Rewriter):
    def __init__(self, module: IRModule):
        super().__init__()
        self.module = module

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(var, DataflowVar) and not self._dataflow or not is_call_tir(call):
            return call
        inputs, result = tir_inputs(call), call.struct_info
        if len(call.args) != 2 or len(inputs) != 1 or not isinstance(result, TensorStructInfo) or result.shape is None:
            return call
        return op.reshape(inputs[0], result.shape) if has_reshape_pattern(self.module[tir_target(call)]) else call


def RewriteDataflowReshape() -> Pass:  # noqa: N802
    """In dataflow blocks, calls of PrimFuncs that only copy in memory's order become `reshape`, which needs no copy."""
    return graph_pass("RewriteDataflowReshape")(
        lambda module: map_functions(module, lambda function: _Calls(module).rewrite(function))
    )


class _Redundant(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[Expr, Expr] = {}  # the tensor of which a variable is a reshape

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name != "relax.reshape":
            return call
        source = self.sources.get(call.args[0], call.args[0])
        shape, before = call.struct_info, source.struct_info
        if not isinstance(shape, TensorStructInfo) or not isinstance(before, TensorStructInfo) or shape.shape is None:
            return call
        if before.shape is not None and same_dims(before.dims, shape.dims):
            return source  # type: ignore[no-any-return]
        self.sources[var] = source
        return call if source is call.args[0] else op.reshape(source, ShapeExpr(tuple(shape.dims)))


def RemoveRedundantReshape() -> Pass:  # noqa: N802
    """A reshape of a reshape is one, and one to the shape that is there already is none."""

    def change(function: Function) -> Function:
        changed = _Redundant().rewrite(function)
        return function if changed is function else remove_unused_bindings(changed)

    return graph_pass("RemoveRedundantReshape")(lambda module: map_functions(module, change))
