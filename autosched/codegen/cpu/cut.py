"""Decides which statements of a lowered phase become tiles and which stay loops of the generated source."""

from __future__ import annotations

from autosched.ir.node import children, preorder
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Var, const_int
from autosched.tir.functor import statements
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

SMALL_WORK = 256  # stores (or vector stores): a loop nest below that is one tile, so that calls cost little

LEAST_APART = (
    24  # stores in its code: a smaller tile is compiled with its kernel, at less cost than joining two objects
)

WHOLE_TILE = "whole_tile"  # the annotation of a loop over register tiles that is to be one tile with all of them


def is_tile(stmt: Stmt) -> bool:
    """Whether the statement as a whole is emitted as one tile.

    That is what holds all uses of a register buffer, vectorised and unrolled loops, innermost loops, and any nest that
    is so small that calling its parts would cost as much as running them. Scratch buffers are allocated outside.
    """
    if any(isinstance(n, Allocate) and n.buffer.scope != "local" for n in statements(stmt)):
        return False
    match stmt:
        case Allocate() | BufferStore() | Evaluate():
            return True
        case For() if stmt.kind in (LoopKind.VECTORIZED, LoopKind.UNROLLED):
            return True
        case For():
            return bool(stmt.annotations.get(WHOLE_TILE)) or work(stmt) <= SMALL_WORK or _is_innermost(stmt.body)
        case SeqStmt():
            return all(is_tile(s) for s in stmt.seq)
        case IfThenElse():
            return work(stmt) <= SMALL_WORK
        case LetStmt() | AssertStmt():
            return is_tile(stmt.body)
    return False


def _is_innermost(body: Stmt) -> bool:
    """Whether no loop that runs one iteration after the other is below."""
    serial = (n for n in statements(body) if isinstance(n, For) and n.kind in (LoopKind.SERIAL, LoopKind.PARALLEL))
    return not any(True for _ in serial)


def work(stmt: Stmt) -> int:
    """How many stores the statement executes, a vectorised loop's 8 as one."""
    match stmt:
        case BufferStore() | Evaluate():
            return 1
        case For():
            count = const_int(stmt.extent)
            if count is None:
                return SMALL_WORK + 1
            if stmt.kind == LoopKind.VECTORIZED:
                count = -(-count // 8)
            return count * work(stmt.body)
        case SeqStmt():
            return sum(work(s) for s in stmt.seq)
        case IfThenElse():
            other = 0 if stmt.else_case is None else work(stmt.else_case)
            return max(work(stmt.then_case), other)
        case Allocate() | LetStmt() | AssertStmt():
            return work(stmt.body)
    return SMALL_WORK + 1


def stores_in_code(stmt: Stmt, lanes: int) -> int:
    """How many stores a statement's code has: those of unrolled loops each for itself, a vector's as one."""
    if isinstance(stmt, BufferStore):
        return 1
    inner = sum(stores_in_code(child, lanes) for child in children(stmt) if isinstance(child, Stmt))
    if not isinstance(stmt, For) or stmt.kind not in (LoopKind.VECTORIZED, LoopKind.UNROLLED):
        return inner
    count = const_int(stmt.extent) or 1
    return inner * (count if stmt.kind == LoopKind.UNROLLED else -(-count // lanes))


def outside_buffers(stmt: Stmt) -> list[Buffer]:
    """The buffers that a tile gets as arguments, in order of first use."""
    own = {n.buffer for n in statements(stmt) if isinstance(n, Allocate)}
    used = [n.buffer for n in preorder(stmt) if isinstance(n, BufferStore | BufferLoad)]
    return [b for b in dict.fromkeys(used) if b not in own]


def outside_vars(stmt: Stmt) -> list[Var]:
    """The variables that a tile gets as arguments, in order of first use."""
    from autosched.tir.expr import Let

    nodes = list(preorder(stmt))
    own = {n.loop_var for n in nodes if isinstance(n, For)} | {n.var for n in nodes if isinstance(n, LetStmt | Let)}
    return [v for v in dict.fromkeys(n for n in nodes if isinstance(n, Var)) if v not in own]
