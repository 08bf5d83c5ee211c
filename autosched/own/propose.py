"""`space="auto"`: knobs that the source of a function suggests."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping

from autosched.errors import UsageError
from autosched.own.specialise import definition, read_source
from autosched.target import choose_threads

FACTORS = (0.25, 0.5, 1, 2, 4, 8)  # of the default of a size
LARGEST = 1 << 20
_PARALLEL = ("prange", "pndindex")


def propose(func: Callable[..., object], options: Mapping[str, object], space: str) -> dict[str, tuple[object, ...]]:
    """The knobs of a function with their candidates.

    - a parameter with an integer default that is a step or a bound of a `range`, or a bound of a slice: powers of two
      around the default;
    - a parameter with a boolean default: both values;
    - `fastmath` off and on, where the source computes with floats by + - * /: the check's tolerance decides;
    - `error_model` "python" and "numpy", where the source divides: a division by zero that raises, raises in the check;
    - `num_threads`, where a loop is a `prange` and the function is compiled with `parallel=True`.
    Options that the decorator of `numba.njit` sets are its author's and are left alone.
    Raises UsageError where nothing is found, or there is no source.
    """
    where = f"{func.__module__}:{func.__qualname__}"
    if space != "auto":
        raise UsageError(f"space is '{space}'", where=where, hint='give {"block": [16, 32]}, or "auto"')
    text = read_source(func)
    if text is None:
        raise UsageError('space="auto" reads the source, and there is none', where=where)
    node = definition(text)
    found: dict[str, tuple[object, ...]] = {}
    sizes = set(_sizes(node))
    for name, parameter in inspect.signature(func).parameters.items():
        default = parameter.default
        if isinstance(default, bool):
            found[name] = (default, not default)
        elif isinstance(default, int) and default > 0 and name in sizes:
            found[name] = _around(default)
    operators = {type(n.op) for n in ast.walk(node) if isinstance(n, ast.BinOp | ast.AugAssign)}
    if "fastmath" not in options and operators & {ast.Add, ast.Sub, ast.Mult, ast.Div}:
        found["fastmath"] = (False, True)
    if "error_model" not in options and operators & {ast.Div, ast.FloorDiv, ast.Mod}:
        found["error_model"] = ("python", "numpy")
    if options.get("parallel") and _has_parallel_loop(node) and (most := choose_threads()) > 1:
        found["num_threads"] = (*(1 << n for n in range((most - 1).bit_length())), most)
    if not found:
        hint = "give a parameter with a default that is the step of a range, or a space"
        raise UsageError('space="auto" finds no knob', where=where, hint=hint)
    return found


def _around(default: int) -> tuple[int, ...]:
    """The default and powers of two around it."""
    near = 1 << (default.bit_length() - 1)
    values = {int(near * factor) for factor in FACTORS if 1 <= near * factor <= LARGEST}
    return tuple(sorted(values | {default}))


def _sizes(node: ast.FunctionDef) -> Iterator[str]:
    """The names in steps and bounds of ranges, and in bounds of slices."""
    for inner in ast.walk(node):
        parts: list[ast.AST | None] = []
        if isinstance(inner, ast.Call) and _name_of(inner.func) in ("range", *_PARALLEL):
            parts = [*inner.args]
        elif isinstance(inner, ast.Slice):
            parts = [inner.lower, inner.upper, inner.step]
        for part in parts:
            if part is not None:
                yield from (n.id for n in ast.walk(part) if isinstance(n, ast.Name))


def _has_parallel_loop(node: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Call) and _name_of(n.func) in _PARALLEL for n in ast.walk(node))


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
