"""Prefetches of what a window will read, each line once.

A loop over tiles with the annotation "prefetch_window": {buffer: tiles ahead} reads windows that overlap: most of a
tile's lines are those of the tile before, or of the tile above it, which the loop around has read. Hardware that
prefetches runs along one row at a time. So each iteration asks for the lines that are new a few tiles ahead.

Before:  for y in 8: for x in 14: …data[y + ky, 8 * x + kx]…
After:   for y in 8: for x in 14: prefetch(data[y + 2, 8 * (x + 3) + …]); …data[y + ky, 8 * x + kx]…

Past the end of a row, the next row is asked for, which the loop around reads next where rows lie one after the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from autosched.codegen.lower.prefetch_next import LINE_BYTES
from autosched.ir.node import Node, children, map_children
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, const, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.prefetch import PREFETCH_WINDOW
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Evaluate, For, LoopKind, Stmt, seq

MOST_PLACES = 4096  # of a tile that are looked at
MOST_LINES = 16  # an iteration: with more new lines than that, tiles hardly overlap


def prefetch_windows(stmt: Stmt, outer: For | None = None) -> Stmt:
    """The statement with the prefetches that loops over tiles ask for.

    outer  the serial loop around it, where there is one
    """
    if not isinstance(stmt, For):
        return map_children(stmt, lambda c: prefetch_windows(c, outer) if isinstance(c, Stmt) else c)
    if PREFETCH_WINDOW in stmt.annotations:
        wanted: Mapping[object, int] = stmt.annotations[PREFETCH_WINDOW]
        left = {k: v for k, v in stmt.annotations.items() if k != PREFETCH_WINDOW}
        fetches = [
            fetch
            for name, ahead in wanted.items()
            for fetch in _prefetches(stmt, outer, str(getattr(name, "value", name)), int(ahead))
        ]
        return dataclasses.replace(stmt, body=seq(*fetches, stmt.body), annotations=left)
    around = stmt if stmt.kind == LoopKind.SERIAL else None
    return map_children(stmt, lambda c: prefetch_windows(c, around) if isinstance(c, Stmt) else c)


def _prefetches(tiles: For, outer: For | None, name: str, ahead: int) -> list[Stmt]:
    """Requests for the lines of the buffer that are new so many tiles ahead; none where they do not move evenly."""
    found = next(_loads(tiles.body, name, ()), None)
    if found is None:
        return []
    load, inner = found
    counts = {n.loop_var: const_int(n.extent) for n in inner}
    around = (tiles.loop_var,) if outer is None else (tiles.loop_var, outer.loop_var)
    steps = _steps(load, (*counts, *around))
    if steps is None or any(count is None for count in counts.values()):
        return []
    moving = [(steps[v], count or 1) for v, count in counts.items() if steps[v]]
    if math.prod(count for _, count in moving) > MOST_PLACES:
        return []
    places = {sum(at) for at in itertools.product(*(range(0, step * n, step) for step, n in moving))}
    new = {place for place in places if not any(steps[v] and place + steps[v] in places for v in around)}
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    lines = sorted({place // line * line for place in new})
    if len(lines) > MOST_LINES:
        return []
    start: dict[Var, PrimExpr] = {n.loop_var: n.start for n in inner}
    start[tiles.loop_var] = tiles.loop_var + const(ahead, tiles.loop_var.dtype)
    *first, last = (substitute(i, start) for i in load.indices)
    at = (BufferLoad(load.buffer, (*first, last + const(place, last.dtype))) for place in lines)
    return [Evaluate(E.Call("prefetch", (x,), "int32")) for x in at]


def _loads(node: Node, name: str, inner: tuple[For, ...]) -> Iterator[tuple[BufferLoad, tuple[For, ...]]]:
    """Loads of the buffer, each with the loops around it."""
    if isinstance(node, BufferLoad) and node.buffer.name == name:
        yield node, inner
    if isinstance(node, For):
        inner = (*inner, node)
    for child in children(node):
        yield from _loads(child, name, inner)


def _steps(load: BufferLoad, moving: Sequence[Var]) -> dict[Var, int] | None:
    """How far the load moves in the buffer with each of some variables, in elements; None where it is not known."""
    steps = dict.fromkeys(moving, 0)
    analyzer = Analyzer()
    stride: int | None = 1
    for index, extent in zip(reversed(load.indices), reversed(load.buffer.shape), strict=True):
        for factor, atom in analyzer.linear(index).terms.values():
            if not free_vars(atom) & steps.keys():
                continue
            if not isinstance(atom, Var) or stride is None:
                return None
            steps[atom] += factor * stride
        size = const_int(extent)
        stride = None if stride is None or size is None else stride * size
    return steps


__all__ = ["prefetch_windows"]
