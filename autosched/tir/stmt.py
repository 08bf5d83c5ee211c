"""Statements of the loop level: loops around blocks, TensorIR's model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from autosched.ir.node import DEFINES, IGNORED, LABEL, Attrs, FrozenDict, Node, Span
from autosched.tir.axis import IterVar, Range
from autosched.tir.buffer import Buffer, Stmt
from autosched.tir.buffer import BufferStore as BufferStore
from autosched.tir.expr import PrimExpr, Var


class LoopKind(IntEnum):
    """Who runs the iterations of a loop: TVM's numbers; `LoopKind("parallel")` finds one by its word."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4

    @property
    def word(self) -> str:
        """The kind as text: "serial", "parallel", …"""
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> LoopKind | None:
        return next((kind for kind in cls if kind.word == value), None)

    def __str__(self) -> str:
        return self.word

    def __format__(self, spec: str) -> str:
        return format(self.word, spec)

    def __repr__(self) -> str:  # records' workloads are named by it
        return f"<LoopKind.{self.name}: {self.word!r}>"


# what may run a loop of kind THREAD_BINDING
THREADS = tuple(
    f"{kind}.{axis}" for kind in ("blockIdx", "clusterCtaIdx", "threadIdx", "vthread") for axis in "xyz"
) + ("vthread", "cthread")


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """Run `body` for each `loop_var` in [start, start + extent); `kind` says who runs the iterations."""

    loop_var: Var = field(metadata=DEFINES)
    start: PrimExpr
    extent: PrimExpr
    kind: LoopKind
    body: Stmt
    thread: str = ""  # for THREAD_BINDING: "threadIdx.x", …
    annotations: Attrs = field(default_factory=FrozenDict)
    span: Span | None = field(default=None, metadata=IGNORED)

    @property
    def min(self) -> PrimExpr:
        """TVM's name of `start`."""
        return self.start

    @property
    def thread_binding(self) -> IterVar | None:
        """The thread axis that the loop is bound to."""
        if not self.thread:
            return None
        return IterVar(Range(self.start, self.extent), Var(self.thread, self.loop_var.dtype), "thread", self.thread)


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    condition: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class SeqStmt(Stmt):
    seq: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class IfThenElse(Stmt):
    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LetStmt(Stmt):
    var: Var = field(metadata=DEFINES)
    value: PrimExpr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    """An expression run for its effect (`T.evaluate(0)` does nothing)."""

    value: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class AssertStmt(Stmt):
    condition: PrimExpr
    message: str
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    """After lowering: `buffer` lives during `body`. Before, allocations stand in `Block.alloc_buffers`."""

    buffer: Buffer = field(metadata=DEFINES)
    body: Stmt
    annotations: Attrs = field(default_factory=FrozenDict)


@dataclass(frozen=True, slots=True, eq=False)
class BufferRegion(Node):
    """A box inside a buffer: a Range per dimension."""

    buffer: Buffer
    region: tuple[Range, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MatchBufferRegion(Node):
    """A second name for a region of a buffer."""

    buffer: Buffer = field(metadata=DEFINES)
    source: BufferRegion


@dataclass(frozen=True, slots=True, eq=False)
class Block(Stmt):
    """A unit of computation: over its iteration variables it reads and writes regions of buffers.

    `init` runs where all reduction variables are at their start; `body` is the update.
    """

    iter_vars: tuple[IterVar, ...] = field(metadata=DEFINES)
    alloc_buffers: tuple[Buffer, ...] = field(metadata=DEFINES)
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str = field(metadata=LABEL)
    body: Stmt
    init: Stmt | None = None
    match_buffers: tuple[MatchBufferRegion, ...] = field(default=(), metadata=DEFINES)
    annotations: Attrs = field(default_factory=FrozenDict)
    span: Span | None = field(default=None, metadata=IGNORED)

    @property
    def name(self) -> str:
        return self.name_hint


@dataclass(frozen=True, slots=True, eq=False)
class BlockRealize(Stmt):
    """A block at its place in the loops: `iter_values` bind its variables; it runs where `predicate` holds."""

    iter_values: tuple[PrimExpr, ...]
    predicate: PrimExpr
    block: Block


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, nested sequences flattened; a single one as itself."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.seq if isinstance(s, SeqStmt) else (s,))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))
