"""A module as text: a class of functions."""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.script.printer.context import Context
from autosched.script.printer.literals import attributes
from autosched.script.printer.names import legal
from autosched.script.printer.tir_expr import expr
from autosched.script.printer.tir_func import write_prim_func
from autosched.tir.function import PrimFunc


def write_module(ctx: Context, module: IRModule) -> None:
    """Write the functions of a module, sorted by name, as methods of a class."""
    ctx.module_name = legal(ctx.options.name or "Module")
    ctx.names.reserve(ctx.module_name)
    ctx.functions = _function_names(module)
    ctx.line(f"@{ctx.i('ir_module')}")
    ctx.line(f"class {ctx.module_name}:")
    with ctx.indented():
        if module.attrs:
            ctx.line(f"{ctx.i('module_attrs')}({attributes(ctx, module.attrs, expr)})")
        if module.global_infos:
            ctx.line(f"{ctx.i('module_global_infos')}({attributes(ctx, module.global_infos, expr)})")
        for i, (gv, func) in enumerate(module.functions_items()):
            if i:
                ctx.line("")
            name = ctx.functions[gv.name]
            if isinstance(func, PrimFunc):
                write_prim_func(ctx, func, name)
            else:
                from autosched.script.printer.relax_func import write_function

                write_function(ctx, func, name)
        if not (len(module) or module.attrs or module.global_infos):
            ctx.line("pass")


def _function_names(module: IRModule) -> dict[str, str]:
    """Name -> printed name: legal identifiers, clashes numbered."""
    names: dict[str, str] = {}
    for gv in module.get_global_vars():
        base = printed = legal(gv.name)
        n = 0
        while printed in names.values():
            n += 1
            printed = f"{base}_{n}"
        names[gv.name] = printed
    return names
