"""Compute at build what depends on constants only."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo
from autosched.relax.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.op.registry import definition_of, is_constant, python_argument
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.tir.function import PrimFunc

FREE_BYTES = 1 << 16  # results up to this size are always kept as constants


def _size_bytes(info: TensorStructInfo) -> int:
    return int(np.prod(info.static_shape, dtype=np.int64)) * np.dtype(info.dtype).itemsize


def _argument_bytes(arg: Any) -> int:
    if isinstance(arg, Tuple):
        return sum(map(_argument_bytes, arg.fields))
    return arg.data.nbytes if isinstance(arg, Constant) else 0


def _worthwhile(call: Call, inputs: Any) -> bool:
    """A broadcast that would blow a constant up stays a computation."""
    infos = tensor_infos(call.struct_info)
    if not all(i.is_static for i in infos):
        return False
    size = sum(map(_size_bytes, infos))
    return size <= FREE_BYTES or size <= sum(map(_argument_bytes, inputs))


def fold_call(call: Call, module: IRModule) -> Expr | None:
    """The constant (or tuple of them) that a call gives, or None where it depends on more or is better computed."""
    if is_call_tir(call):
        inputs = tir_inputs(call)
        if not all(isinstance(a, Constant) for a in inputs) or not _worthwhile(call, inputs):
            return None
        return _fold_tir(module[tir_target(call)], [a.data for a in inputs])  # type: ignore[attr-defined]
    definition = definition_of(call)
    if definition is None or definition.reference is None or not all(map(is_constant, call.args)):
        return None
    if not _worthwhile(call, call.args):
        return None
    result = definition.run_reference([python_argument(a, lambda c: c.data) for a in call.args], call.attrs)
    return Tuple(tuple(map(Constant, result))) if isinstance(result, tuple) else Constant(_contiguous(result))


def _fold_tir(function: PrimFunc, inputs: list[Any]) -> Expr:
    from autosched.tir.evaluate import evaluate

    results = [
        np.asarray(r).astype(b.dtype, copy=False)
        for r, b in zip(evaluate(function, inputs), function.buffers[len(inputs) :], strict=True)
    ]
    return Constant(results[0]) if len(results) == 1 else Tuple(tuple(map(Constant, results)))


def _contiguous(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x if x.ndim == 0 or x.flags.c_contiguous else np.ascontiguousarray(x)


class _Folder(Rewriter):
    def __init__(self, module: IRModule):
        super().__init__()
        self.module = module

    def value(self, value: Expr, var: Var) -> Expr:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            return value.tuple_value.fields[value.index]
        return super().value(value, var)

    def call(self, call: Call, var: Var) -> Expr:
        folded = fold_call(call, self.module)
        return call if folded is None else folded


def _fold_constants(module: IRModule) -> IRModule:
    """Replace calls of constants by their results. Keeps outputs, shapes and dtypes."""
    return map_functions(module, lambda function: _Folder(module).rewrite(function))


fold_constants = Pass(_fold_constants, PassInfo(0, "FoldConstant"))


def FoldConstant() -> Pass:  # noqa: N802  (TVM's name)
    """Evaluate operators and `call_tir`s whose arguments are all constants."""
    return fold_constants
