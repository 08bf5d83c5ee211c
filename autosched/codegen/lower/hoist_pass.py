"""Conditions and values that do not depend on a loop move out of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite, uses
from autosched.tir.stmt import Block, BufferStore, For, IfThenElse, LetStmt, Stmt


def hoist_conditions(func: PrimFunc) -> PrimFunc:
    """Move conditions out of the loops that they do not depend on.

    for i in 8:
        if n < 3: A[i] = 0      ->  if n < 3:
                                        for i in 8: A[i] = 0
    """
    return func.with_body(rewrite(func.body, _condition_out))


def hoist_expressions(func: PrimFunc) -> PrimFunc:
    """Move conditions and let-bound values out of the loops that they do not depend on."""

    def step(x: object) -> object:
        moved = _let_out(x)
        return _condition_out(moved) if moved is x else moved

    return func.with_body(rewrite(func.body, step))


def _condition_out(x: object) -> Any:
    match x:
        case For(body=IfThenElse() as branch) if _is_fixed(branch.condition, x):
            then = _condition_out(dataclasses.replace(x, body=branch.then_case))
            other = branch.else_case
            return IfThenElse(branch.condition, then, None if other is None else _again(x, other))
    return x


def _let_out(x: object) -> Any:
    match x:
        case For(body=LetStmt() as let) if _is_fixed(let.value, x):
            inner = dataclasses.replace(x, body=let.body)
            return dataclasses.replace(let, body=_let_out(inner))
    return x


def _again(loop: For, body: Stmt) -> For:
    """The loop around another body, over a variable of its own."""
    var = Var(loop.loop_var.name, loop.loop_var.dtype)
    renamed = rewrite(body, lambda x: var if x is loop.loop_var else x)
    return dataclasses.replace(loop, loop_var=var, body=renamed)


def _is_fixed(value: PrimExpr, loop: For) -> bool:
    """Whether a value is the same in all iterations: it reads no memory that they write, and not the loop variable."""
    if uses(value, {loop.loop_var}) or any(isinstance(x, E.Call) for x in preorder(value)):
        return False
    read = {x.buffer for x in preorder(value) if isinstance(x, BufferLoad)}
    written = {x.buffer for x in preorder(loop.body) if isinstance(x, BufferStore)}
    inside = {b for x in preorder(loop.body) if isinstance(x, Block) for b in x.alloc_buffers}
    return not read & (written | inside)
