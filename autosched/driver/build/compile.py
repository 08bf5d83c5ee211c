"""From scheduled functions to kernels."""

from __future__ import annotations

from autosched.codegen.compile import Request, compile_funcs
from autosched.ir import IRModule
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.tir import PrimFunc
from autosched.tir.checked_index import CHECKED
from autosched.tir.serialize import to_json


def prim_funcs(module: IRModule) -> dict[str, PrimFunc]:
    """The functions of the loop level by name."""
    return {gv.name: f for gv, f in module.functions_items() if isinstance(f, PrimFunc)}


def with_checks(module: IRModule, checks: bool) -> IRModule:
    """The module whose kernels see that every access stays inside of its buffer, where `checks` says so."""
    if not checks:
        return module
    functions = {
        gv: f.with_attr(CHECKED, True) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()
    }
    return module.with_functions(functions)


def compile_functions(module: IRModule, target: Target) -> dict[str, Kernel]:
    """Compile every PrimFunc of the module, by name."""
    functions = prim_funcs(module)
    requests = [
        Request(f, name, str(f.attrs.get("autosched.trace", "")), str(f.attrs.get("autosched.config", "")))
        for name, f in functions.items()
    ]
    return {name: done.kernel for name, done in zip(functions, compile_funcs(requests, target), strict=True)}


def stored_functions(module: IRModule) -> dict[str, str]:
    """Every PrimFunc as JSON: what an artifact carries to be built again on another machine."""
    return {name: to_json(f) for name, f in prim_funcs(module).items()}
