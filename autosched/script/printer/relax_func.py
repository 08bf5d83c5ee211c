"""Functions of the graph level as text."""

from __future__ import annotations

from autosched.ir.module import GlobalVar
from autosched.ir.node import Node, preorder
from autosched.relax import expr as R
from autosched.relax.struct_info import StructInfo
from autosched.script.printer.context import Context
from autosched.script.printer.names import legal
from autosched.script.printer.relax_expr import STATED, relax_attributes, relax_expr, var_name
from autosched.script.printer.relax_info import struct_info, symbols
from autosched.tir.expr import SizeVar


def write_node(ctx: Context, node: object) -> bool:
    """Write any node of the graph level; whether it was a function, which gets a header."""
    match node:
        case R.Function():
            write_function(ctx, node, ctx.options.name)
            return True
        case R.VarBinding() | R.MatchCast():
            _write_binding(ctx, node)
        case R.BindingBlock():
            _write_block(ctx, node)
        case R.SeqExpr():
            _write_seq(ctx, node)
            ctx.line(relax_expr(ctx, node.body))
        case _:
            ctx.line(relax_expr(ctx, node))
    return False


def write_function(ctx: Context, func: R.Function, name: str | None = None) -> None:
    """Write a function called `name`, or what its `global_symbol` says, or "main"."""
    symbol = func.attrs.get("global_symbol")
    name = name or (symbol if isinstance(symbol, str) else "main")
    attrs = {k: v for k, v in func.attrs.items() if not (k == "global_symbol" and v == name)}
    _write_decorator(ctx, func, private=symbol is None)
    outer, ctx.declared = ctx.declared, set(ctx.declared) if ctx.depth > 1 else set()
    with ctx.names.frame():
        for p in func.params:
            ctx.names.define(p, p.name)
        for var in (v for p in func.params for v in symbols(p.struct_info)):
            ctx.names.define(var, var.name)
        params = ", ".join(_param(ctx, p) for p in func.params)
        result = f" -> {struct_info(ctx, func.ret_struct_info)}" if func.ret_struct_info is not None else ""
        ctx.line(f"def {legal(name)}({params}){result}:", func)
        with ctx.indented():
            for p in func.params:
                _declare(ctx, p.struct_info)
            if attrs:
                ctx.line(f"{ctx.r('func_attr')}({relax_attributes(ctx, attrs)})")
            if ctx.module_name and any(isinstance(x, GlobalVar) for x in preorder(func.body)):
                ctx.line(f"{ctx.options.module_alias} = {ctx.module_name}")
            _write_seq(ctx, func.body)
            ctx.line(f"return {relax_expr(ctx, _result(func.body))}")
    ctx.declared = outer


def _write_decorator(ctx: Context, func: R.Function, *, private: bool) -> None:
    words = [*(["private=True"] if private else []), *([] if func.is_pure else ["pure=False"])]
    ctx.line(f"@{ctx.r('function')}{'(' + ', '.join(words) + ')' if words else ''}")


def _param(ctx: Context, param: R.Var) -> str:
    annotation = f": {struct_info(ctx, param.struct_info)}" if param.struct_info is not None else ""
    return f"{var_name(ctx, param)}{annotation}"


def _declare(ctx: Context, info: StructInfo | None) -> None:
    """Write `n = T.int64()` for symbols that are new here."""
    for var in symbols(info):
        if id(var) not in ctx.declared:
            size = "is_size_var=True" if isinstance(var, SizeVar) else ""
            ctx.line(f"{ctx.names.define(var, var.name)} = {ctx.t(var.dtype)}({size})")
            ctx.declared.add(id(var))


def _result(body: object) -> object:
    return body.body if isinstance(body, R.SeqExpr) else body


def _write_seq(ctx: Context, body: object) -> None:
    for block in body.blocks if isinstance(body, R.SeqExpr) else ():
        _write_block(ctx, block)


def _write_block(ctx: Context, block: R.BindingBlock) -> None:
    if not isinstance(block, R.DataflowBlock):
        for binding in block.bindings:
            _write_binding(ctx, binding)
        return
    ctx.line(f"with {ctx.r('dataflow')}():", block)
    with ctx.indented(frame=False):
        for binding in block.bindings:
            _write_binding(ctx, binding)
        outputs = [var_name(ctx, b.var) for b in block.bindings if not isinstance(b.var, R.DataflowVar)]
        ctx.line(f"{ctx.r('output')}({', '.join(outputs)})")


def _write_binding(ctx: Context, binding: R.Binding) -> None:
    var, value = binding.var, binding.value
    if isinstance(binding, R.MatchCast):
        source = relax_expr(ctx, value)
        _declare(ctx, binding.struct_info)
        text = f"{ctx.r('match_cast')}({source}, {struct_info(ctx, binding.struct_info)})"
        _assign(ctx, var, text, binding)
    elif isinstance(value, R.If):
        _write_if(ctx, var, value)
    elif isinstance(value, R.Function):
        ctx.names.define(var, var.name)
        write_function(ctx, value, ctx.names.find(var))
    else:
        stated = isinstance(value, R.Call) and value.op_name in STATED
        text = relax_expr(ctx, value)
        if isinstance(value, R.Tuple) and len(value.fields) > 1:
            text = text[1:-1]  # TVM writes `a, b` behind an equals sign, and `(a, b)` elsewhere
        _assign(ctx, var, text, binding, annotated=not stated and ctx.options.show_all_ty)


def _assign(ctx: Context, var: R.Var, value: str, binding: Node, *, annotated: bool = True) -> None:
    ctx.names.define(var, var.name)
    annotation = f": {struct_info(ctx, var.struct_info)}" if annotated and var.struct_info is not None else ""
    ctx.line(f"{var_name(ctx, var)}{annotation} = {value}", binding)


def _write_if(ctx: Context, var: R.Var, value: R.If) -> None:
    """Both branches end by binding the same name."""
    ctx.line(f"if {relax_expr(ctx, value.cond)}:", value)
    ctx.names.define(var, var.name)
    for branch in (value.true_branch, value.false_branch):
        if branch is value.false_branch:
            ctx.line("else:")
        with ctx.indented():
            _write_seq(ctx, branch)
            _assign(ctx, var, relax_expr(ctx, _result(branch)), branch)
