"""The version of a function: what it computes, its callees included, and nothing of how it is written.

Comments, names of files, decorators, annotations and the candidates of knobs do not change it; code, constants, globals
that it reads, also those of other modules, and functions that it calls do.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import re
import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from autosched.own.specialise import code_form, definition, read_source

KNOWN = ("numba", "numpy", "math", "cmath", "builtins", "operator", "llvmlite")  # packages with versions of their own
PLACES = (  # of the Python function in what Numba makes of it, and in what `autotune` makes of it
    "py_func", "_dispatcher.py_func", "gufunc_builder.py_func", "kernel_ir.func_id.func", "_pyfunc", "_defn",
)  # fmt: skip


def digest(func: Callable[..., object], options: Mapping[str, object], more: Mapping[str, object] | None = None) -> str:
    """12 hexadecimal digits of the function, the options that it is compiled with, and more values or functions."""
    made = _Digest()
    made.add_options("", options)
    made.add_function(func)
    for name, value in (more or {}).items():
        if isinstance(value, types.FunctionType):
            made.parts.append(f"{name}: {value.__defaults__}")
            made.add_function(value)
        else:
            made.add_value(name, value, frozenset())
    return hashlib.sha256("\n".join(made.parts).encode()).hexdigest()[:12]


class _Digest:
    """Texts of all that decides what a function computes."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._seen: set[object] = set()

    def add_options(self, name: str, options: Mapping[str, object]) -> None:
        """Options of a compilation, sets of flags in order."""
        shown = {k: sorted(v) if isinstance(v, set | frozenset) else v for k, v in options.items()}
        self.parts.append(f"{name}: {sorted((k, repr(v)) for k, v in shown.items())}")

    def add_function(self, func: Callable[..., object]) -> None:
        """A function and what it reads; its own defaults are for its caller to add."""
        if id(func) in self._seen:
            return
        self._seen.add(id(func))
        code, names = func.__code__, frozenset(_names(func.__code__))
        self.parts.append(_form(func))
        cells = dict(zip(code.co_freevars, (c.cell_contents for c in func.__closure__ or ()), strict=True))
        for name in sorted(names):
            if name in cells:
                self.add_value(name, cells[name], names)
            elif name in func.__globals__:
                self.add_value(name, func.__globals__[name], names)

    def add_value(self, name: str, value: object, names: frozenset[str]) -> None:
        """A value that a function reads.

        names  the attributes that the function may read of modules and classes
        """
        inner = _python_function(value)
        if inner is not None:
            if not _is_known(inner.__module__):
                self.add_options(name, getattr(value, "targetoptions", {}))
                self.add_value("defaults", (inner.__defaults__, *sorted((inner.__kwdefaults__ or {}).items())), names)
                self.add_function(inner)
                for made in _overloads(value):
                    self.add_function(made)
        elif isinstance(value, np.ndarray):
            self.parts.append(f"{name}: {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
        elif isinstance(value, tuple | list):
            self.parts.append(f"{name}: {type(value).__name__} of {len(value)}")
            for i, part in enumerate(value):
                self.add_value(f"{name}[{i}]", part, names)
        elif isinstance(value, dict):
            self.add_value(name, list(value.items()), names)
        elif isinstance(value, bool | int | float | complex | str | bytes | np.generic | enum.Enum | None):
            self.parts.append(f"{name}: {value!r}")
        elif isinstance(value, types.ModuleType):
            self.parts.append(f"{name}: module {value.__name__}")
            self._add_attributes(name, value, vars(value), names)
        elif isinstance(value, type):
            self.parts.append(f"{name}: class {value.__module__}.{value.__qualname__}")
            self._add_attributes(name, value, {n: getattr(value, n) for n in names if hasattr(value, n)}, names)
            self._add_jitclass(name, value)
        else:  # types of Numba's, ranges, functions of C: what they print, without places in memory
            said = re.sub("0x[0-9a-f]+", "", repr(value))
            self.parts.append(f"{name}: {type(value).__name__} {getattr(value, '__name__', '')} {said}")

    def _add_attributes(self, name: str, owner: Any, found: Mapping[str, object], names: frozenset[str]) -> None:
        """What a function may read of a module or a class: attributes of any name that its code has."""
        where = owner.__module__ if isinstance(owner, type) else owner.__name__
        if _is_known(where) or (id(owner), names) in self._seen:
            return
        self._seen.add((id(owner), names))
        for attribute in sorted(names & found.keys()):
            self.add_value(f"{name}.{attribute}", found[attribute], names)

    def _add_jitclass(self, name: str, value: Any) -> None:
        """The fields and methods of a class of Numba's."""
        made = getattr(value, "class_type", None)
        if made is None or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self.parts.append(f"{name}: {dict(made.struct)}")
        for methods in (made.jit_methods, made.jit_static_methods, *made.jit_props.values()):
            for method, jitted in sorted(methods.items()):
                self.add_value(f"{name}.{method}", jitted, frozenset())


def _is_known(module: str | None) -> bool:
    """Whether a module is one whose version says what it has."""
    return (module or "").split(".")[0] in KNOWN


def _python_function(value: Any) -> types.FunctionType | None:
    """The Python function that a value is or was compiled from; None where there is none."""
    if isinstance(value, types.FunctionType):
        return value
    if (type(value).__module__ or "").split(".")[0] not in ("numba", "autosched"):
        return None
    for place in PLACES:
        try:
            found = attrgetter(place)(value)
        except AttributeError:
            continue
        if isinstance(found, types.FunctionType):
            return found
    return None


def _overloads(value: object) -> list[types.FunctionType]:
    """What Numba compiles in the place of a Python function, as its users have said by `overload`."""
    if not isinstance(value, types.FunctionType):
        return []
    from numba.core.registry import cpu_target

    context = cpu_target.typing_context
    context.refresh()
    found = getattr(context._lookup_global(value), "templates", ())
    made = (getattr(template, "_overload_func", None) for template in found)
    return [func for func in made if isinstance(func, types.FunctionType) and not _is_known(func.__module__)]


def _form(func: Callable[..., object]) -> str:
    """The tree of a function's text, without what compiles to nothing; where there is no text, its code."""
    text = read_source(func)
    if text is None:
        return code_form(func.__code__)
    node = definition(text)
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
        body = body[1:]  # the docstring
    names = [arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
    return f"{names} {[ast.dump(statement) for statement in body]}"


def _names(code: types.CodeType) -> set[str]:
    """The global and free names that a function's code, inner functions included, may read, and its attributes."""
    found = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
