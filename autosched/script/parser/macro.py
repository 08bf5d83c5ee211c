"""`@T.macro`: statements with parameters, put in where they are called."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from autosched.errors import ScriptError
from autosched.script.parser.source import Source


@dataclass(frozen=True, eq=False)
class Macro:
    """A macro's text, and the names that stood around it."""

    node: ast.FunctionDef
    source: Source
    names: Mapping[str, object]
    hygienic: bool = True

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused outside of a script. Raises ScriptError always."""
        raise ScriptError(f"macro '{self.node.name}' can be called in a T.prim_func only")


def read_macro(function: Callable[..., object], names: Mapping[str, object], hygienic: bool) -> Macro:
    """The macro that a Python function's text spells out. Raises ScriptError where the text cannot be had."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise ScriptError(f"the source of {function!r} cannot be read: {error}") from error
    source = Source.of("".join(lines), inspect.getsourcefile(function) or "<script>", first)
    node = source.tree().body[0]
    if not isinstance(node, ast.FunctionDef):
        raise source.error(node, "T.macro decorates a function")
    return Macro(node, source, names, hygienic)
