"""Prefetches of the next panel of weights, spread evenly over all the passes over the present one.

A loop with the annotation "prefetch_next": {buffer: elements} goes over tiles that each read the same panel of so many
elements, which lie one after the other in memory. The first pass finds the panel in the cache if the passes over the
one before have asked for it; asking in one pass only would stop that pass, since the memory is slower than the pass.

Before:  for tile in 4: for k in 768: acc += b[panel, k]
After:   for tile in 4: for k in 768: prefetch(b[panel + 1, …a line of its own…]); acc += b[panel, k]

Blocks of a batch that take turns at a panel (`PIECES_FIRST`) are passes too, whose number comes with the call.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.ir.node import children, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, cast, const, const_int, floordiv
from autosched.tir.functor import substitute
from autosched.tir.separable import TURN, TURNS
from autosched.tir.stmt import Evaluate, For, LoopKind, Stmt, seq

if TYPE_CHECKING:
    from autosched.ir.node import Node

PREFETCH_NEXT = "prefetch_next"
LINE_BYTES = 64  # of a cache line


def spread_prefetches(stmt: Stmt, takes_turns: bool = False) -> Stmt:
    """The statement with the prefetches that loops ask for.

    takes_turns  whether it is one block's of several that read the same panel in turn
    """
    if isinstance(stmt, For) and PREFETCH_NEXT in stmt.annotations:
        wanted = stmt.annotations[PREFETCH_NEXT]
        left = {k: v for k, v in stmt.annotations.items() if k != PREFETCH_NEXT}
        stmt = dataclasses.replace(stmt, annotations=left)
        for name, elements in wanted.items():
            stmt = _with_prefetch(stmt, str(getattr(name, "value", name)), int(elements), takes_turns)
    return map_children(stmt, lambda c: spread_prefetches(c, takes_turns) if isinstance(c, Stmt) else c)


def _with_prefetch(passes: For, name: str, elements: int, takes_turns: bool) -> For:
    """The loop over passes, in which every iteration over the panel asks for its share of the next one."""
    path, load = _path(passes, name)
    if load is None or any(const_int(n.extent) is None for n in path):
        return passes
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    while len(path) > 1 and _share(elements, path[:-1]) <= line:
        path.pop()  # one line an iteration of the loop around is enough
    place = path[-1]
    fetch = _prefetches(path, load, elements, line, takes_turns)

    def visit(stmt: Stmt) -> Stmt:
        if stmt is place:
            return dataclasses.replace(place, body=seq(*fetch, place.body))
        return map_children(stmt, lambda c: visit(c) if isinstance(c, Stmt) else c)

    changed = visit(passes)
    assert isinstance(changed, For), "a loop stays one"
    return changed


def _share(elements: int, path: Sequence[For]) -> int:
    """Elements for each iteration of the innermost loop of a path."""
    return -(-elements // math.prod(const_int(n.extent) or 1 for n in path))


def _path(passes: For, name: str) -> tuple[list[For], BufferLoad | None]:
    """The loops around a load of the buffer, and that load: the annotated one and the serial ones inside of it."""

    def search(node: Node, around: tuple[For, ...]) -> tuple[list[For], BufferLoad] | None:
        if isinstance(node, BufferLoad) and node.buffer.name == name:
            return list(around), node
        if node is passes or (isinstance(node, For) and node.kind == LoopKind.SERIAL):
            assert isinstance(node, For)
            around = (*around, node)
        return next((found for c in children(node) if (found := search(c, around)) is not None), None)

    return search(passes, ()) or ([], None)


def _prefetches(path: Sequence[For], load: BufferLoad, elements: int, line: int, takes_turns: bool) -> list[Stmt]:
    """Requests for a share of the next panel, a place of their own for each turn of the loops of the path.

    Where blocks take turns, the share of one is smaller: the lines of a step are those of the next ones too.
    """
    share = _share(elements, path)
    inner = {n.loop_var: n.start for n in preorder(path[0]) if isinstance(n, For)}
    start: dict[Var, PrimExpr] = dict(inner)
    *outer, last = (substitute(i, start) for i in load.indices)
    done: PrimExpr = const(0, path[0].loop_var.dtype)
    for n in path:
        done = done * (const_int(n.extent) or 1) + (n.loop_var - n.start)
    place = cast(last.dtype, done) * share
    if takes_turns:
        whole = math.prod(const_int(n.extent) or 1 for n in path) * share
        step = floordiv(TURNS + (share - 1), TURNS)  # at least share / TURNS
        place = floordiv(TURN * whole, TURNS) + cast("int64", done) * step
    first = last + elements + cast(last.dtype, place)
    lines = range(0, share, line)
    at = (BufferLoad(load.buffer, (*outer, first + const(n, last.dtype))) for n in lines)
    return [Evaluate(E.Call("prefetch", (x,), "int32")) for x in at]


__all__ = ["PREFETCH_NEXT", "spread_prefetches"]
