"""The version of a function: what it computes, its callees included, and nothing of how it is written.

Comments, names of files, decorators, annotations and the candidates of knobs do not change it; code, constants, globals
that it reads and functions that it calls do.
"""

from __future__ import annotations

import ast
import hashlib
import types
from collections.abc import Callable, Mapping

import numpy as np

from autosched.own.specialise import definition, read_source


def digest(func: Callable[..., object], options: Mapping[str, object], more: Mapping[str, object] | None = None) -> str:
    """12 hexadecimal digits of the function, the options that it is compiled with, and more values or functions."""
    parts = [repr(sorted((name, repr(value)) for name, value in options.items()))]
    seen: set[int] = set()
    _add_function(func, parts, seen)
    for name, value in (more or {}).items():
        _add_value(name, value, parts, seen)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _add_function(func: Callable[..., object], parts: list[str], seen: set[int]) -> None:
    if id(func) in seen:
        return
    seen.add(id(func))
    code = func.__code__
    parts.append(_form(func))
    cells = dict(zip(code.co_freevars, (c.cell_contents for c in func.__closure__ or ()), strict=True))
    for name in sorted({*_names(code)}):
        if name in cells:
            _add_value(name, cells[name], parts, seen)
        elif name in func.__globals__:
            _add_value(name, func.__globals__[name], parts, seen)


def _form(func: Callable[..., object]) -> str:
    """The tree of a function's text, without what compiles to nothing; where there is no text, its code."""
    text = read_source(func)
    if text is None:
        return _code_form(func.__code__)
    node = definition(text)
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
        body = body[1:]  # the docstring
    names = [arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
    return f"{names} {[ast.dump(statement) for statement in body]}"


def _code_form(code: types.CodeType) -> str:
    constants = [_code_form(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_varnames} {code.co_names} {code.co_code.hex()} {constants}"


def _names(code: types.CodeType) -> set[str]:
    """The global and free names that a function's code, inner functions included, may read."""
    found = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _add_value(name: str, value: object, parts: list[str], seen: set[int]) -> None:
    inner = getattr(value, "py_func", value)
    if isinstance(inner, types.FunctionType):
        if inner.__module__.split(".")[0] not in ("numba", "numpy", "math"):
            parts.append(f"{name}: {sorted((k, repr(v)) for k, v in getattr(value, 'targetoptions', {}).items())}")
            _add_function(inner, parts, seen)
    elif isinstance(value, np.ndarray):
        parts.append(f"{name}: {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
    elif isinstance(value, bool | int | float | complex | str | bytes | tuple | np.generic | None):
        parts.append(f"{name}: {value!r}")
    elif isinstance(value, types.ModuleType):
        parts.append(f"{name}: module {value.__name__}")
    else:
        parts.append(f"{name}: {type(value).__name__}")
