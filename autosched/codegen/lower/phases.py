"""Cuts a lowered function into phases: pieces of work that threads may share, with barriers between."""

from __future__ import annotations

from dataclasses import dataclass, field

from autosched.errors import CodegenError
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var, as_int, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.stmt import Allocate, For, LoopKind, SeqStmt, Stmt, seq


@dataclass(slots=True)
class LoweredPhase:
    """`body` for each value of `task_vars`, which run over `extents` from `starts`; without them once."""

    body: Stmt
    task_vars: tuple[Var, ...] = ()
    extents: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def n_tasks(self) -> int:
        """The number of pieces."""
        count = 1
        for extent in self.extents:
            count *= extent
        return count


@dataclass(slots=True)
class _Splitter:
    shared: list[Buffer] = field(default_factory=list)
    parts: list[Stmt] = field(default_factory=list)

    def visit(self, stmt: Stmt) -> None:
        if isinstance(stmt, SeqStmt):
            for s in stmt.seq:
                self.visit(s)
        elif isinstance(stmt, Allocate) and (stmt.buffer.scope != "local" or _parallel_inside(stmt.body)):
            self.shared.append(stmt.buffer)
            self.visit(stmt.body)
        else:
            self.parts.append(stmt)


def _parallel_inside(stmt: Stmt) -> bool:
    parts = stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)
    return any(isinstance(s, For) and s.kind == LoopKind.PARALLEL for s in parts)


def split_phases(func: PrimFunc) -> tuple[list[LoweredPhase], list[Buffer]]:
    """(phases in order, buffers that live across them) of a lowered function.

    A parallel loop at the top, with those directly inside it, is a phase whose tasks are its iterations. What stands
    between parallel loops is a phase of one task. Parallel loops deeper inside run serially.
    """
    splitter = _Splitter()
    splitter.visit(func.body)
    phases: list[LoweredPhase] = []
    serial: list[Stmt] = []
    for part in splitter.parts:
        if isinstance(part, For) and part.kind == LoopKind.PARALLEL and const_int(part.extent) is not None:
            if serial:
                phases.append(LoweredPhase(seq(*serial)))
                serial = []
            phases.append(_tasks(part))
        else:
            serial.append(part)
    if serial:
        phases.append(LoweredPhase(seq(*serial)))
    return phases, splitter.shared


def _tasks(loop: For) -> LoweredPhase:
    task_vars, extents, starts = [], [], []
    stmt: Stmt = loop
    while isinstance(stmt, For) and stmt.kind == LoopKind.PARALLEL and const_int(stmt.extent) is not None:
        start: PrimExpr = stmt.start
        if not isinstance(start, IntImm):
            raise CodegenError(f"the parallel loop '{stmt.loop_var.name}' starts at {start}, which is no constant")
        task_vars.append(stmt.loop_var)
        extents.append(as_int(stmt.extent))
        starts.append(start.value)
        stmt = stmt.body
    return LoweredPhase(stmt, tuple(task_vars), tuple(extents), tuple(starts))
