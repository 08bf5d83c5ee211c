"""What depends on constants alone is computed at build."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.op.registry import definition_of, is_constant, python_argument
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import StructInfo, TensorStructInfo, tensor_infos
from autosched.relax.transform.common_subexpr import expression_key
from autosched.relax.transform.dead_code import remove_unused_bindings

SMALL_BYTES = 1 << 16  # results up to this size are always kept; larger ones only where they replace as much
# Elements that are gathered take several times as long to find as to read: biases of an attention's relative positions.
GATHERS = frozenset({"relax.gather_nd", "relax.gather_elements", "relax.take"})
GATHERED_BYTES = 1 << 20


def _size_bytes(info: StructInfo | None) -> int:
    total = 0
    for t in tensor_infos(info):
        total += int(np.prod(t.static_shape, dtype=np.int64)) * np.dtype(t.dtype).itemsize
    return total


def _constants(x: object) -> list[Constant]:
    if isinstance(x, Tuple):
        return [c for f in x.fields for c in _constants(f)]
    return [x] if isinstance(x, Constant) else []


def is_worth_folding(args: Sequence[object], result: StructInfo | None, small_bytes: int = SMALL_BYTES) -> bool:
    """Whether the result is no larger than what it is computed from, or small."""
    if not all(t.is_static for t in tensor_infos(result)):
        return False
    given = sum(c.data.nbytes for a in args for c in _constants(a))
    return _size_bytes(result) <= max(given, small_bytes)


def as_constants(result: object, info: StructInfo | None) -> Expr:
    """NumPy results as constants of the types that were inferred."""
    arrays = result if isinstance(result, tuple | list) else (result,)
    fields = [
        Constant(np.ascontiguousarray(a, dtype=t.dtype).reshape(t.static_shape))
        for a, t in zip(arrays, tensor_infos(info), strict=True)
    ]
    return Tuple(tuple(fields)) if not isinstance(info, TensorStructInfo) else fields[0]


class _Folder(Rewriter):
    def __init__(self, module: IRModule):
        super().__init__()
        self.module = module
        self.folded: dict[object, tuple[Call, Expr]] = {}  # with the call, whose constants' ids are in the key

    def call(self, call: Call, var: Var) -> Expr:
        if is_call_tir(call):
            return self.call_tir(call)
        definition = definition_of(call)
        if definition is None or definition.reference is None or not all(map(is_constant, call.args)):
            return call
        small_bytes = GATHERED_BYTES if call.op_name in GATHERS else SMALL_BYTES
        if not is_worth_folding(call.args, call.struct_info, small_bytes):
            return call
        key = expression_key(call)
        if key not in self.folded:  # else each step of a recurrent layer would have weights of its own
            with np.errstate(all="ignore"):
                result = definition.run_reference([python_argument(a, lambda c: c.data) for a in call.args], call.attrs)
            self.folded[key] = call, as_constants(result, call.struct_info)
        return self.folded[key][1]

    def call_tir(self, call: Call) -> Expr:
        inputs = tir_inputs(call)
        if (
            not inputs
            or not all(isinstance(a, Constant) for a in inputs)
            or not is_worth_folding(inputs, call.struct_info)
        ):
            return call
        from autosched.tir.evaluate import evaluate

        results = evaluate(self.module[tir_target(call)], [a.data for a in inputs if isinstance(a, Constant)])
        return as_constants(results, call.struct_info)

    def value(self, value: Expr, var: Var) -> Expr:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            return value.tuple_value.fields[value.index]
        return super().value(value, var)


def fold_constant(module: IRModule) -> IRModule:
    """Replace calls whose arguments are all constants by their values, unless these would be much larger."""
    return map_functions(module, lambda f: _Folder(module).rewrite(f))


def FoldConstant() -> Pass:  # noqa: N802
    """See `fold_constant`; what nobody reads goes."""
    return graph_pass("FoldConstant")(lambda module: map_functions(fold_constant(module), remove_unused_bindings))
