"""Scalar expressions as text, with parentheses only where precedence needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.ir.node import Node
from autosched.script.intrinsics import RESULT_LIKE
from autosched.script.printer.context import Context
from autosched.script.printer.literals import float_constant, int_constant, string
from autosched.tir import expr as E
from autosched.tir import ptx
from autosched.tir.axis import IterVar, Range, Reduce
from autosched.tir.buffer import Buffer, BufferData, BufferLoad, ProducerLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import PrimExpr, Var

# how tightly an expression binds; a larger one needs no parentheses inside a smaller one
OR, AND, NOT, COMPARE, SUM, PRODUCT, UNARY, ATOM = range(8)

INFIX: dict[type, tuple[str, int]] = {
    E.Or: ("or", OR), E.And: ("and", AND),
    E.EQ: ("==", COMPARE), E.NE: ("!=", COMPARE), E.LT: ("<", COMPARE), E.LE: ("<=", COMPARE),
    E.GT: (">", COMPARE), E.GE: (">=", COMPARE),
    E.Add: ("+", SUM), E.Sub: ("-", SUM),
    E.Mul: ("*", PRODUCT), E.Div: ("/", PRODUCT), E.FloorDiv: ("//", PRODUCT), E.FloorMod: ("%", PRODUCT),
}  # fmt: skip
FUNCTIONS: dict[type, str] = {E.Min: "min", E.Max: "max", E.Mod: "truncmod"}


def dtype_of(e: object) -> str:
    """The expression's dtype; "void" where a part of it is missing, since error messages print such parts too."""
    return str(getattr(e, "dtype", "void"))


def name_of(ctx: Context, node: Var | Buffer) -> str:
    """A variable's or buffer's name; one that nothing has defined gets its name here."""
    found = ctx.names.find(node)
    return ctx.marked(node, found if found is not None else ctx.names.define(node, node.name, outermost=True))


def expr(ctx: Context, e: object, at_least: int = OR) -> str:
    """The text of an expression, in parentheses where it binds less tightly than `at_least`."""
    text, binding = _text(ctx, e)
    if binding < at_least:
        text = f"({text})"
    return ctx.marked(e, text) if isinstance(e, Node) and not isinstance(e, Var) else text


def exprs(ctx: Context, items: tuple[object, ...]) -> str:
    """Expressions separated by commas."""
    return ", ".join(expr(ctx, e) for e in items)


def _text(ctx: Context, e: object) -> tuple[str, int]:
    printer = _PRINTERS.get(type(e))
    if printer is not None:
        return printer(ctx, e)
    if isinstance(e, Var):
        return name_of(ctx, e), ATOM
    if isinstance(e, E.BinaryOp):
        return _binary(ctx, e)
    if isinstance(e, bool | int | float):
        return repr(e), ATOM
    return f"{ctx.t('unknown')}({string(object.__repr__(e))})", ATOM


def _binary(ctx: Context, e: E.BinaryOp) -> tuple[str, int]:
    kind = type(e)
    both_constant = isinstance(e.a, E.IntImm | E.FloatImm) and isinstance(e.b, E.IntImm | E.FloatImm)
    if kind is E.Div and is_int(dtype_of(e.a)):
        return f"{ctx.t('Div')}({exprs(ctx, (e.a, e.b))})", ATOM
    if kind in FUNCTIONS:
        return f"{ctx.t(FUNCTIONS[kind])}({exprs(ctx, (e.a, e.b))})", ATOM
    if kind not in INFIX or both_constant or not ctx.options.syntax_sugar:  # Python would fold two constants
        return f"{ctx.t(kind.__name__)}({exprs(ctx, (e.a, e.b))})", ATOM
    sign, binding = INFIX[kind]
    left = expr(ctx, e.a, binding + (binding == COMPARE))  # comparisons do not chain, the others associate to the left
    return f"{left} {sign} {expr(ctx, e.b, binding + 1)}", binding


def _int(ctx: Context, e: E.IntImm) -> tuple[str, int]:
    text = int_constant(ctx, e.value, e.dtype)
    return text, UNARY if text.startswith("-") else ATOM


def _float(ctx: Context, e: E.FloatImm) -> tuple[str, int]:
    text = float_constant(ctx, e.value, e.dtype)
    return text, UNARY if text.startswith("-") else ATOM


def _string(ctx: Context, e: E.StringImm) -> tuple[str, int]:
    return string(e.value), ATOM


def _not(ctx: Context, e: E.Not) -> tuple[str, int]:
    return f"not {expr(ctx, e.a, NOT)}", NOT


def _select(ctx: Context, e: E.Select) -> tuple[str, int]:
    return f"{ctx.t('Select')}({exprs(ctx, (e.condition, e.true_value, e.false_value))})", ATOM


def _cast(ctx: Context, e: E.Cast) -> tuple[str, int]:
    return f"{ctx.t('Cast')}({string(e.dtype)}, {expr(ctx, e.value)})", ATOM


def _call(ctx: Context, e: E.Call) -> tuple[str, int]:
    like = RESULT_LIKE.get(e.op)
    if like is not None and len(e.args) > max(like, 0):
        implied = "bool" if like < 0 else dtype_of(e.args[like])
        if implied == e.dtype:
            return f"{ctx.t(e.op)}({exprs(ctx, e.args)})", ATOM
    if e.op in ("call_extern", "call_pure_extern"):
        return f"{ctx.t(e.op)}({', '.join([string(e.dtype), *(expr(ctx, a) for a in e.args)])})", ATOM
    if e.op in ptx.FUNCTIONS:
        first = [string(e.dtype)] if e.op in ptx.TYPED else []
        return f"{ctx.t(e.op)}({', '.join([*first, *(expr(ctx, a) for a in e.args)])})", ATOM
    items = [string(e.dtype), string(f"tir.{e.op}"), *(expr(ctx, a) for a in e.args)]
    return f"{ctx.t('call_intrin')}({', '.join(items)})", ATOM


def _let(ctx: Context, e: E.Let) -> tuple[str, int]:
    value = expr(ctx, e.value)
    with ctx.names.frame():
        name = ctx.names.define(e.var, e.var.name)
        return f"{ctx.t('Let')}({expr(ctx, e.body)}, where={{{name}: {value}}})", ATOM


def access(ctx: Context, buffer: Buffer, indices: tuple[object, ...]) -> str:
    """`A[i, j]`; `A[()]` without dimensions."""
    return f"{name_of(ctx, buffer)}[{exprs(ctx, indices) or '()'}]"


def _load(ctx: Context, e: BufferLoad) -> tuple[str, int]:
    return access(ctx, e.buffer, e.indices), ATOM


def _producer_load(ctx: Context, e: ProducerLoad) -> tuple[str, int]:
    return f"{getattr(e.producer, 'name', 'producer')}[{exprs(ctx, e.indices) or '()'}]", ATOM


def _reduce(ctx: Context, e: Reduce) -> tuple[str, int]:
    """A te reduction, for reading: it never stands in a PrimFunc."""
    with ctx.names.frame():
        left = [ctx.names.define(v, v.name) for v in e.combiner.lhs]
        right = [ctx.names.define(v, v.name) for v in e.combiner.rhs]
        combine = f"lambda {', '.join(left + right)}: {exprs(ctx, e.combiner.result)}"
    parts = [combine, exprs(ctx, e.source), f"axis=[{', '.join(name_of(ctx, a.var) for a in e.axis)}]"]
    if E.const_int(e.condition) != 1:
        parts.append(f"where={expr(ctx, e.condition)}")
    if e.init:
        parts.append(f"init=[{exprs(ctx, e.init)}]")
    return f"{ctx.t('reduce')}({', '.join(parts)})", ATOM


def _iter_var(ctx: Context, e: IterVar) -> tuple[str, int]:
    return name_of(ctx, e.var), ATOM


def _range(ctx: Context, r: Range) -> tuple[str, int]:
    return f"{ctx.t('Range')}({expr(ctx, r.min)}, {expr(ctx, E.add(r.min, r.extent))})", ATOM


def _buffer(ctx: Context, b: Buffer) -> tuple[str, int]:
    return name_of(ctx, b), ATOM


def _data(ctx: Context, e: BufferData) -> tuple[str, int]:
    return f"{name_of(ctx, e.buffer)}.data", ATOM


def is_expression(node: object) -> bool:
    """Whether `expr` knows the node."""
    return isinstance(node, PrimExpr) or type(node) in _PRINTERS


_PRINTERS: dict[type, Callable[[Context, Any], tuple[str, int]]] = {
    E.IntImm: _int, E.FloatImm: _float, E.StringImm: _string, E.Not: _not, E.Select: _select, E.Cast: _cast,
    BufferData: _data, E.Call: _call, E.Let: _let, BufferLoad: _load, ProducerLoad: _producer_load,
    Reduce: _reduce,
    IterVar: _iter_var, Range: _range, Buffer: _buffer,
}  # fmt: skip
