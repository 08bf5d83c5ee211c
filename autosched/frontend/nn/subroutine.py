"""Modules that say `define_subroutine = True`: their `forward` is one function, however often methods call it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from autosched.errors import UsageError
from autosched.frontend.nn.core import METHODS, Module, Object, Tensor, unwrap, wrap_nested
from autosched.ir.module import GlobalVar
from autosched.ir.structural import structural_key
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Call, Tuple, Var, as_expr
from autosched.relax.struct_info import StructInfo, TupleStructInfo

_made: WeakKeyDictionary[BlockBuilder, dict[object, GlobalVar]] = WeakKeyDictionary()


def call_subroutine(
    module: Module, forward: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> Any:
    """Call the function of a module's `forward`, which is made for arguments of types that are new."""
    builder = BlockBuilder.current()
    if builder is None:
        raise UsageError(f"{type(module).__name__} defines a subroutine: it is called while a method is exported")
    bound = inspect.signature(forward).bind(module, *args, **kwargs).arguments
    given = {name: as_expr(unwrap(value)) for name, value in list(bound.items())[1:]}
    weights = list(module.named_parameters())
    inputs = [*given.values(), *(p._expr for _, p in weights)]
    infos = [x.struct_info for x in inputs]
    key = (forward, structural_key(TupleStructInfo(tuple(i for i in infos if i is not None))))
    known = _made.setdefault(builder, {})
    if key not in known:
        known[key] = _define(builder, module, forward, given, weights, infos)
    function = builder.get()[known[key]]
    call = Call(known[key], tuple(inputs), struct_info=function.ret_struct_info)
    return wrap_nested(call, f"{known[key].name}_output")


def _define(
    builder: BlockBuilder, module: Module, forward: Callable[..., Any], given: Mapping[str, Any],
    weights: Sequence[tuple[str, Any]], infos: Sequence[StructInfo | None],
) -> GlobalVar:  # fmt: skip
    names = [*given, *(name for name, _ in weights)]
    params = [Var(name, info) for name, info in zip(names, infos, strict=True)]
    before = [p._expr for _, p in weights]
    in_dataflow = builder.current_block_is_dataflow()
    name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", type(module).__name__).lower()
    name = builder.get_unique_function_name(name)
    for (_, p), var in zip(weights, params[len(given) :], strict=True):
        p._expr = var
    try:
        with builder.function(name, params, private=True):
            with builder.dataflow() if in_dataflow else nullcontext():
                values = [_wrapped(p) for p in params[: len(given)]]
                result = _flat(forward(module, **dict(zip(given, values, strict=True))))
                output = builder.emit_output(result) if in_dataflow else result
            made: GlobalVar = builder.emit_func_output(output)
    finally:
        for (_, p), expr in zip(weights, before, strict=True):
            p._expr = expr
    return made


def _wrapped(var: Var) -> Any:
    return wrap_nested(var, var.name)


def _flat(value: Any) -> Any:
    if isinstance(value, Tensor | Object):
        return value._expr
    return Tuple(tuple(map(_flat, value))) if isinstance(value, list | tuple) else as_expr(value)


METHODS.update(subroutine=call_subroutine)
