"""Requests of the lines that the next piece of work will copy, spread over what the present one computes.

A loop over pieces with the annotation "prefetch_copies": {copied buffer: buffer} has a nest that copies a part of the
first buffer into scratch, then one that reads the second. Nothing is computed while a copy waits for its lines, and a
core has no more than 16 of them on their way.

Before:  for piece: {for row in 5: copy[row, …] = data[piece, row, …]}; {for tile in 4: for k in 144: …weight[k]…}
After:   for piece: {for row in 5: copy[row, …] = data[piece, row, …]};
                    {for tile in 4: for k in 144: prefetch(data[piece + 1, …]); …weight[k]…}
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from autosched.codegen.lower.prefetch_next import insert_first
from autosched.codegen.lower.prefetch_window import accesses, steps_of
from autosched.ir.node import map_children, preorder
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, cast, const, const_int, floordiv, floormod, minimum
from autosched.tir.functor import substitute
from autosched.tir.prefetch import LINE_BYTES, PREFETCH_COPIES, loops_to, request, wanted_by
from autosched.tir.stmt import For, Stmt

MOST_LINES = 4  # at once: a core waits for 16 at most
# Of the steps: where fewer ask for lines of the next piece, the others shall ask for none behind it. To find out takes
# longer than a few lines too many: 64 channels in groups of 16, 112x112 with stride 2, 230 us instead of 207.
LEAST_ASKING = 0.8


def prefetch_copies(stmt: Stmt) -> Stmt:
    """The statement with the requests that loops over pieces of work ask for."""
    if isinstance(stmt, For) and PREFETCH_COPIES in stmt.annotations:
        left = {k: v for k, v in stmt.annotations.items() if k != PREFETCH_COPIES}
        wanted = wanted_by(stmt, PREFETCH_COPIES)
        stmt = dataclasses.replace(stmt, annotations=left)
        for copied, read in wanted.items():
            stmt = _with_requests(stmt, copied, str(read))
        return stmt
    return map_children(stmt, lambda c: prefetch_copies(c) if isinstance(c, Stmt) else c)


def _with_requests(pieces: For, copied: str, read: str) -> For:
    """The loop whose pieces ask for all lines that the next one copies, if these lie in runs of some length."""
    found = next(accesses(pieces.body, BufferLoad, copied), None)
    path = [n for n in loops_to(pieces, read)[0][1:] if const_int(n.extent) != 1]
    if found is None or not path or not all(map(_count, (*path, *found[1]))):
        return pieces
    load, inner = found
    moves = steps_of(load, [n.loop_var for n in inner])
    by_data = any(isinstance(x, BufferLoad) for i in load.indices for x in preorder(i))  # of no piece behind the last
    if moves is None or min(moves.values(), default=0) < 0 or by_data:
        return pieces
    start = {n.loop_var: n.start for n in inner} | {pieces.loop_var: pieces.loop_var + const(1, pieces.loop_var.dtype)}
    apart, run = _runs(inner, moves)
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    lines, runs = -(-run // line), math.prod(map(_count, apart))
    while len(path) > 1 and math.prod(map(_count, path[:-1])) >= runs * -(-lines // MOST_LINES):
        path.pop()
    steps = math.prod(map(_count, path))
    at_once = next((n for n in range(1, MOST_LINES + 1) if runs * -(-lines // n) <= steps), None)
    if at_once is None:
        return pieces
    of_run, dtype = -(-lines // at_once), pieces.loop_var.dtype
    done: PrimExpr = const(0, dtype)
    for n in path:
        done = done * n.extent + (n.loop_var - n.start)
    if steps * LEAST_ASKING > runs * of_run:
        done = minimum(done, const(runs * of_run - 1, dtype))  # the last ones again
    rest, within = (floordiv(done, of_run), floormod(done, of_run)) if apart else (done, done)
    for n in reversed(apart):
        start[n.loop_var] = n.start + floormod(rest, n.extent)
        rest = floordiv(rest, n.extent)
    *outer, last = (substitute(i, start) for i in load.indices)
    at = BufferLoad(load.buffer, (*outer, last + cast(last.dtype, within) * (at_once * line)))
    return insert_first(pieces, path[-1], [request(at, ((n,) for n in range(0, at_once * line, line)))])


def _runs(loops: Sequence[For], moves: Mapping[Var, int]) -> tuple[list[For], int]:
    """(the outer loops between whose iterations the elements that others read have gaps, elements in each run)."""
    apart = list(loops)
    run = count = 1
    while apart:
        more, each = _count(apart[-1]), moves[apart[-1].loop_var]
        if run + (more - 1) * each > count * more:
            break
        run, count = run + (more - 1) * each, count * more
        apart.pop()
    return [n for n in apart if _count(n) > 1], run


def _count(loop: For) -> int:
    return const_int(loop.extent) or 0


__all__ = ["prefetch_copies"]
