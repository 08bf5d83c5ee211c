"""Requests, to write to them, of the lines that a piece of work stores at its end, spread over what it computes before.

A loop over pieces with the annotation "prefetch_stores": {stored buffer: buffer} has a nest that reads the second
buffer, then one that stores the first. Another core may have read or written these lines in an earlier kernel: then
each takes 5 to 8 ns to become this core's own (Emerald Rapids), longer than a window of 3x3 takes to compute.

Before:  for piece: {for tile in 14: for c in 6: …weight[…]…}; {for row in 14: out[…] = …}
After:   for piece: {for tile in 14: for c in 6: prefetch(out[…], 1, …); …weight[…]…}; {for row in 14: out[…] = …}
"""

from __future__ import annotations

import dataclasses
import math

from autosched.codegen.lower.prefetch_next import insert_first
from autosched.codegen.lower.prefetch_window import accesses, steps_of
from autosched.ir.node import map_children
from autosched.tir.buffer import BufferLoad, BufferStore
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import cast, const, const_int, minimum
from autosched.tir.functor import substitute
from autosched.tir.prefetch import LINE_BYTES, PREFETCH_STORES, TO_WRITE, loops_to, request, wanted_by
from autosched.tir.stmt import For, Stmt

LINES_AT_ONCE = 6  # by each step, which takes 75 ns


def prefetch_stores(stmt: Stmt) -> Stmt:
    """The statement with the requests that loops over pieces of work ask for."""
    if isinstance(stmt, For) and PREFETCH_STORES in stmt.annotations:
        wanted = wanted_by(stmt, PREFETCH_STORES)
        stmt = dataclasses.replace(
            stmt, annotations={k: v for k, v in stmt.annotations.items() if k != PREFETCH_STORES}
        )
        for stored, read in wanted.items():
            stmt = _with_requests(stmt, stored, str(read))
        return stmt
    return map_children(stmt, lambda c: prefetch_stores(c) if isinstance(c, Stmt) else c)


def _with_requests(pieces: For, stored: str, read: str) -> For:
    """The loop whose pieces ask for all lines from the first that they store to the last, if there are none between."""
    found = next(accesses(pieces.body, BufferStore, stored), None)
    path = [n for n in loops_to(pieces, read)[0][1:] if const_int(n.extent) != 1]
    if found is None or len(path) < 2 or (tiles := const_int(path[0].extent)) is None:
        return pieces
    store, inner = found
    steps, counts = steps_of(store, [n.loop_var for n in inner]), [const_int(n.extent) or 0 for n in inner]
    if steps is None or 0 in counts or min(steps.values()) < 0:
        return pieces
    span = 1 + sum((count - 1) * step for count, step in zip(counts, steps.values(), strict=True))
    if span > math.prod(counts):
        return pieces
    line = LINE_BYTES // item_bytes(store.buffer.dtype)
    of_tile = -(-span // (tiles * line))  # lines
    of_step = min(LINES_AT_ONCE, of_tile)
    tile, step = (n.loop_var - n.start for n in path[:2])
    *outer, last = (substitute(i, {n.loop_var: n.start for n in inner}) for i in store.indices)
    first = tile * of_tile + minimum(step * of_step, const(of_tile - of_step, step.dtype))  # the last ones again
    at = BufferLoad(store.buffer, (*outer, last + cast(last.dtype, first) * line))
    return insert_first(pieces, path[1], [request(at, ((n,) for n in range(0, of_step * line, line)), TO_WRITE)])


__all__ = ["prefetch_stores"]
