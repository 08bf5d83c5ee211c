"""Operators of the user: tensor expressions, PrimFuncs and registered functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched.errors import InvalidValueError
from autosched.frontend.nn.core import unwrap, wrap_nested
from autosched.relax import op as R
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Tuple


def tensor_expr_op(tensor_expr_func: Callable[..., object], name_hint: str, args: Sequence[object]) -> Any:
    """The result of a function written with te, called on tensors."""
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValueError("tensor_expr_op is called outside of a method that is being exported")
    call = builder.call_te(tensor_expr_func, *(unwrap(a) for a in args), primfunc_name_hint=name_hint)
    return wrap_nested(call, name_hint)


def tensor_ir_op(func: Any, name_hint: str, args: Any, out: Any) -> Any:
    """The result of a PrimFunc; `out` (placeholders) says shapes and dtypes of what it writes."""
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValueError("tensor_ir_op is called outside of a method that is being exported")
    tensors = Tuple(tuple(unwrap(a) for a in (args if isinstance(args, list | tuple) else [args])))
    call = R.call_tir(builder.add_func(func, name_hint), tensors, _infos(out))
    return wrap_nested(call, name_hint)


def _infos(out: Any) -> Any:
    return [o.struct_info for o in out] if isinstance(out, list | tuple) else out.struct_info


def extern(name: str, args: Sequence[object], out: Any) -> Any:
    """The result of a registered function on the arguments and on outputs; `out` (placeholders) says which."""
    given = Tuple(tuple(unwrap(a) for a in args))
    return wrap_nested(R.call_dps_packed(name, given, _infos(out)), name)
