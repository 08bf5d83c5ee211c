"""Counts the floating-point operations that a lowered function executes.

A store counts as often as its loops come to it: conditions on loop variables are counted out, so that the code for
full tiles and that for ragged ones are each counted for the tiles that run it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from autosched.ir.node import Node, children, preorder
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr, Var, as_int, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, statements
from autosched.tir.stmt import Block, BufferStore, For, IfThenElse, Stmt

_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max)
_NO_WORK = ("if_then_else", "likely", "reinterpret", "literal", "zero_point")
MOST_POINTS = 1 << 20  # combinations of loop variables that are tried out

_NUMPY: dict[type[E.PrimExpr], np.ufunc] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.FloorDiv: np.floor_divide, E.FloorMod: np.mod,
    E.Min: np.minimum, E.Max: np.maximum, E.LT: np.less, E.LE: np.less_equal, E.GT: np.greater,
    E.GE: np.greater_equal, E.EQ: np.equal, E.NE: np.not_equal, E.And: np.logical_and, E.Or: np.logical_or,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops around a statement (variable, start, extent) and the conditions that hold there, with their truth."""

    loops: tuple[tuple[Var, int, int], ...] = ()
    conditions: tuple[tuple[PrimExpr, bool], ...] = ()


def count_flops(stmt: Stmt) -> int:
    """Additions, multiplications, divisions, comparisons and function calls on floats, each as one."""
    return _count(stmt, _Around(), {})


def _count(stmt: Stmt, around: _Around, known: dict[Hashable, int | None]) -> int:
    if isinstance(stmt, For):
        start, extent = const_int(stmt.start) or 0, const_int(stmt.extent) or 1
        return _count(stmt.body, _Around((*around.loops, (stmt.loop_var, start, extent)), around.conditions), known)
    if isinstance(stmt, IfThenElse):
        cases = ((stmt.then_case, True), (stmt.else_case, False))
        counts = [
            _count(case, _Around(around.loops, (*around.conditions, (stmt.condition, truth))), known)
            for case, truth in cases
            if case is not None
        ]
        return max(counts) if _times(_with(around, stmt), known) is None else sum(counts)
    if isinstance(stmt, BufferStore):
        operations = _in_expression(stmt.value)
        times = _times(around, known) if operations else 0
        return operations * (math.prod(n for _, _, n in around.loops) if times is None else times)
    return sum(_count(c, around, known) for c in children(stmt) if isinstance(c, Stmt))


def _with(around: _Around, stmt: IfThenElse) -> _Around:
    return _Around(around.loops, (*around.conditions, (stmt.condition, True)))


def _times(around: _Around, known: dict[Hashable, int | None]) -> int | None:
    """How often the loops come where all the conditions hold; None where that cannot be counted out."""
    key = (tuple(v for v, _, _ in around.loops), tuple((id(c), truth) for c, truth in around.conditions))
    if key not in known:
        known[key] = _counted(around)
    return known[key]


def _counted(around: _Around) -> int | None:
    used = {v for c, _ in around.conditions for v in free_vars(c)}
    inside = [loop for loop in around.loops if loop[0] in used]
    free = math.prod(n for v, _, n in around.loops if v not in used)
    if len(inside) != len(used) or math.prod(n for _, _, n in inside) > MOST_POINTS:
        return None
    grids = np.meshgrid(*(np.arange(start, start + n) for _, start, n in inside), indexing="ij", sparse=True)
    values: dict[Var, np.ndarray] = {loop[0]: grid for loop, grid in zip(inside, grids, strict=True)}
    holds = np.ones([n for _, _, n in inside], bool)
    for condition, truth in around.conditions:
        value = evaluate_index(condition, values)
        if value is None:
            return None
        holds = holds & (np.asarray(value, bool) == truth)
    return int(np.count_nonzero(holds)) * free


def evaluate_index(e: PrimExpr, values: Mapping[Var, np.ndarray]) -> np.ndarray | int | None:
    """An integer expression over grids of its variables; None for one that is not made of plain arithmetic."""
    if isinstance(e, E.IntImm):
        return e.value
    if isinstance(e, Var):
        return values.get(e)
    if isinstance(e, E.Cast):
        return evaluate_index(e.value, values)
    if isinstance(e, E.Not):
        inner = evaluate_index(e.a, values)
        return None if inner is None else np.logical_not(inner)
    if isinstance(e, E.Call) and e.op == "likely":
        return evaluate_index(e.args[0], values)
    function = _NUMPY.get(type(e))
    if function is None or not isinstance(e, E.BinaryOp):
        return None
    a, b = evaluate_index(e.a, values), evaluate_index(e.b, values)
    return None if a is None or b is None else function(a, b)


def _in_expression(value: Node) -> int:
    count = 0
    for node in preorder(value):
        if isinstance(node, _ARITHMETIC) and is_float(node.dtype):
            count += 1
        elif isinstance(node, E.Call) and node.op not in _NO_WORK and is_float(node.dtype):
            count += 2 if node.op == "fma" else 1
    return count


@functools.lru_cache(maxsize=256)
def count_work(func: PrimFunc) -> int:
    """Floating-point operations of an unscheduled function as it is written: a multiply-add counts as two.

    This is what rates of direct and fast algorithms (Winograd) are compared by.
    """
    blocks = [x for x in statements(func.body) if isinstance(x, Block) and x.iter_vars]
    return sum(math.prod(as_int(iv.dom.extent) for iv in b.iter_vars) * count_flops(b.body) for b in blocks)


def symbolic_work(func: PrimFunc, scans: Collection[str] = ()) -> PrimExpr:
    """Floating-point operations of an unscheduled function over symbols, as `count_work` counts them.

    scans   names of blocks whose results follow from one another: what they reduce along counts once
    """
    total: PrimExpr = E.const(0, "int64")
    for block in (x for x in preorder(func.body) if isinstance(x, Block) and x.iter_vars):
        each: PrimExpr = E.const(count_flops(block.body), "int64")
        for iv in block.iter_vars:
            if iv.kind != REDUCE or block.name_hint not in scans:
                each = E.mul(each, iv.dom.extent)
        total = E.add(total, each)
    return total
