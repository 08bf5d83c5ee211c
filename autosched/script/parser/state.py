"""What every reader shares: the source, the names in scope, and what the prefixes mean."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from autosched.ir.global_info import VDevice
from autosched.ir.module import AnyFunction, GlobalVar
from autosched.script.parser.source import Source
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Var

if TYPE_CHECKING:
    from autosched.relax.struct_info import StructInfo

DIALECTS = {"ir": "I", "tir": "T", "tirx": "T", "relax": "R"}

# What a name or an expression of a text stands for: a node, a number, a text, or whatever the user's Python has there.
Meaning: TypeAlias = Any


class State:
    """One reading.

    names       innermost scope last: name -> variable, buffer, or a Python value
    prefixes    how the text calls the dialects I, T and R
    functions   name -> GlobalVar of the module being read
    signatures  name -> what a graph function of it says of its parameters and its result
    metadata    arrays that the text refers to
    """

    def __init__(self, source: Source, extra_vars: Mapping[str, Meaning]):
        self.source = source
        dialects = {n: v.DIALECT for n, v in extra_vars.items() if isinstance(v, ModuleType) and hasattr(v, "DIALECT")}
        self._scopes: list[dict[str, Meaning]] = [{n: v for n, v in extra_vars.items() if n not in dialects}]
        self.prefixes = {"I": "I", "T": "T", "R": "R", **dialects}
        # symbols above the functions, `n = TypeVar("n")`: each function has its own ones of these names
        self.symbols = [n for n, v in extra_vars.items() if isinstance(v, TypeVar)]
        self.functions: dict[str, GlobalVar] = {}
        self.signatures: dict[str, tuple[tuple[StructInfo | None, ...], StructInfo | None]] = {}
        self.module_names: set[str] = set()
        self.vdevices: Sequence[VDevice] = ()  # of the module
        self.metadata: Mapping[str, Sequence[np.ndarray]] = {}
        self.evaluate: Callable[[ast.AST], Meaning] | None = None  # what an expression reader makes of a node
        # of either level; set by whoever begins a reading
        self.read_function: Callable[[State, ast.FunctionDef], AnyFunction]
        # the buffers of the function and of the blocks around, innermost last
        self.allocations: list[list[Buffer]] = []

    def error(self, node: ast.AST, message: str) -> Exception:
        """An error at a node of the tree."""
        return self.source.error(node, message)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names defined inside end there."""
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def function_scope(self) -> Iterator[None]:
        """The scope of a function: the symbols above it are its own."""
        with self.scope():
            for name in self.symbols:
                self.define(name, Var(name, "int64"))
            yield

    def define(self, name: str, value: object) -> None:
        """Give a name a meaning in the current scope."""
        self._scopes[-1][name] = value

    def knows(self, name: str) -> bool:
        """Whether a name is defined."""
        return any(name in scope for scope in self._scopes)

    def find(self, node: ast.Name) -> Meaning:
        """What a name means. Raises ScriptError for an undefined one."""
        for scope in reversed(self._scopes):
            if node.id in scope:
                return scope[node.id]
        raise self.error(node, f"undefined name '{node.id}'")

    def read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """`from autosched.script import tir as T`: nothing is imported, the prefix is noted."""
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").endswith(".script"):
            raise self.error(node, "a script can import the dialects only: from autosched.script import tir as T")
        for alias in node.names:
            if alias.name not in DIALECTS:
                raise self.error(node, f"unknown dialect '{alias.name}'")
            self.prefixes[alias.asname or alias.name] = DIALECTS[alias.name]

    def dialect_name(self, node: ast.AST) -> tuple[str, str] | None:
        """("T", "axis.spatial") for `T.axis.spatial`; None for what is not a name of a dialect."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in self.prefixes and not self.knows(node.id):
            return self.prefixes[node.id], ".".join(reversed(parts))
        return None

    def called(self, node: ast.AST, dialect: str) -> str:
        """The dialect's function that a call names, "" for anything else."""
        if isinstance(node, ast.Call):
            found = self.dialect_name(node.func)
            if found and found[0] == dialect:
                return found[1]
        return ""


def keywords(state: State, node: ast.Call, *allowed: str) -> dict[str, ast.expr]:
    """The keyword arguments of a call by name. Raises ScriptError for another one."""
    out: dict[str, ast.expr] = {}
    for word in node.keywords:
        if word.arg is None or (allowed and word.arg not in allowed):
            raise state.error(word, f"unexpected keyword '{word.arg}'; known: {', '.join(allowed)}")
        out[word.arg] = word.value
    return out


def arguments(state: State, node: ast.Call, *names: str, required: int = 0) -> dict[str, ast.expr]:
    """Positional and keyword arguments by name. Raises ScriptError for too many, unknown or missing ones."""
    if len(node.args) > len(names):
        raise state.error(node, f"expected at most {len(names)} arguments ({', '.join(names)}), got {len(node.args)}")
    out = dict(zip(names, node.args, strict=False))
    for name, value in keywords(state, node, *names).items():
        if name in out:
            raise state.error(value, f"argument '{name}' is given twice")
        out[name] = value
    for name in names[:required]:
        if name not in out:
            raise state.error(node, f"argument '{name}' is missing")
    return out
