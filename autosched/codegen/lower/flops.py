"""Counts the floating-point operations that a lowered function executes."""

from __future__ import annotations

from autosched.ir.node import Node, children, walk
from autosched.tir import expr as E
from autosched.tir.expr import const_int
from autosched.tir.stmt import BufferStore, For, IfThenElse, Stmt

_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max)


def count_flops(stmt: Stmt) -> int:
    """Additions, multiplications, divisions, comparisons and function calls on floats, each as one."""
    if isinstance(stmt, For):
        return (const_int(stmt.extent) or 1) * count_flops(stmt.body)
    if isinstance(stmt, IfThenElse):
        other = 0 if stmt.else_case is None else count_flops(stmt.else_case)
        return max(count_flops(stmt.then_case), other)
    if isinstance(stmt, BufferStore):
        return _in_expression(stmt.value)
    return sum(count_flops(c) for c in children(stmt) if isinstance(c, Stmt))


def _in_expression(value: Node) -> int:
    count = 0
    for node in walk(value):
        if isinstance(node, _ARITHMETIC) and E.is_float(node.dtype):
            count += 1
        elif isinstance(node, E.Call) and node.op not in ("if_then_else", "likely") and E.is_float(node.dtype):
            count += 2 if node.op == "fma" else 1
    return count
