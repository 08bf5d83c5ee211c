"""Small facts about lowered statements that several passes need."""

from __future__ import annotations

from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import For, IfThenElse, SeqStmt, Stmt

NOTHING = SeqStmt(())
WARP_STAGES = "warp_specialized_stages"  # the annotation of a loop that a warp copies for: see `warpgroups.py`
COPIED_STAGES = "warp_copied_stages"  # the same for products that follow on each other: see `warpgroup_chain.py`
ADDRESS_FIRST = "address_first"  # of the loop over a vector: its address is found outside of the condition around it


def is_nothing(stmt: Stmt) -> bool:
    """Whether the statement has no effect because it is an empty sequence."""
    return isinstance(stmt, SeqStmt) and not stmt.seq


def enter(analyzer: Analyzer, loop: For) -> Analyzer:
    """What is known inside a loop: the analyzer's facts and the range of the loop's variable."""
    inner = analyzer.copy()
    low, high = analyzer.bound(loop.start)
    _, extent = analyzer.bound(loop.extent)
    inner.bounds[loop.loop_var] = (low, None if high is None or extent is None else high + extent - 1)
    return inner


def const_range(loop: For) -> tuple[int, int] | None:
    """(start, extent) of a loop whose bounds are constants, else None."""
    start, extent = const_int(loop.start), const_int(loop.extent)
    return None if start is None or extent is None else (start, extent)


def guarded(condition: PrimExpr, body: Stmt) -> Stmt:
    """`body` under a condition; without one where it is constant."""
    value = const_int(condition)
    if value is None:
        return IfThenElse(condition, body)
    return body if value else NOTHING


def loop_vars(stmt: Stmt) -> dict[Var, For]:
    """The loops at or below a statement by their variables."""
    from autosched.ir.node import preorder

    return {node.loop_var: node for node in preorder(stmt) if isinstance(node, For)}
