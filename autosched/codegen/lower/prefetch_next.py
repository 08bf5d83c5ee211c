"""Prefetches of the next panel of weights, spread evenly over all the passes over the present one.

A loop with the annotation "prefetch_next": {buffer: elements} goes over tiles that each read the same panel of so many
elements, which lie one after the other in memory. The first pass finds the panel in the cache if the passes over the
one before have asked for it; asking in one pass only would stop that pass, since the memory is slower than the pass.

Before:  for tile in 4: for k in 768: acc += b[panel, k]
After:   for tile in 4: for k in 768: prefetch(b[panel + 1, …a line of its own…]); acc += b[panel, k]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autosched.ir.node import map_children, walk
from autosched.tir import expr as E
from autosched.tir.expr import BufferLoad, PrimExpr, Var, cast, const, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.stmt import Evaluate, For, LoopKind, Stmt, seq

PREFETCH_NEXT = "prefetch_next"
LINE_ELEMENTS = 16  # floats in a cache line


def spread_prefetches(stmt: Stmt) -> Stmt:
    """The statement with the prefetches that loops ask for."""
    if isinstance(stmt, For) and PREFETCH_NEXT in stmt.annotations:
        wanted = stmt.annotations[PREFETCH_NEXT]
        for name, elements in wanted.items():
            stmt = _with_prefetch(stmt, str(getattr(name, "value", name)), int(elements))
        left = {k: v for k, v in stmt.annotations.items() if k != PREFETCH_NEXT}
        stmt = dataclasses.replace(stmt, annotations=left)
    return map_children(stmt, lambda c: spread_prefetches(c) if isinstance(c, Stmt) else c)


def _with_prefetch(passes: For, name: str, elements: int) -> For:
    """The loop over passes whose loop over the panel asks for its share of the next one."""
    count = const_int(passes.extent)
    if count is None:
        return passes

    def visit(stmt: Any) -> Any:
        if isinstance(stmt, For) and stmt.kind == LoopKind.SERIAL and (load := _panel_load(stmt, name)) is not None:
            return dataclasses.replace(stmt, body=seq(*_prefetches(passes, count, stmt, load, elements), stmt.body))
        return map_children(stmt, lambda c: visit(c) if isinstance(c, Stmt) else c)

    return dataclasses.replace(passes, body=visit(passes.body))


def _panel_load(loop: For, name: str) -> BufferLoad | None:
    """The first load of the buffer, where it moves with this loop and with no serial loop further inside."""
    found = [n for n in walk(loop.body) if isinstance(n, BufferLoad) and n.buffer.name == name]
    serial = [n for n in walk(loop.body) if isinstance(n, For) and n.kind == LoopKind.SERIAL]
    if not found or not any(loop.loop_var in free_vars(i) for i in found[0].indices):
        return None
    if any(n.loop_var in free_vars(i) for n in serial for i in found[0].indices):
        return None
    return found[0]


def _prefetches(passes: For, count: int, loop: For, load: BufferLoad, elements: int) -> list[Stmt]:
    steps = const_int(loop.extent)
    if steps is None:
        return []
    share = -(-elements // (count * steps))  # of one step of one pass
    inner = {n.loop_var: n.start for n in walk(loop.body) if isinstance(n, For)}
    start: Mapping[Var, PrimExpr] = {**inner, loop.loop_var: loop.start}
    *outer, last = (substitute(i, start) for i in load.indices)
    done = (passes.loop_var - passes.start) * steps + (loop.loop_var - loop.start)
    first = last + elements + cast(last.dtype, done) * share
    lines = range(0, share, LINE_ELEMENTS)
    at = (BufferLoad(load.buffer, (*outer, first + const(line, last.dtype))) for line in lines)
    return [Evaluate(E.Call("prefetch", (x,), "int32")) for x in at]


__all__ = ["PREFETCH_NEXT", "spread_prefetches"]
