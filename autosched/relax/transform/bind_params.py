"""Give parameters their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from autosched.errors import InvalidValueError, ShapeError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo
from autosched.relax.expr import Constant, Function, Var
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def bind(function: Function, values: Mapping[str | Var, Any]) -> Function:
    """The function without the parameters named; their values stand in it as constants.

    Raises ValueError for a name that is no parameter, ShapeError for an array of another shape or dtype.
    """
    by_name = {p.name: p for p in function.params}
    bound: dict[Var, Constant] = {}
    for key, value in values.items():
        param = by_name.get(key) if isinstance(key, str) else key
        if param is None or param not in function.params:
            raise InvalidValueError(f"no parameter '{key}'", hint=f"the parameters are {list(by_name)}")
        array, info = _array(value), param.struct_info
        if isinstance(info, TensorStructInfo) and info.is_static:
            if array.shape != info.static_shape or str(array.dtype) != info.dtype:
                raise ShapeError(f"parameter '{param.name}' is {info!r}, got {array.shape} of {array.dtype}")
        bound[param] = Constant(array)
    rewriter = Rewriter()
    rewriter.replaced.update(bound)
    left = tuple(p for p in function.params if p not in bound)
    rewritten = rewriter.rewrite(function)
    if rewritten is function and bound:
        rewritten = dataclasses.replace(function, body=rewriter._sequence(function.body))
    return dataclasses.replace(rewritten, params=left)


def BindParams(func_name: str, params: Mapping[str | Var, Any]) -> Pass:  # noqa: N802  (TVM's name)
    """Replace parameters of a function, by name or Var, by the given arrays."""

    def run(module: IRModule) -> IRModule:
        result = module.clone()
        result[func_name] = bind(module[func_name], params)
        return result

    return Pass(run, PassInfo(0, "BindParams"))
