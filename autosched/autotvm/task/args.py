"""Arguments of templates as values that can be stored and compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidTypeError
from autosched.te import Tensor, placeholder
from autosched.tir.expr import FloatImm, IntImm, StringImm, const_int


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Tensors become ("TENSOR", shape, dtype), sequences tuples. Raises TVMError for what is no plain value."""
    return tuple(_serialize(arg) for arg in args)


def _serialize(arg: Any) -> Any:
    match arg:
        case Tensor():
            return ("TENSOR", tuple(const_int(d) if const_int(d) is not None else str(d) for d in arg.shape), arg.dtype)
        case list() | tuple():
            return tuple(_serialize(x) for x in arg)
        case str() | int() | float() | bool() | None:
            return arg
        case IntImm() | FloatImm() | StringImm():
            return arg.value
    raise InvalidTypeError(
        f'Do not support type "{type(arg).__name__}" in argument. Consider to use primitive types or tvm.tir.Var only'
    )


def deserialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """The other way: ("TENSOR", shape, dtype) becomes a placeholder."""
    return tuple(
        placeholder(a[1], a[2]) if isinstance(a, tuple | list) and len(a) == 3 and a[0] == "TENSOR" else a for a in args
    )


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple[Any, ...]:
    """The key of a template's arguments: (name, *values)."""
    return ((task_name,) if task_name is not None else ()) + serialize_args(args)
