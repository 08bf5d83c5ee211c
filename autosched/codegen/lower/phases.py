"""Cuts a lowered function into phases: pieces of work that threads may share, with barriers between."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from autosched.errors import CodegenError
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var, as_int, const, const_int, mul
from autosched.tir.function import PrimFunc, shape_vars
from autosched.tir.functor import free_vars
from autosched.tir.size_expr import named_sizes
from autosched.tir.stmt import Allocate, For, LoopKind, SeqStmt, Stmt, seq


@dataclass(slots=True)
class LoweredPhase:
    """`body` for each value of `task_vars`, which run over `extents` from `starts`; without them once.

    extents  numbers, or expressions of sizes that come with the call
    """

    body: Stmt
    task_vars: tuple[Var, ...] = ()
    extents: tuple[int | PrimExpr, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def n_tasks(self) -> int:
        """The number of pieces. Raises InvalidValueError where it is known when the kernel is called."""
        return as_int(self.pieces)

    @property
    def pieces(self) -> int | PrimExpr:
        """The number of pieces."""
        return product_of(self.extents)


def product_of(extents: Iterable[int | PrimExpr]) -> int | PrimExpr:
    """The product of extents, a number where it is known."""
    count: PrimExpr = const(1, "int64")
    for extent in extents:
        count = mul(count, extent)
    number = const_int(count)
    return count if number is None else number


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
    sizes = frozenset({*shape_vars(func), *named_sizes(func)})
    for part in splitter.parts:
        if isinstance(part, For) and _is_split(part, sizes):
            if serial:
                phases.append(LoweredPhase(seq(*serial)))
                serial = []
            phases.append(_tasks(part, sizes))
        else:
            serial.append(part)
    if serial:
        phases.append(LoweredPhase(seq(*serial)))
    return phases, splitter.shared


def _is_split(loop: For, sizes: Set[Var]) -> bool:
    """Whether a loop's iterations are pieces of work: it is parallel, and their number is known before it begins."""
    return loop.kind == LoopKind.PARALLEL and free_vars(loop.extent) <= sizes


def _tasks(loop: For, sizes: Set[Var]) -> LoweredPhase:
    task_vars, extents, starts = [], [], []
    stmt: Stmt = loop
    while isinstance(stmt, For) and _is_split(stmt, sizes):
        start: PrimExpr = stmt.start
        if not isinstance(start, IntImm):
            raise CodegenError(f"the parallel loop '{stmt.loop_var.name}' starts at {start}, which is no constant")
        task_vars.append(stmt.loop_var)
        extent = const_int(stmt.extent)
        extents.append(stmt.extent if extent is None else extent)
        starts.append(start.value)
        stmt = stmt.body
    return LoweredPhase(stmt, tuple(task_vars), tuple(extents), tuple(starts))
