"""A GPU's launch as serial loops: the threads of a block one after the other between its barriers.

Before:  A_shared[tx] = …; barrier; … A_shared[0]                               (one thread of a block)
After:   for bx: A_shared = …; (for tx: A_shared[tx] = …), (for tx: … A_shared[0])
A register buffer that lives across a barrier gets an element for each thread. This is how a schedule is checked on a
CPU; it says nothing of barriers that are missing, which the emulator finds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.cross_thread import LANES, is_lane_reduction, lanes_in_turn
from autosched.codegen.lower.device import LoweredDevice
from autosched.codegen.lower.launches import LoweredLaunch, ThreadAxis
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, PrimExpr, as_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite, substitute
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    seq,
)  # fmt: skip


def serial_threads(func: PrimFunc, lowered: LoweredDevice, descending: bool = False) -> PrimFunc:
    """The lowered function for a CPU. With `descending` the last thread of a block comes first."""
    parts, at = [_blocks(launch, descending) for launch in lowered.launches], 0
    inside: list[Stmt] = []
    for repeat in lowered.repeats:
        assert lowered.turn is not None, "it has repeated launches"
        start, again = E.const(1, lowered.turn.dtype), seq(*parts[repeat.first : repeat.end])
        inside += [*parts[at : repeat.first], For(lowered.turn, start, repeat.times, LoopKind.SERIAL, again)]
        at = repeat.end
    body = seq(*inside, *parts[at:])
    for buffer in reversed(lowered.scratch):
        body = Allocate(buffer, body)
    handles = [p for p in func.params if p in func.buffer_map]
    arguments = FrozenDict(zip(handles, lowered.arguments, strict=True))
    return dataclasses.replace(func, body=body, buffer_map=arguments)


def _blocks(launch: LoweredLaunch, descending: bool) -> Stmt:
    threads = [a for a in reversed(launch.axes) if a.tag.startswith("threadIdx")]
    body = _Serial(threads, descending).visit(launch.body)
    for buffer in launch.shared:
        body = Allocate(buffer, body)
    for axis in reversed([a for a in launch.axes if not a.tag.startswith("threadIdx")]):
        body = _loop(axis, body)
    return body


def _loop(axis: ThreadAxis, body: Stmt, descending: bool = False) -> For:
    dtype = axis.var.dtype
    if descending:
        body = substitute(body, {axis.var: E.sub(E.const(axis.extent - 1, dtype), axis.var)})
    return For(axis.var, E.const(0, dtype), E.const(axis.extent, dtype), LoopKind.SERIAL, body)


def _has_barrier(stmt: Stmt) -> bool:
    """Whether threads wait for each other in the statement."""
    return any((isinstance(n, Stmt) and is_barrier(n)) or is_lane_reduction(n) for n in preorder(stmt))


@dataclasses.dataclass(slots=True)
class _Serial:
    threads: Sequence[ThreadAxis]
    descending: bool

    def visit(self, stmt: Stmt) -> Stmt:
        """A statement of one thread as one of all threads of a block."""
        if not _has_barrier(stmt):
            return self.run(stmt)
        match stmt:
            case SeqStmt():
                return self.parts(stmt.seq)
            case For():
                kind = LoopKind.SERIAL if stmt.kind == LoopKind.UNROLLED else stmt.kind
                return dataclasses.replace(stmt, kind=kind, body=self.visit(stmt.body))
            case IfThenElse():
                other = None if stmt.else_case is None else self.visit(stmt.else_case)
                return IfThenElse(stmt.condition, self.visit(stmt.then_case), other)
            case Allocate():
                return self.allocate(stmt)
            case AssertStmt():
                return self.visit(stmt.body)
            case LetStmt():
                return self.visit(substitute(stmt.body, {stmt.var: stmt.value}))
            case BufferStore():
                return self.lanes(stmt)
            case _ if is_barrier(stmt):
                return SeqStmt(())
        raise CodegenError(f"a barrier stands inside of a {type(stmt).__name__}")

    def parts(self, stmts: Sequence[Stmt]) -> Stmt:
        found: list[Stmt] = []
        together: list[Stmt] = []
        for s in (*stmts, None):
            if s is not None and not _has_barrier(s):
                together.append(s)
                continue
            if together:
                found.append(self.run(seq(*together)))
                together = []
            if s is not None and not is_barrier(s):
                found.append(self.visit(s))
        return seq(*found)

    def lanes(self, stmt: BufferStore) -> Stmt:
        """Neighbouring threads combine their values: of copies, since each overwrites its own."""
        call = next(x for x in preorder(stmt.value) if isinstance(x, Call) and x.op == LANES)
        own, width = call.args[1], as_int(call.args[2])
        assert isinstance(own, BufferLoad), "the lanes' values are elements of a buffer"
        copies = dataclasses.replace(own.buffer, name=f"{own.buffer.name}_copy")
        x = next(a for a in self.threads if a.tag == "threadIdx.x").var
        first = E.mul(E.floordiv(x, width), width)
        group = [
            BufferLoad(copies, tuple(substitute(i, {x: E.add(first, lane)}) for i in own.indices))
            for lane in range(width)
        ]
        copy = self.run(BufferStore(copies, own, own.indices))
        return Allocate(copies, seq(copy, self.run(lanes_in_turn(stmt, group))))

    def run(self, stmt: Stmt) -> Stmt:
        """The statement for each thread."""
        for axis in self.threads:
            stmt = _loop(axis, stmt, self.descending)
        return stmt

    def allocate(self, stmt: Allocate) -> Stmt:
        """One copy of the buffer for each thread."""
        own = stmt.buffer
        sizes = tuple(E.const(a.extent, a.var.dtype) for a in self.threads)
        wide = Buffer(own.name, (*sizes, *own.shape), own.dtype)
        place: tuple[PrimExpr, ...] = tuple(a.var for a in self.threads)

        def step(x: object) -> object:
            if isinstance(x, BufferLoad) and x.buffer is own:
                return BufferLoad(wide, (*place, *x.indices))
            if isinstance(x, BufferStore) and x.buffer is own:
                return BufferStore(wide, x.value, (*place, *x.indices))
            return x

        return Allocate(wide, self.visit(rewrite(stmt.body, step)))
