"""What a method is exported with: the types of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.errors import InvalidTypeError, UnknownOptionError, WrongInputError
from autosched.tir.dtypes import check_dtype


@dataclass(frozen=True)
class Tensor:
    """A tensor: dimensions are integers or names of symbols."""

    shape: Sequence[int | str]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_dtype(self.dtype, "spec.Tensor")


@dataclass(frozen=True)
class Int:
    """An integer, as a symbol of its own."""


@dataclass(frozen=True)
class Object:
    """Any object."""

    object_type: Any = None


@dataclass(frozen=True)
class Tuple:
    """Several values."""

    elements: Sequence[Any]
    name: str = "tuple"


@dataclass(frozen=True)
class MethodSpec:
    """A method's name and the types of its arguments, in order."""

    name: str
    arguments: tuple[tuple[str, Any], ...]


def method_specs(module: object, spec: Mapping[str, Mapping[str, object]]) -> list[MethodSpec]:
    """Check a spec, {method: {argument: type}}. Raises ValueError for unknown methods, TypeError for unknown types."""
    if not isinstance(spec, Mapping):
        raise InvalidTypeError(
            f"export_tvm: the spec is a {type(spec).__name__}, expected {{method: {{argument: type}}}}"
        )
    result = []
    for method, arguments in spec.items():
        if not callable(getattr(module, method, None)):
            raise UnknownOptionError(f"{type(module).__name__} has no method '{method}'")
        _check_names(getattr(module, method), method, [name for name in arguments if not name.startswith("$")])
        checked = []
        for name, kind in arguments.items():
            if name.startswith("$"):  # TVM's modifiers of a method
                continue
            checked.append((name, _kind(kind, f"{method}.{name}")))
        result.append(MethodSpec(method, tuple(checked)))
    return result


def _check_names(function: Callable[..., object], method: str, names: Sequence[str]) -> None:
    """Refuse a spec whose arguments are not those of the method. Raises InvalidTypeError, a ValueError too."""
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except TypeError as error:
        given = ", ".join(names) or "no arguments"
        raise WrongInputError(
            f"spec of '{method}' with {given}: {error}", hint=f"it takes {inspect.signature(function)}"
        ) from None


def _kind(kind: object, where: str) -> object:
    if kind is int or kind == "int":
        return Int()
    if isinstance(kind, list | tuple):
        return Tuple(tuple(_kind(k, where) for k in kind))
    if isinstance(kind, Tensor | Int | Object | Tuple):
        return kind
    raise InvalidTypeError(f"spec of '{where}': {kind!r} is no type", hint="use nn.spec.Tensor(shape, dtype)")
