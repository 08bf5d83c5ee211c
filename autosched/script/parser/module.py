"""The entry point of the parser: a module or a function from text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import AutoschedError, InvalidTypeError, ScriptError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Attrs
from autosched.script.parser import values
from autosched.script.parser.source import Source
from autosched.script.parser.state import Meaning, State, arguments
from autosched.script.parser.tir_func import read_prim_func
from autosched.script.printer.metadata import load_json
from autosched.tir.function import PrimFunc
from autosched.tir.verify import verify as tir_verify

ModuleOrFunction: TypeAlias = Any  # an IRModule, a PrimFunc or a relax Function: the text says which


def from_source(
    text: str, extra_vars: Mapping[str, object] | None = None, check_well_formed: bool = True
) -> ModuleOrFunction:
    """The module or function that the text describes; what the printer wrote comes back structurally equal.

    extra_vars         Python values, variables and buffers that the text may name
    check_well_formed  also verify the result as the passes do
    returns            an IRModule for a class, a PrimFunc or relax Function for a function
    Raises ScriptError (a ValueError) showing the line with a caret. Nothing in the text is executed.
    """
    if not isinstance(text, str):
        raise InvalidTypeError(f"from_source takes a text, not {type(text).__name__}")
    source = Source.of(text)
    return read_checked(source, extra_vars or {}) if check_well_formed else read(source, extra_vars or {})


def read_checked(source: Source, extra_vars: Mapping[str, object]) -> ModuleOrFunction:
    """The module or function in a source, verified. Raises ScriptError."""
    result = read(source, extra_vars)
    try:
        check(result, source)
    except RecursionError:
        raise _too_deep(source) from None
    return result


def _too_deep(source: Source) -> ScriptError:
    return ScriptError(f"{source.file}: the text is nested too deeply to be read")


def read(source: Source, extra_vars: Mapping[str, Meaning]) -> ModuleOrFunction:
    """The module or function in a source, not verified. Raises ScriptError."""
    try:
        return _read(source, extra_vars)
    except RecursionError:
        raise _too_deep(source) from None


def _read(source: Source, extra_vars: Mapping[str, object]) -> ModuleOrFunction:
    state = State(source, extra_vars)
    state.read_function = read_function
    found = None
    for node in source.tree().body:
        match node:
            case ast.Import() | ast.ImportFrom():
                state.read_import(node)
            case ast.Assign(targets=[ast.Name(id="metadata")], value=ast.Call(args=[ast.Constant(value=str(data))])):
                state.metadata = _metadata(state, node, data)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="TypeVar"))):
                state.symbols.append(name)
            case ast.ClassDef() | ast.FunctionDef() if found is None:
                found = _read_module(state, node) if isinstance(node, ast.ClassDef) else read_function(state, node)
            case _:
                raise state.error(node, "expected one class under @I.ir_module or one function")
    if found is None:
        raise source.error(None, "the text has no class and no function")
    return found


def _metadata(state: State, node: ast.AST, data: str) -> Mapping[str, Sequence[np.ndarray]]:
    try:
        return load_json(data)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise state.error(node, f"the metadata is malformed: {error}") from error


def _read_module(state: State, node: ast.ClassDef) -> IRModule:
    """A class: all names first, since functions may refer to later ones."""
    state.module_names.add(node.name)
    functions = [f for f in node.body if isinstance(f, ast.FunctionDef)]
    for f in functions:
        if f.name in state.functions:
            raise state.error(f, f"function '{f.name}' is defined twice")
        state.functions[f.name] = GlobalVar(f.name)
    attrs: Attrs = {}
    infos: Attrs = {}
    for line in node.body:
        called = state.called(line.value, "I") if isinstance(line, ast.Expr) else ""
        if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) and called == "module_attrs":
            attrs = values.attributes(state, arguments(state, line.value, "attrs", required=1)["attrs"])
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) and called == "module_global_infos":
            infos = values.attributes(state, arguments(state, line.value, "infos", required=1)["infos"])
        elif not isinstance(line, ast.FunctionDef | ast.Pass) and not _is_docstring(line):
            raise state.error(line, "a module holds functions, I.module_attrs and I.module_global_infos")
    state.vdevices = tuple(infos.get("vdevice", ()))
    for f in functions:
        _declare(state, f)
    read = {}
    for f in functions:
        function = read[state.functions[f.name]] = read_function(state, f)
        if f.name not in state.signatures and not isinstance(function, PrimFunc):  # it said no result: it has one now
            params: tuple[Any, ...] = getattr(function, "params", ())
            state.signatures[f.name] = tuple(p.struct_info for p in params), getattr(function, "ret_struct_info", None)
    module = IRModule(read, attrs, infos)
    if all(isinstance(f, PrimFunc) for f in module.functions.values()):
        return module
    from autosched.relax.transform.infer_types import infer_types

    return infer_types(module)  # calls of functions that the text defines later


def _declare(state: State, node: ast.FunctionDef) -> None:
    """Note what a graph function says of its parameters and result, for calls that the text has before it."""
    for decorator in node.decorator_list:
        found = state.dialect_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if found == ("R", "function") and node.returns is not None:
            from autosched.script.parser.relax_func import read_signature

            with state.function_scope():
                state.signatures[node.name] = read_signature(state, node)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def read_function(state: State, node: ast.FunctionDef) -> BaseFunc:
    """A function by its decorator: `@T.prim_func`, `@R.function`, perhaps with keywords."""
    for decorator in node.decorator_list:
        found = state.dialect_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        words = {w.arg: w.value for w in decorator.keywords} if isinstance(decorator, ast.Call) else {}
        private = "private" in words and values.truth(state, words["private"])
        if found == ("T", "prim_func"):
            with state.function_scope():
                return read_prim_func(state, node, private=private)
        if found == ("R", "function"):
            from autosched.script.parser.relax_func import read_relax_function

            pure = "pure" not in words or values.truth(state, words["pure"])
            with state.function_scope():
                return read_relax_function(state, node, private=private, pure=pure)
    raise state.error(node, f"function '{node.name}' needs the decorator @T.prim_func or @R.function")


def check(result: ModuleOrFunction, source: Source) -> None:
    """Verify every function. Raises ScriptError at the statement that breaks a rule, or at the function."""
    module = result if isinstance(result, IRModule) else IRModule.from_expr(result)
    prim_funcs = [(gv.name, f) for gv, f in module.functions_items() if isinstance(f, PrimFunc)]
    for name, func in prim_funcs:
        with _shown(source, name):
            tir_verify(func)
    if len(prim_funcs) < len(module):
        from autosched.relax.verify import verify as relax_verify

        with _shown(source, ""):
            relax_verify(module)


@contextmanager
def _shown(source: Source, function: str) -> Iterator[None]:
    """What the verifier finds inside becomes an error at its statement."""
    try:
        yield
    except ScriptError:
        raise
    except AutoschedError as error:
        node = getattr(error, "node", None)
        place = source.place_of(node) or source.starting_at(getattr(node, "span", None)) or source.function(function)
        raise source.error(place, error.line) from error
