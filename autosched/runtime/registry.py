"""Python functions by name: TVM's registry of global functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime.registered import FUNCTIONS, PackedFunc

F = TypeVar("F", bound=Callable[..., object])


@overload
def register_func(func_name: str, f: F, override: bool = False) -> F: ...
@overload
def register_func(func_name: F, f: None = None, override: bool = False) -> F: ...
@overload
def register_func(func_name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...


def register_func(func_name: str | F, f: F | None = None, override: bool = False) -> F | Callable[[F], F]:
    """Register a function: `register_func("name", f)`, or as a decorator with or without a name.

    Raises InvalidValueError where the name is taken and `override` is False.
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name)
    if not isinstance(func_name, str):
        raise InvalidTypeError(f"a function's name is a text, not {type(func_name).__name__}")

    def register(function: F) -> F:
        if not callable(function):
            raise InvalidTypeError(f"'{func_name}' is a {type(function).__name__}, no function")
        if func_name in FUNCTIONS and not override:
            raise InvalidValueError(f"Global PackedFunc {func_name} is already registered", hint="use override=True")
        FUNCTIONS[func_name] = function
        return function

    return register if f is None else register(f)


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """A registered function. Raises InvalidValueError if there is none of that name, unless that is allowed."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    from autosched.runtime.built_in import BUILT_IN  # which needs arrays, and these this module

    if name in BUILT_IN:
        return BUILT_IN[name]
    if allow_missing:
        return None
    raise InvalidValueError(f"Cannot find global function {name}")


def remove_global_func(name: str) -> None:
    """Forget a function."""
    FUNCTIONS.pop(name, None)


def list_global_func_names() -> list[str]:
    """The names of all registered functions."""
    return sorted(FUNCTIONS)
