"""Prefetches of the next panel of weights, spread evenly over all the passes over the present one.

A loop with the annotation "prefetch_next": {buffer: elements} goes over tiles that each read the same panel of so many
elements (or "panel": all below the buffer's first dimension), which lie one after the other in memory. The first pass
finds the panel in the cache if the passes over the one before have asked for it; asking in one pass only would stop
that pass, since the memory is slower than the pass.

Before:  for tile in 4: for k in 768: acc += b[panel, k]
After:   for tile in 4: for k in 768: prefetch(b[panel + 1, …a line of its own…]); acc += b[panel, k]

Blocks of a batch that take turns at a panel (`PIECES_FIRST`) are passes too, whose number comes with the call. So are
pieces of parallel work that read the same panel, one after the other: where the panel is `task // 4`, each of four asks
for a fourth of the next one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from autosched.ir.node import map_children, preorder
from autosched.tir.axis import Range
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import FloorDiv, FloorMod, PrimExpr, Var, cast, const, const_int, floordiv, floormod, mul
from autosched.tir.functor import substitute
from autosched.tir.prefetch import LINE_BYTES, PANEL, PREFETCH_NEXT, loops_to, request, wanted_by
from autosched.tir.separable import TURN, TURNS
from autosched.tir.simplify import Analyzer
from autosched.tir.size_expr import polynomial
from autosched.tir.stmt import For, LoopKind, Stmt, seq


def spread_prefetches(stmt: Stmt, takes_turns: bool = False, task: For | None = None) -> Stmt:
    """The statement with the prefetches that loops ask for.

    takes_turns  whether it is one block's of several that read the same panel in turn
    task         the loop over pieces of parallel work around it
    """
    if isinstance(stmt, For) and stmt.kind == LoopKind.PARALLEL:
        task = stmt
    if isinstance(stmt, For) and PREFETCH_NEXT in stmt.annotations:
        wanted = wanted_by(stmt, PREFETCH_NEXT)
        left = {k: v for k, v in stmt.annotations.items() if k != PREFETCH_NEXT}
        stmt = dataclasses.replace(stmt, annotations=left)
        for name, elements in wanted.items():
            stmt = _with_prefetch(stmt, name, elements, takes_turns, task)
    return map_children(stmt, lambda c: spread_prefetches(c, takes_turns, task) if isinstance(c, Stmt) else c)


def _with_prefetch(passes: For, name: str, wanted: str | int, takes_turns: bool, task: For | None) -> For:
    """The loop over passes, in which every iteration over the panel asks for its share of the next one."""
    path, load = loops_to(passes, name)
    if load is None:
        return passes
    elements = _product(load.buffer.shape[1:]) if wanted == PANEL else const(int(wanted), passes.loop_var.dtype)
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    panel = substitute(load.indices[0], _starts(passes))
    turn, pieces = (None, 1) if takes_turns or task is None else _turn(task, panel)
    while len(path) > 1 and (share := _share(elements, path[:-1], pieces)) is not None and share <= line:
        path.pop()  # one line an iteration of the loop around is enough
    if (share := _share(elements, path, pieces)) is None:
        return passes
    return insert_first(passes, path[-1], _prefetches(path, load, elements, share, line, takes_turns, turn))


def _starts(stmt: Stmt) -> dict[Var, PrimExpr]:
    """The first values of all loops in a statement."""
    return {n.loop_var: n.start for n in preorder(stmt) if isinstance(n, For)}


def _turn(task: For, panel: PrimExpr) -> tuple[PrimExpr | None, int]:
    """(which of the pieces of work that read the same panel one is, their number)."""
    v, analyzer = task.loop_var, Analyzer()
    analyzer.bind(v, Range(task.start, task.extent))
    found = analyzer.simplify(panel)
    found = found.a if isinstance(found, FloorMod) else found
    if isinstance(found, FloorDiv) and found.a is v and (pieces := const_int(found.b)) is not None:
        return floormod(v, pieces), pieces
    return None, 1


def insert_first(stmt: For, place: For, first: Sequence[Stmt]) -> For:
    """The loop in which the body of a loop inside of it, or of itself, begins with these statements."""

    def visit(node: Stmt) -> Stmt:
        if node is place:
            return dataclasses.replace(place, body=seq(*first, place.body))
        return map_children(node, lambda c: visit(c) if isinstance(c, Stmt) else c)

    changed = visit(stmt)
    assert isinstance(changed, For), "a loop stays one"
    return changed


def _share(elements: PrimExpr, path: Sequence[For], pieces: int) -> int | None:
    """Elements for each iteration of the innermost loop of a path, in each piece; None where that is no number."""
    ours, theirs = polynomial(elements), polynomial(_product(n.extent for n in path))
    if len(ours) != 1 or ours.keys() != theirs.keys():
        return None
    (number,), (steps,) = ours.values(), theirs.values()
    return -(-number // (steps * pieces))


def _product(extents: Iterable[PrimExpr]) -> PrimExpr:
    return functools.reduce(mul, extents)


def _prefetches(
    path: Sequence[For],
    load: BufferLoad,
    elements: PrimExpr,
    share: int,
    line: int,
    takes_turns: bool,
    turn: PrimExpr | None,
) -> list[Stmt]:
    """Requests for a share of the next panel, a place of their own for each piece of work and turn of the loops.

    Where blocks take turns, the share of one is smaller: the lines of a step are those of the next ones too.
    """
    start = _starts(path[0])
    *outer, last = (substitute(i, start) for i in load.indices)
    done: PrimExpr = const(0, path[0].loop_var.dtype) if turn is None else turn
    for n in path:
        done = done * n.extent + (n.loop_var - n.start)
    place = cast(last.dtype, done) * share
    if takes_turns:
        whole = _product(n.extent for n in path) * share
        step = floordiv(TURNS + (share - 1), TURNS)  # at least share / TURNS
        place = floordiv(TURN * whole, TURNS) + cast("int64", done) * step
    first = last + cast(last.dtype, elements) + cast(last.dtype, place)
    return [request(BufferLoad(load.buffer, (*outer, first)), ((n,) for n in range(0, share, line)), is_far=True)]
