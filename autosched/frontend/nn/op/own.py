"""Operators of the user: tensor expressions and PrimFuncs."""

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
    results = out if isinstance(out, list | tuple) else [out]
    infos = [r.struct_info for r in results]
    tensors = Tuple(tuple(unwrap(a) for a in (args if isinstance(args, list | tuple) else [args])))
    call = R.call_tir(builder.add_func(func, name_hint), tensors, infos if isinstance(out, list | tuple) else infos[0])
    return wrap_nested(call, name_hint)
