"""Blocks, threads and tiles that they share, of templates that write their statements themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.codegen.lower.flops import count_flops
from autosched.templates.nests import index, lanes, loop
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.stmt import Block, BlockRealize, BufferStore, IfThenElse, LoopKind, Stmt

MOST_UNROLLED = 8  # accesses of a thread that are under way at once: each holds registers


def bound(axes: Sequence[tuple[str, int | PrimExpr]], body: Callable[..., Stmt]) -> Stmt:
    """Loops over blocks and threads, (tag, extent) each; `body` takes their variables."""
    (tag, extent), *rest = axes

    def inner(var: Var) -> Stmt:
        return bound(rest, lambda *others: body(var, *others)) if rest else body(var)

    return loop(tag[0] + tag[-1], extent, inner, LoopKind.THREAD_BINDING, tag)


def block(name: str, body: Stmt) -> Stmt:
    """A part with a name."""
    return BlockRealize((), IntImm(1, "bool"), Block((), (), (), (), name, body))


def share_tile(
    rows: int, columns: int, element: Callable[[PrimExpr, PrimExpr], Stmt], threads: Sequence[tuple[PrimExpr, int]],
    vector: int = 1, down: bool = False,
) -> Stmt:  # fmt: skip
    """element(row, column) of a tile by all threads (slowest first), `vector` neighbours of a row each at a time.

    down   neighbouring threads take the elements of a column, not those of a row
    """
    wide = columns // vector
    at: PrimExpr = index(0)
    for var, extent in threads:
        at = E.add(E.mul(at, extent), var)
    count = 1
    for _, extent in threads:
        count *= extent
    steps = -(-rows * wide // count)

    def one(step: Var) -> Stmt:
        place = E.add(E.mul(step, count), at)

        def of_lane(lane: PrimExpr) -> Stmt:
            row = E.floormod(place, rows) if down else E.floordiv(place, wide)
            column = E.floordiv(place, rows) if down else E.floormod(place, wide)
            return element(row, E.add(E.mul(column, vector), lane))

        stmt = lanes(vector, of_lane)
        if rows * wide % count:
            return IfThenElse(E.compare(E.LT, place, index(rows * wide)), stmt)
        return stmt

    return loop("step", steps, one, LoopKind.UNROLLED if steps <= MOST_UNROLLED else LoopKind.SERIAL)


def copy_tile(
    target: Buffer, rows: int, columns: int, value: Callable[[PrimExpr, PrimExpr], PrimExpr],
    threads: Sequence[tuple[PrimExpr, int]], vector: int = 1, down: bool = False,
) -> Stmt:  # fmt: skip
    """target[:rows, :columns] = value by all threads; see `share_tile`."""

    def element(row: PrimExpr, column: PrimExpr) -> Stmt:
        return BufferStore(target, value(row, column), (row, column))

    return share_tile(rows, columns, element, threads, vector, down)


def with_statements(func: PrimFunc, body: Stmt, buffers: Sequence[Buffer]) -> PrimFunc:
    """The function with other statements, which use these buffers between."""
    return func.with_body(make_root(body, tuple(buffers)))


def with_work_of(made: PrimFunc, func: PrimFunc) -> PrimFunc:
    """The scheduled function, saying how many operations the natural one has: its own loops do not tell.

    The lanes of a warp compute a product together, and how far a loop goes may differ from block to block.
    """
    return made.with_attr({"flops": int(func.attrs.get("flops", 0)) or count_flops(func.body)})
