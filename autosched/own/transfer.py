"""An own function on its way to a worker: by value where that is possible, so that no script runs a second time."""

from __future__ import annotations

import importlib
import pickle
import runpy
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autosched.errors import UsageError
from autosched.own.jit import divide
from autosched.own.specialise import specialise, specialise_text
from autosched.own.ufunc import UfuncForm
from autosched.space import Config

LOADING = "__autosched_worker__"  # the name that a script gets when a worker runs it for its functions
loading: set[str] = set()  # what this process, a worker, is importing: a module that tunes as it is imported must not


@dataclass(frozen=True, eq=False)
class SentFunction:
    """A function with all that compiling one of its configurations takes.

    blob      the function with the globals that it reads, by Numba's own pickler; b"": it is imported
    place     "module:qualified.name", or "path.py:name" of a script
    text      its source; None where there is none
    types     Numba's types of the arguments
    form      of a ufunc, how it was made
    """

    blob: bytes = field(repr=False)
    place: str
    name: str
    text: str | None = field(repr=False)
    arguments: tuple[str, ...]
    knobs: tuple[str, ...]
    options: Mapping[str, object]
    types: bytes = field(repr=False)
    form: UfuncForm | None = field(default=None, kw_only=True)

    @cached_property
    def func(self) -> Callable[..., object]:
        """The Python function. Raises ImportError and AttributeError, or whatever its module raises."""
        if self.blob:
            made: Callable[..., object] = pickle.loads(self.blob)
            return made
        module, _, name = self.place.rpartition(":")
        loading.add(self.place)
        try:
            if module.endswith(".py"):
                found = runpy.run_path(module, run_name=LOADING)[name]
            else:
                found = importlib.import_module(module)
                for part in name.split("."):
                    found = getattr(found, part)
        finally:
            loading.discard(self.place)
        inner: Callable[..., object] = getattr(found, "py_func", found)
        return inner

    def specialised(self, config: Config) -> tuple[Callable[..., object], str]:
        """The function with a configuration's knobs as constants, and its text."""
        parts = divide(config.knobs, self.knobs, self.options)
        text = None
        if self.text is not None:
            rest = " ".join(f"{name}={value}" for name, value in self.options.items() if name not in config.knobs)
            text = specialise_text(self.text, parts.constants, f"{config} | {rest}".rstrip(" |"))
        made = specialise(self.func, text, parts.constants, self.arguments)
        if self.blob:
            made.__module__ = __name__  # Numba imports the module of code that it loads, and the user's may be large
        return made, text or ""

    def dispatcher(self, config: Config) -> Any:
        """Numba's dispatcher of a configuration, nothing compiled yet."""
        import numba

        parts = divide(config.knobs, self.knobs, self.options)
        func, _ = self.specialised(config)
        if self.form is not None:
            return self.form.make(func, parts.options)
        return numba.njit(**parts.options)(func)


def pack_value(value: object) -> bytes:
    """A value by Numba's own pickler: classes of a script, as of its named tuples, travel with it."""
    from numba.core import serialize

    return bytes(serialize.dumps(value))


def pack_function(func: Callable[..., object], place: str) -> bytes:
    """A function by value; b"" where it can only be imported.

    Raises UsageError if it can be neither: it reads something that cannot be sent, and no file holds it.
    """
    try:
        return pack_value(_apart(func))
    except Exception as error:  # what a global can raise when it is pickled has no common type
        module, _, name = place.rpartition(":")
        if module.endswith(".py") or (module != "__main__" and "<" not in name):
            return b""
        hint = "put the function into a module that can be imported"
        raise UsageError(f"{name} cannot be sent to a worker process: {error}", hint=hint) from error


def _apart(func: Callable[..., object]) -> Callable[..., object]:
    """The function as no module has it: one that a module has is sent as its name, and workers would import that."""
    if not isinstance(func, types.FunctionType):
        return func
    made = types.FunctionType(func.__code__, func.__globals__, func.__name__, func.__defaults__, func.__closure__)
    made.__kwdefaults__, made.__qualname__, made.__module__ = func.__kwdefaults__, func.__qualname__, func.__module__
    return made


def place_of(func: Callable[..., object]) -> str:
    """Where a function is found: "module:qualified.name", of a script "path.py:name"."""
    if func.__module__ == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        return f"{file if file and file.endswith('.py') else '__main__'}:{func.__qualname__}"
    return f"{func.__module__}:{func.__qualname__}"


def pack_types(values: Sequence[object]) -> bytes:
    """Numba's types of arguments. Raises UsageError naming a value that Numba has no type for."""
    import numba

    found = []
    for value in values:
        try:
            found.append(numba.typeof(value))
        except (ValueError, TypeError, numba.core.errors.NumbaError) as error:
            raise UsageError(f"Numba has no type for a {type(value).__name__}: {error}") from error
    return pack_value(tuple(found))
