"""Small models written with a BlockBuilder: modules whose parameters are variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.errors import InvalidValueError, UsageError
from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Expr, Var
from autosched.relax.struct_info import TensorStructInfo
from autosched.runtime.array import NDArray
from autosched.runtime.ndarray import array
from autosched.topi import matmul  # noqa: F401  (TVM's programs find it here)


def _builder() -> BlockBuilder:
    builder = BlockBuilder.current()
    if builder is None:
        raise UsageError("a function is being written in no BlockBuilder", hint="use `with bb.function(name):`")
    return builder


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Bind an expression in the function that is being written."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., object], *args: Any, **kwargs: Any) -> Var:
    """Bind the result of a tensor expression in the function that is being written."""
    return _builder().emit_te(func, *args, **kwargs)


def _variable(shape: Sequence[Any], dtype: str, name: str) -> Var:
    builder = BlockBuilder.current()
    unique = name if builder is None else builder.get_unique_name(name)
    return Var(unique, TensorStructInfo(tuple(shape), dtype))


def Placeholder(shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> Var:  # noqa: N802
    """An input."""
    return _variable(shape, dtype, name)


def Parameter(shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> Var:  # noqa: N802
    """A weight."""
    return _variable(shape, dtype, name)


class Module:
    """Base of models: its attributes that are variables, and those of its parts, are its parameters."""

    def parameters(self) -> list[Var]:
        """All parameters, in the order in which they were assigned."""
        return _parameters(vars(self))

    def forward(self, input: Expr) -> Var:  # noqa: A002
        """What the module computes."""
        raise NotImplementedError(f"{type(self).__name__} has no method 'forward'")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def _parameters(value: object) -> list[Var]:
    if isinstance(value, Var):
        return [value]
    if isinstance(value, Module):
        return value.parameters()
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [found for item in items for found in _parameters(item)]


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *modules: Module):
        self.modules = modules

    def forward(self, input: Expr) -> Var:  # noqa: A002
        for module in self.modules:
            input = module(input)  # noqa: A001
        assert isinstance(input, Var), "modules bind their results"
        return input


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, input: Expr) -> Var:  # noqa: A002
        return emit(op.nn.relu(input))


class LogSoftmax(Module):
    """log(softmax(x)) of the last axis."""

    def forward(self, input: Expr) -> Var:  # noqa: A002
        return emit(op.nn.log_softmax(input))


class Linear(Module):
    """x @ weight + bias; the weight is [in, out]."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:  # noqa: A002
        y = emit(op.matmul(input, self.weight))
        return y if self.bias is None else emit(op.add(y, self.bias))


def init_params(mod: IRModule) -> list[NDArray]:
    """Random values in [0, 1) for the parameters of `main` behind its inputs (`num_input`, else all but the first)."""
    function = mod["main"]
    made = []
    for param in function.params[int(function.attrs.get("num_input", 1)) :]:
        info = param.struct_info
        if not isinstance(info, TensorStructInfo) or not info.is_static:
            raise InvalidValueError(f"init_params: parameter '{param.name}' has no known shape")
        made.append(array(np.random.rand(*info.static_shape).astype(info.dtype)))
    return made
