"""Turns virtual threads into unrolled loops around the statements that use them.

Before:  for vy in vthread(2): for k in 8: (A_shared[…] = …), (C[vy * 16 + i] = …)
After:   for k in 8: (A_shared[…] = …), (for vy in unroll(2): C[vy * 16 + i] = …)
What does not depend on the virtual thread runs once. Statements keep their order, so that barriers stand between them.
"""

from __future__ import annotations

import dataclasses

from autosched.ir.node import map_children
from autosched.tir.functor import uses
from autosched.tir.stmt import For, IfThenElse, LoopKind, SeqStmt, Stmt


def lower_vthreads(stmt: Stmt) -> Stmt:
    """The statement without loops bound to virtual threads."""
    if (
        isinstance(stmt, For)
        and stmt.kind == LoopKind.THREAD_BINDING
        and stmt.thread.startswith(("vthread", "cthread"))
    ):
        loop = dataclasses.replace(stmt, kind=LoopKind.UNROLLED, thread="")
        return _sunk(loop, lower_vthreads(stmt.body))
    return map_children(stmt, lambda c: lower_vthreads(c) if isinstance(c, Stmt) else c)


def _sunk(loop: For, stmt: Stmt) -> Stmt:
    var = {loop.loop_var}
    if not uses(stmt, var):
        return stmt
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(_sunk(loop, s) for s in stmt.seq))
    if isinstance(stmt, For) and not uses(stmt.start, var) and not uses(stmt.extent, var):
        if stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLLED):
            return dataclasses.replace(stmt, body=_sunk(loop, stmt.body))
    if isinstance(stmt, IfThenElse) and stmt.else_case is None and not uses(stmt.condition, var):
        return IfThenElse(stmt.condition, _sunk(loop, stmt.then_case))
    return dataclasses.replace(loop, body=stmt)
