"""The entry points: any node as text, a function with one node underlined."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from autosched.errors import InvalidValueError
from autosched.ir.module import GlobalVar, IRModule
from autosched.ir.node import Node
from autosched.script.printer import marks
from autosched.script.printer.context import Context
from autosched.script.printer.literals import attributes
from autosched.script.printer.names import legal
from autosched.script.printer.options import Options
from autosched.script.printer.tir_buffer import region
from autosched.script.printer.tir_expr import expr, is_expression
from autosched.script.printer.tir_func import write_prim_func
from autosched.script.printer.tir_stmt import MOST_NODES, StmtWriter
from autosched.tir.expr import PrimExpr
from autosched.tir.function import PrimFunc
from autosched.tir.share import bind_shared
from autosched.tir.stmt import BufferRegion, MatchBufferRegion, Stmt


def script(node: object, **options: object) -> str:
    """The text of a module, function, statement or expression; keywords as in `Options`.

    Modules and functions come with comment lines that say where the prefixes come from, and can be read back.
    Variables that nothing inside defines stand as their names. Raises TypeError for an unknown option.
    """
    chosen = Options.of(**options)
    try:
        return _text(node, chosen)
    except RecursionError:  # messages must not fail on what they are about
        return f"{type(node).__name__}(…)"


def _text(node: object, chosen: Options) -> str:
    ctx = Context(chosen)
    if isinstance(node, IRModule):
        from autosched.script.printer.script import write_module

        write_module(ctx, node)
        _add_header(ctx)
    elif isinstance(node, PrimFunc):
        write_prim_func(ctx, node, chosen.name)
        _add_header(ctx)
    elif isinstance(node, Stmt):
        StmtWriter(ctx).body(ctx, node)
    elif isinstance(node, BufferRegion | MatchBufferRegion):
        ctx.line(region(ctx, node if isinstance(node, BufferRegion) else node.source))
    elif isinstance(node, GlobalVar):
        ctx.line(repr(node))
    elif is_expression(node) or not _is_relax(node):
        ctx.line(expr(ctx, bind_shared(node, MOST_NODES) if isinstance(node, PrimExpr) else node))
    else:
        _write_relax(ctx, node)
    text = marks.render(ctx.lines, numbers=chosen.print_line_numbers, context=chosen.num_context_lines)
    return colourise(text, chosen.style) if chosen.style else text


def text_with_mark(func: object, node: Node, *, context: int = -1) -> str:
    """The text of a function (or statement) with a line of carets under `node`; for error messages.

    node     a loop, block, statement, expression, variable or buffer inside `func`; several marks where it occurs often
    context  how many lines around the mark to show; -1 for all
    """
    return script(func, obj_to_underline=(node,), num_context_lines=context)


def _is_relax(node: object) -> bool:
    return type(node).__module__.startswith("autosched.relax.")


def _write_relax(ctx: Context, node: object) -> None:
    from autosched.script.printer.relax_func import write_node

    if write_node(ctx, node):
        _add_header(ctx)


_SOURCES: dict[str, tuple[Callable[[Options], str], str]] = {
    "I": (lambda o: o.ir_prefix, "ir"),
    "T": (lambda o: o.tir_prefix, "tir"),
    "R": (lambda o: o.relax_prefix, "relax"),
}


def _add_header(ctx: Context) -> None:
    """Comment lines for the dialects that the text uses, and the constants' data or a note that it is left out."""
    if ctx.options.obj_to_underline:
        return  # a message shows the function alone
    header = [
        f"# from autosched.script import {module} as {prefix(ctx.options)}"
        for key, (prefix, module) in _SOURCES.items()
        if key in ctx.used
    ]
    if ctx.metadata:
        from autosched.script.printer.metadata import metadata_lines

        header += metadata_lines(ctx.metadata) if ctx.options.show_meta else [
            "", "# Metadata omitted. Use show_meta=True in script() method to show it.",
        ]  # fmt: skip
    ctx.lines[:0] = [*header, ""]


NAMED = {"light": "default", "dark": "monokai", "ansi": "default"}


def colourise(text: str, style: str) -> str:
    """`text` with ANSI colours; unchanged where pygments is not installed. Raises ValueError for an unknown style."""
    if importlib.util.find_spec("pygments") is None:
        return text
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.formatters import Terminal256Formatter  # type: ignore[import-untyped]
    from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        formatter = Terminal256Formatter(style=NAMED.get(style, style))
    except ClassNotFound as error:
        hint = f"use {', '.join(NAMED)} or a pygments style"
        raise InvalidValueError(f"unknown style '{style}'", hint=hint) from error
    return str(highlight(text, PythonLexer(stripnl=False, ensurenl=False), formatter))


def write_module(ctx: Context, module: IRModule) -> None:
    """Write the functions of a module as methods of a class: PrimFuncs, then others, each sorted by name."""
    ctx.module_name = legal(ctx.options.name or "Module")
    ctx.names.reserve(ctx.module_name)
    ctx.functions = _function_names(module)
    ctx.vdevices = tuple(module.global_infos.get("vdevice", ()))
    ctx.line(f"@{ctx.i('ir_module')}")
    ctx.line(f"class {ctx.module_name}:")
    with ctx.indented():
        if module.attrs:
            ctx.line(f"{ctx.i('module_attrs')}({attributes(ctx, module.attrs, expr)})")
        if module.global_infos:
            ctx.line(f"{ctx.i('module_global_infos')}({attributes(ctx, module.global_infos, expr)})")
        functions = sorted(module.functions_items(), key=lambda item: not isinstance(item[1], PrimFunc))
        for i, (gv, func) in enumerate(functions):
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
