"""Functions of a core whose nests a template writes itself, and of element-wise blocks around it.

What is element-wise before the core is computed where the core reads it; what follows is a nest of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from autosched.ir.node import preorder
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, is_injective
from autosched.templates.nests import index, value_at
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Cast, FloatImm, PrimExpr, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import rewrite
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import Block, BufferStore, SeqStmt, Stmt, seq


class CoreNests(ABC):
    """A function whose blocks `names` a template writes; the others are element-wise."""

    def __init__(self, func: PrimFunc, names: Sequence[str]):
        self.func, self.names = func, frozenset(names)
        self.schedule = Schedule(func)
        self.inline()
        self.left = blocks_of(self.schedule.func)
        there = {b.name_hint for b in self.left}
        self.inlined: Mapping[Buffer, Block] = {
            b.writes[0].buffer: b for b in blocks_of(func) if b.name_hint not in there and is_injective(b)
        }

    @abstractmethod
    def inline(self) -> None:
        """Fold element-wise blocks into those that read them."""

    @abstractmethod
    def schedule_other(self, block: Block) -> None:
        """Schedule an element-wise block that is left."""

    def value(self, e: PrimExpr) -> PrimExpr:
        """An expression of the function in terms of buffers that exist: what is element-wise is written out."""

        def step(x: object) -> object:
            if isinstance(x, BufferLoad) and x.buffer in self.inlined:
                return value_at(self.inlined, x.buffer, x.indices, {})
            return x

        found: PrimExpr = rewrite(e, step)
        return found

    def applied(self, body: Stmt, buffers: Sequence[Buffer]) -> Applied:
        """The scheduled function: `body`, which uses `buffers` between, in place of the core."""
        sch = self.schedule
        for block in self.left:
            if block.name_hint not in self.names:
                self.schedule_other(block)
        root = sch.func.root
        parts, is_first = [], True
        for nest in root.body.seq if isinstance(root.body, SeqStmt) else (root.body,):
            if not any(isinstance(x, Block) and x.name_hint in self.names for x in preorder(nest)):
                parts.append(nest)
            elif is_first:
                parts.append(body)
                is_first = False
        whole = seq(*parts)
        used = {x.buffer for x in preorder(whole) if isinstance(x, BufferLoad | BufferStore)}
        between = tuple(b for b in (*root.alloc_buffers, *buffers) if b in used)
        func = sch.func.with_body(make_root(whole, between, root.annotations))
        return Applied(func, (None,) * len(func.params), sch.trace.to_json_text())


def others_are_elementwise(func: PrimFunc, core: Sequence[Block]) -> bool:
    """Whether every block beside the core computes each of its elements on its own."""
    return all(is_injective(b) for b in blocks_of(func) if b not in core)


def one_of(name: str, dtype: str, *shape: int | PrimExpr, scope: str = "local") -> Buffer:
    """A buffer between the statements of a template."""
    return Buffer(name, tuple(index(n) if isinstance(n, int) else n for n in shape), dtype, scope=scope)


def load(buffer: Buffer, *at: PrimExpr | int) -> BufferLoad:
    """An element."""
    return BufferLoad(buffer, tuple(index(i) if isinstance(i, int) else i for i in at))


def store(buffer: Buffer, value: PrimExpr, *at: PrimExpr | int) -> Stmt:
    """Write an element, as the buffer's type."""
    return BufferStore(buffer, E.cast(buffer.dtype, value), tuple(index(i) if isinstance(i, int) else i for i in at))


def typed(buffer: Buffer, at: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """Indices in the types of a buffer's dimensions."""
    return tuple(E.cast(n.dtype, i) for n, i in zip(buffer.shape, at, strict=True))


def number(e: PrimExpr) -> float | None:
    """The value of a constant; None for anything else."""
    return e.value if isinstance(e, FloatImm) else const_int(e)


def uncast(e: PrimExpr) -> PrimExpr:
    """What conversions are of."""
    while isinstance(e, Cast):
        e = e.value
    return e


def indices_of(flat: PrimExpr, shape: Sequence[int | PrimExpr]) -> list[PrimExpr]:
    """The indices of a row-major number, in its type."""
    found, rest = [], flat
    for d, size in reversed(list(enumerate(shape))):
        count = E.cast(flat.dtype, E.to_expr(size, flat.dtype))
        found.append(E.floormod(rest, count) if d else rest)
        rest = E.floordiv(rest, count)
    return found[::-1]


def row_major(at: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    """The row-major number of indices."""
    total: PrimExpr = index(0)
    for i, size in zip(at, shape, strict=True):
        total = E.add(E.mul(total, size), i)
    return total
