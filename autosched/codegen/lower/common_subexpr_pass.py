"""Index arithmetic that stands several times below a loop is computed once."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from autosched.errors import CodegenError
from autosched.ir.node import Node, children, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, rewrite_down
from autosched.tir.simplify import form_key
from autosched.tir.stmt import Allocate, Block, BlockRealize, For, LetStmt, Stmt

if TYPE_CHECKING:
    from autosched.ir.node import Node


def share_expressions(func: PrimFunc) -> PrimFunc:
    """Bind integer arithmetic that a loop's body holds more than once to a variable. Raises CodegenError on blocks.

    A[i * 8 + j] = B[i * 8 + j]   ->   cse_v = i * 8 + j
                                       A[cse_v] = B[cse_v]
    """
    if any(isinstance(x, BlockRealize) for x in preorder(func.body)):
        raise CodegenError("CommonSubexprElimTIR takes functions without blocks", hint="LowerOpaqueBlock comes first")
    names = iter(f"cse_v{n}" for n in range(1, 1 << 30))
    return func.with_body(_shared(func.body, names))


def _shared(stmt: Stmt, names: Iterator[str]) -> Stmt:
    """A statement below which every repeated expression over outer variables is bound once, outermost first."""
    bound = _bound_inside(stmt)
    while (found := _most_repeated(stmt, bound)) is not None:
        key, value = found
        var = Var(next(names), value.dtype)

        def step(x: object, key: object = key, var: Var = var) -> object:
            return var if isinstance(x, PrimExpr) and _is_arithmetic(x) and form_key(x) == key else None

        stmt = LetStmt(var, value, rewrite_down(stmt, step))
    return _below(stmt, names)


def _below(stmt: Stmt, names: Iterator[str]) -> Stmt:
    """The statement with the same done in the bodies of its loops."""
    if isinstance(stmt, For):
        return dataclasses.replace(stmt, body=_shared(stmt.body, names))
    return map_children(stmt, lambda c: _below(c, names) if isinstance(c, Stmt) else c)


def _bound_inside(stmt: Stmt) -> set[Var]:
    found: set[Var] = set()
    for x in preorder(stmt):
        if isinstance(x, For):
            found.add(x.loop_var)
        elif isinstance(x, LetStmt | E.Let):
            found.add(x.var)
    return found


def _is_arithmetic(x: PrimExpr) -> bool:
    """Integer arithmetic without memory and calls, of which there is something to save."""
    arithmetic = isinstance(x, E.BinaryOp) and not isinstance(x, E.CmpOp) and is_int(x.dtype)
    return arithmetic and not any(isinstance(n, BufferLoad | E.Call | E.Let) or _may_fail(n) for n in preorder(x))


def _may_fail(x: object) -> bool:
    """A division whose divisor is not known: a condition around it may keep zero away."""
    return isinstance(x, E.Div | E.Mod | E.FloorDiv | E.FloorMod) and not E.const_int(x.b)


def _most_repeated(stmt: Stmt, bound: set[Var]) -> tuple[Hashable, PrimExpr] | None:
    """The largest expression over variables from outside that stands at least twice below, and its key."""
    counts: dict[Hashable, tuple[int, PrimExpr]] = {}
    stack: list[Node] = [stmt]
    while stack:
        x = stack.pop()
        if isinstance(x, Buffer | Block):
            continue
        if isinstance(x, PrimExpr) and _is_arithmetic(x) and not free_vars(x) & bound:
            key = form_key(x)
            counts[key] = (counts.get(key, (0, x))[0] + 1, x)
        stack += children(x) if not isinstance(x, Allocate) else [x.body]
    repeated = [(sum(1 for _ in preorder(x)), key, x) for key, (count, x) in counts.items() if count > 1]
    if not repeated:
        return None
    _, key, value = max(repeated, key=lambda item: item[0])
    return key, value
