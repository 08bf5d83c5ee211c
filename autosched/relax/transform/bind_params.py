"""Parameters given at build become constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Constant, Expr, Function, Var
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TensorStructInfo


def _bound(function: Function, key: object) -> Var:
    if isinstance(key, Var):
        found = [p for p in function.params if p is key]
    else:
        found = [p for p in function.params if p.name == key]
    if not found:
        raise InvalidValueError(
            f"BindParams: no parameter '{getattr(key, 'name', key)}'",
            hint=f"there are {[p.name for p in function.params]}",
        )
    return found[0]


def _constant(param: Var, value: object) -> Constant:
    value = value.data if isinstance(value, Constant) else value
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    info = param.struct_info
    if isinstance(info, TensorStructInfo):
        if info.is_static and array.shape != info.static_shape:
            raise ShapeError(f"parameter '{param.name}' is {info.static_shape}, got {array.shape}")
        array = array.astype(info.dtype, copy=False)
    return Constant(array)


def bind_function(function: Function, params: Mapping[str, object] | Mapping[Var, object]) -> Function:
    """The function without the parameters named, their values in their place."""
    values: dict[Var, Expr] = {p: _constant(p, v) for key, v in params.items() for p in (_bound(function, key),)}
    rewriter = Rewriter()
    rewriter.replaced = values
    kept = tuple(p for p in function.params if p not in values)
    attrs = function.attrs
    if "num_input" in attrs:
        inputs = function.params[: attrs["num_input"]]
        function = function.with_attr("num_input", sum(p not in values for p in inputs))
    return dataclasses.replace(rewriter.rewrite(function), params=kept)


def BindParams(func_name: str, params: Mapping[str, object] | Mapping[Var, object]) -> Pass:  # noqa: N802
    """Bind parameters of a function, by name or Var, to arrays; they are parameters no longer.

    Raises ValueError for a name that is none, or a shape that does not fit.
    """

    if not isinstance(params, Mapping):
        raise InvalidTypeError(f"BindParams takes a mapping from names to arrays, got {type(params).__name__}")

    def bind(module: IRModule) -> IRModule:
        gv = module.get_global_var(func_name)
        return module.with_functions({**module.functions, gv: bind_function(module[gv], params)})

    return graph_pass("BindParams")(bind)
