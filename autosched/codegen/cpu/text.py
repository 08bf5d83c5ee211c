"""Lowered loops as text: as Python expressions in generated source, and as comments that show a tile's loop nest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
)  # fmt: skip

_INFIX: dict[type, tuple[str, int]] = {
    E.Or: ("or", 1), E.And: ("and", 2),
    E.EQ: ("==", 4), E.NE: ("!=", 4), E.LT: ("<", 4), E.LE: ("<=", 4), E.GT: (">", 4), E.GE: (">=", 4),
    E.Add: ("+", 5), E.Sub: ("-", 5), E.Mul: ("*", 6), E.Div: ("/", 6), E.FloorDiv: ("//", 6), E.FloorMod: ("%", 6),
    E.Mod: ("rem", 6),
}  # fmt: skip

Names = Mapping[Var, str]


def show(e: PrimExpr, names: Names | None = None, outer: int = 0) -> str:
    """The expression with Python's operators; variables by the given names or their own."""
    kind = _INFIX.get(type(e))
    if kind is not None and isinstance(e, E.BinaryOp):
        op, level = kind
        text = f"{show(e.a, names, level)} {op} {show(e.b, names, level + 1)}"
        return f"({text})" if level < outer else text
    match e:
        case Var():
            return names[e] if names is not None and e in names else e.name
        case E.IntImm():
            return str(bool(e.value)) if e.dtype == "bool" else str(e.value)
        case E.FloatImm():
            return f"{e.value:.9g}"
        case E.Min() | E.Max():
            return f"{'min' if isinstance(e, E.Min) else 'max'}({show(e.a, names)}, {show(e.b, names)})"
        case BufferLoad():
            return f"{e.buffer.name}[{', '.join(show(i, names) for i in e.indices)}]"
        case E.Not():
            return f"not {show(e.a, names, 7)}"
        case E.Cast():
            return f"{e.dtype}({show(e.value, names)})"
        case E.Select():
            c, a, b = (show(x, names, 1) for x in (e.condition, e.true_value, e.false_value))
            return f"({a} if {c} else {b})"
        case E.Call(op="if_then_else"):
            c, a, b = (show(x, names, 1) for x in e.args)
            return f"({a} if {c} else {b})"
        case E.StringImm():
            return repr(e.value)
        case E.Call(op="tvm_storage_sync"):
            return "syncthreads()"
        case E.Call():
            return f"{e.op}({', '.join(show(a, names) for a in e.args)})"
        case E.Let():
            return f"(let {e.var.name} = {show(e.value, names)} in {show(e.body, names)})"
    return type(e).__name__


def loop_lines(stmt: Stmt, depth: int = 0) -> Iterator[str]:
    """The statement as indented lines of pseudo-code."""
    pad = "    " * depth
    match stmt:
        case SeqStmt():
            for s in stmt.seq:
                yield from loop_lines(s, depth)
        case For():
            yield from _loop(stmt, depth)
        case IfThenElse():
            yield f"{pad}if {show(stmt.condition)}:"
            yield from loop_lines(stmt.then_case, depth + 1)
            if stmt.else_case is not None:
                yield f"{pad}else:"
                yield from loop_lines(stmt.else_case, depth + 1)
        case BufferStore():
            target = f"{stmt.buffer.name}[{', '.join(map(show, stmt.indices))}]"
            yield f"{pad}{target} = {show(stmt.value)}"
        case Allocate():
            sizes = ", ".join(str(const_int(s)) for s in stmt.buffer.shape)
            where = "registers" if stmt.buffer.scope == "local" else "scratch"
            yield f"{pad}{stmt.buffer.name} = {where}[{sizes}]"
            yield from loop_lines(stmt.body, depth)
        case LetStmt():
            yield f"{pad}{stmt.var.name} = {show(stmt.value)}"
            yield from loop_lines(stmt.body, depth)
        case AssertStmt():
            yield from loop_lines(stmt.body, depth)
        case Evaluate():
            yield f"{pad}{show(stmt.value)}"


def _loop(loop: For, depth: int) -> Iterator[str]:
    start, extent = const_int(loop.start), const_int(loop.extent)
    if start == 0:
        bounds = show(loop.extent)
    elif start is not None and extent is not None:
        bounds = f"{start}, {start + extent}"
    else:
        bounds = f"{show(loop.start)}, {show(loop.start, None, 5)} + {show(loop.extent, None, 6)}"
    word = {LoopKind.VECTORIZED: "vector", LoopKind.UNROLLED: "unroll"}.get(loop.kind, "range")
    head = f"{'    ' * depth}for {loop.loop_var.name} in {word}({bounds}):"
    inner = list(loop_lines(loop.body, depth + 1))
    if len(inner) == 1 and len(head) + len(inner[0].strip()) < 100 and not inner[0].lstrip().startswith("for "):
        yield f"{head} {inner[0].strip()}"
    else:
        yield head
        yield from inner
