"""Functions that are marked for a library get their code from the function that is registered for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.errors import InvalidTypeError, UsageError
from autosched.ir.function import BaseFunc
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Call, Expr, Function, Tuple, Var
from autosched.relax.op.call import call_dps_packed
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import TupleStructInfo
from autosched.relax.transform.dead_code import remove_unused_functions
from autosched.runtime.registry import get_global_func, register_func


class _Caller(Rewriter):
    def __init__(self, symbols: Mapping[str, str]):
        super().__init__()
        self.symbols = symbols

    def call(self, call: Call, var: Var) -> Expr:
        if not isinstance(call.op, GlobalVar) or call.op.name not in self.symbols:
            return call
        info = call.struct_info
        out = list(info.fields) if isinstance(info, TupleStructInfo) else info
        return call_dps_packed(self.symbols[call.op.name], Tuple(call.args), out)


def _generator(library: str, name: str) -> Callable[..., object]:
    found = get_global_func(f"relax.ext.{library}", True)
    if found is None:
        raise UsageError(
            f"function '{name}' is for the library '{library}', for which there is no code generator",
            hint=f"register one as 'relax.ext.{library}', or leave out annotate_codegen: "
                 "what was fused is built like any other function",
        )  # fmt: skip
    return found


def _function_of(modules: Sequence[Any], symbol: str, library: str) -> Callable[..., object]:
    for module in modules:
        if isinstance(module, Mapping) and symbol in module:
            return module[symbol]  # type: ignore[no-any-return]
        if hasattr(module, "implements_function") and module.implements_function(symbol, True):
            return module.get_function(symbol, True)  # type: ignore[no-any-return]
    raise UsageError(f"'relax.ext.{library}' has made no function '{symbol}'")


def run_codegen(
    module: IRModule, target_options: Mapping[str, Mapping[str, object]], entry_functions: Sequence[str] | None
) -> IRModule:
    """Let the registered `relax.ext.<library>` make the functions with the attribute `Codegen`, and call those.

    It is called once for a library, with the functions, the library's options and names of constants, and gives a list
    of modules (or mappings) that have each function's `global_symbol`: called with the inputs, then the arrays of the
    results. They are registered under these names, so that whatever runs the module finds them.

    Raises UsageError where no generator is registered, or one has not made its function.
    """
    if entry_functions:
        module = remove_unused_functions(module, entry_functions)
    marked: dict[str, dict[GlobalVar, Function]] = {}
    for gv, function in module.functions_items():
        if isinstance(function, Function) and (library := function.attrs.get("Codegen")):
            marked.setdefault(str(library), {})[gv] = function
    if not marked:
        return module
    symbols: dict[str, str] = {}
    for library, functions in marked.items():
        generate = _generator(library, next(iter(functions)).name)
        modules = generate(list(functions.values()), dict(target_options.get(library, {})), {})
        if not isinstance(modules, list | tuple):
            raise InvalidTypeError(f"'relax.ext.{library}' gives a {type(modules).__name__}, no list of modules")
        for gv, function in functions.items():
            symbols[gv.name] = str(function.attrs.get("global_symbol", gv.name))
            register_func(symbols[gv.name], _function_of(modules, symbols[gv.name], library), override=True)
    kept: dict[GlobalVar, BaseFunc] = {
        gv: _Caller(symbols).rewrite(f) if isinstance(f, Function) else f
        for gv, f in module.functions.items() if gv.name not in symbols
    }  # fmt: skip
    return remove_unused_functions(module.with_functions(kept))


def RunCodegen(  # noqa: N802
    target_options: Mapping[str, Mapping[str, object]] | None = None, entry_functions: Sequence[str] | None = None
) -> Pass:
    """See `run_codegen`; `target_options` are by library."""
    return graph_pass("RunCodegen")(lambda module: run_codegen(module, target_options or {}, entry_functions))
