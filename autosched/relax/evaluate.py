"""Run a graph function with the NumPy references of its operators: the truth that builds are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.module import GlobalVar, IRModule
from autosched.relax.expr import Call, Constant, Function, If, SeqExpr, Tuple, TupleGetItem, Var
from autosched.relax.op.call import is_call_tir, tir_inputs, tir_target
from autosched.relax.op.registry import definition_of, python_argument
from autosched.relax.rewrite import used_vars
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from autosched.tir.function import PrimFunc

Value: TypeAlias = Any  # an array, a number, a shape or a tuple of them
RunTir = Callable[[PrimFunc, Sequence[Value]], Value]  # (PrimFunc, inputs) -> output or list of outputs


class _Evaluator:
    def __init__(self, module: IRModule, dtype: str | None, run_tir: RunTir | None):
        self.module, self.dtype, self.run_tir = module, dtype, run_tir
        self.values: dict[Var, Value] = {}

    def widen(self, x: object) -> Value:
        array = np.asarray(x)
        return array.astype(self.dtype) if self.dtype and array.dtype == np.float32 else array

    def function(self, function: Function, args: Sequence[Value]) -> Value:
        if len(args) != len(function.params):
            raise InvalidValueError(f"{len(function.params)} arguments are needed, got {len(args)}")
        self.values.update((p, self.argument(p, a)) for p, a in zip(function.params, args, strict=True))
        return self.sequence(function.body)

    def argument(self, param: Var, value: object) -> Value:
        return self.checked(param, param.struct_info, value)

    def checked(self, param: Var, info: StructInfo | None, value: object) -> Value:
        if isinstance(info, TupleStructInfo) and isinstance(value, list | tuple):
            if len(value) != len(info.fields):
                raise InvalidValueError(f"argument '{param.name}' has {len(value)} fields, expected {len(info.fields)}")
            return tuple(self.checked(param, f, v) for f, v in zip(info.fields, value, strict=True))
        array = np.asarray(value)
        if isinstance(info, TensorStructInfo) and info.is_static and array.shape != info.static_shape:
            raise InvalidValueError(f"argument '{param.name}' is {array.shape}, expected {info.static_shape}")
        return self.widen(array)

    def sequence(self, body: SeqExpr) -> Value:
        last: dict[Var, int] = {}
        order = [b for block in body.blocks for b in block.bindings]
        for position, b in enumerate(order):
            for v in used_vars(b.value):
                last[v] = position
        kept = set(used_vars(body.body))
        for position, b in enumerate(order):
            self.values[b.var] = self.expr(b.value)
            for v in set(used_vars(b.value)):  # values are freed after their last use: large models have many
                if last[v] == position and v not in kept:
                    self.values.pop(v, None)
        return self.expr(body.body)

    def expr(self, x: object) -> Value:
        match x:
            case Var():
                return self.values[x]
            case Constant():
                return self.widen(x.data)
            case Tuple():
                return tuple(self.expr(f) for f in x.fields)
            case TupleGetItem():
                return self.expr(x.tuple_value)[x.index]
            case If():
                return self.sequence(x.true_branch if self.expr(x.cond) else x.false_branch)
            case Call():
                return self.call(x)
        raise InvalidTypeError(f"cannot evaluate {type(x).__name__}")

    def call(self, call: Call) -> Value:
        if isinstance(call.op, GlobalVar):
            inner = _Evaluator(self.module, self.dtype, self.run_tir)
            return inner.function(self.module[call.op], [self.expr(a) for a in call.args])
        if is_call_tir(call):
            if self.run_tir is None:
                raise InvalidValueError("the module has call_tir: pass run_tir")
            return self.run_tir(self.module[tir_target(call)], [self.expr(a) for a in tir_inputs(call)])
        definition = definition_of(call)
        if definition is None:
            raise InvalidTypeError(f"cannot evaluate a call of {call.op}")
        return definition.run_reference([python_argument(a, self.expr) for a in call.args], call.attrs)


def evaluate(
    module: IRModule,
    inputs: Mapping[str, object] | Sequence[object],
    *,
    function: str = "main",
    dtype: str | None = None,
    run_tir: RunTir | None = None,
) -> Value:
    """Run a graph function on arrays.

    inputs   by parameter name, or in order
    dtype    "float64": compute in double precision; None: in the model's own
    run_tir  runs PrimFuncs, for modules after LegalizeOps
    returns  an array, or a tuple of them
    """
    main = module[function]
    if isinstance(inputs, Mapping):
        missing = [p.name for p in main.params if p.name not in inputs]
        if missing:
            raise InvalidValueError(f"inputs {missing} are missing", hint=f"got {sorted(inputs)}")
        inputs = [inputs[p.name] for p in main.params]
    return _Evaluator(module, dtype, run_tir).function(main, inputs)
