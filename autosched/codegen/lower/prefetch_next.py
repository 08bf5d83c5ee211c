"""Prefetches of the next panel of weights, spread evenly over all the passes over the present one.

A loop with the annotation "prefetch_next": {buffer: elements} goes over tiles that each read the same panel of so many
elements (or "panel": all below the buffer's first dimension), which lie one after the other in memory. The first pass
finds the panel in the cache if the passes over the one before have asked for it; asking in one pass only would stop
that pass, since the memory is slower than the pass.

Before:  for tile in 4: for k in 768: acc += b[panel, k]
After:   for tile in 4: for k in 768: prefetch(b[panel + 1, …a line of its own…]); acc += b[panel, k]

Blocks of a batch that take turns at a panel (`PIECES_FIRST`) are passes too, whose number comes with the call.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from autosched.ir.node import map_children, preorder
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, cast, const, floordiv, mul
from autosched.tir.functor import substitute
from autosched.tir.prefetch import LINE_BYTES, PANEL, PREFETCH_NEXT, loops_to, request, wanted_by
from autosched.tir.separable import TURN, TURNS
from autosched.tir.size_expr import polynomial
from autosched.tir.stmt import For, Stmt, seq


def spread_prefetches(stmt: Stmt, takes_turns: bool = False) -> Stmt:
    """The statement with the prefetches that loops ask for.

    takes_turns  whether it is one block's of several that read the same panel in turn
    """
    if isinstance(stmt, For) and PREFETCH_NEXT in stmt.annotations:
        wanted = wanted_by(stmt, PREFETCH_NEXT)
        left = {k: v for k, v in stmt.annotations.items() if k != PREFETCH_NEXT}
        stmt = dataclasses.replace(stmt, annotations=left)
        for name, elements in wanted.items():
            stmt = _with_prefetch(stmt, name, elements, takes_turns)
    return map_children(stmt, lambda c: spread_prefetches(c, takes_turns) if isinstance(c, Stmt) else c)


def _with_prefetch(passes: For, name: str, wanted: str | int, takes_turns: bool) -> For:
    """The loop over passes, in which every iteration over the panel asks for its share of the next one."""
    path, load = loops_to(passes, name)
    if load is None:
        return passes
    elements = _product(load.buffer.shape[1:]) if wanted == PANEL else const(int(wanted), passes.loop_var.dtype)
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    while len(path) > 1 and (share := _share(elements, path[:-1])) is not None and share <= line:
        path.pop()  # one line an iteration of the loop around is enough
    if (share := _share(elements, path)) is None:
        return passes
    return insert_first(passes, path[-1], _prefetches(path, load, elements, share, line, takes_turns))


def insert_first(stmt: For, place: For, first: Sequence[Stmt]) -> For:
    """The loop in which the body of a loop inside of it, or of itself, begins with these statements."""

    def visit(node: Stmt) -> Stmt:
        if node is place:
            return dataclasses.replace(place, body=seq(*first, place.body))
        return map_children(node, lambda c: visit(c) if isinstance(c, Stmt) else c)

    changed = visit(stmt)
    assert isinstance(changed, For), "a loop stays one"
    return changed


def _share(elements: PrimExpr, path: Sequence[For]) -> int | None:
    """Elements for each iteration of the innermost loop of a path; None where that is no number."""
    ours, theirs = polynomial(elements), polynomial(_product(n.extent for n in path))
    if len(ours) != 1 or ours.keys() != theirs.keys():
        return None
    (number,), (steps,) = ours.values(), theirs.values()
    return -(-number // steps)


def _product(extents: Iterable[PrimExpr]) -> PrimExpr:
    return functools.reduce(mul, extents)


def _prefetches(
    path: Sequence[For], load: BufferLoad, elements: PrimExpr, share: int, line: int, takes_turns: bool
) -> list[Stmt]:
    """Requests for a share of the next panel, a place of their own for each turn of the loops of the path.

    Where blocks take turns, the share of one is smaller: the lines of a step are those of the next ones too.
    """
    inner = {n.loop_var: n.start for n in preorder(path[0]) if isinstance(n, For)}
    start: dict[Var, PrimExpr] = dict(inner)
    *outer, last = (substitute(i, start) for i in load.indices)
    done: PrimExpr = const(0, path[0].loop_var.dtype)
    for n in path:
        done = done * n.extent + (n.loop_var - n.start)
    place = cast(last.dtype, done) * share
    if takes_turns:
        whole = _product(n.extent for n in path) * share
        step = floordiv(TURNS + (share - 1), TURNS)  # at least share / TURNS
        place = floordiv(TURN * whole, TURNS) + cast("int64", done) * step
    first = last + cast(last.dtype, elements) + cast(last.dtype, place)
    return [request(BufferLoad(load.buffer, (*outer, first)), ((n,) for n in range(0, share, line)))]
