"""One scheduled part of a batch for all parts: the blocks of threads of each lie side by side along blockIdx.x.

Before:  for x in blockIdx.x(4): … out[0, x * 8 + i] = f(a[0, x * 8 + i])                     scheduled for one part
After:   for b in blockIdx.x(n * 4): … out[b // 4, b % 4 * 8 + i] = f(a[b // 4, b % 4 * 8 + i])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched.errors import ScheduleError
from autosched.ir.node import FrozenDict, preorder
from autosched.templates.cuda.threads import BLOCK_X
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import PrimExpr, Var, as_int, const_int
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import rewrite, substitute
from autosched.tir.separable import Share, batch_size, shares
from autosched.tir.stmt import BufferRegion, BufferStore, For, LoopKind, SeqStmt, Stmt


def over_parts(func: PrimFunc, one: PrimFunc) -> PrimFunc:
    """The function over a symbol, each part of which is computed as a function for one part is scheduled.

    one     `func` for a size of 1, scheduled
    Raises  NotSeparableError where the parts depend on each other, ScheduleError where there is device memory between
            launches, of which each part would need its own.
    """
    size, found = batch_size(func), shares(func)
    moved = {
        new: (old if found[old] is not None else new, found[old])  # what all parts read may be packed
        for old, new in zip(func.buffers, one.buffers, strict=True)
    }
    body = one.root.body
    if isinstance(body, SeqStmt) or any(b.scope == "global" for b in one.root.alloc_buffers):
        raise ScheduleError("a part is computed by several launches, and what is between them has no size")
    nest = _each_part(body, size, {new: (old, share) for new, (old, share) in moved.items() if share is not None})
    buffers = {param: moved[b][0] for param, b in one.buffer_map.items()}
    made = dataclasses.replace(one, buffer_map=FrozenDict(buffers))
    return made.with_body(make_root(nest, one.root.alloc_buffers, one.root.annotations))


def _each_part(nest: Stmt, size: Var, moved: Mapping[Buffer, tuple[Buffer, Share]]) -> Stmt:
    """The nest with a loop over the blocks of all parts in place of that along x, or around it."""
    loops = [x for x in preorder(nest) if isinstance(x, For) and x.thread == BLOCK_X]
    if any(const_int(x.extent) is None or const_int(x.start) != 0 for x in loops) or len(loops) > 1:
        raise ScheduleError("the blocks of one part have no one number along x")
    each = as_int(loops[0].extent) if loops else 1
    blocks = Var("blocks", size.dtype)
    part: PrimExpr = E.floordiv(blocks, E.const(each, size.dtype)) if each > 1 else blocks

    def bound(body: Stmt) -> Stmt:
        extent = E.mul(size, E.const(each, size.dtype))
        return For(blocks, E.const(0, size.dtype), extent, LoopKind.THREAD_BINDING, body, BLOCK_X)

    if not loops:
        return bound(_shifted(nest, part, moved))

    def descend(stmt: Stmt) -> Stmt:
        if stmt is loops[0]:
            assert isinstance(stmt, For), "it is the loop along x"
            at = E.floormod(blocks, E.const(each, size.dtype)) if each > 1 else E.const(0, size.dtype)
            inside = substitute(stmt.body, {stmt.loop_var: E.cast(stmt.loop_var.dtype, at)})
            return bound(_shifted(inside, part, moved))
        if not isinstance(stmt, For):
            raise ScheduleError("the loop along blockIdx.x stands below a block")
        return dataclasses.replace(stmt, body=descend(stmt.body))

    return descend(nest)


def _shifted(stmt: Stmt, part: PrimExpr, moved: Mapping[Buffer, tuple[Buffer, Share]]) -> Stmt:
    """The statement with accesses to a part's elements of the arguments for a whole batch."""
    if addressed := [x.buffer.name for x in preorder(stmt) if isinstance(x, BufferData) and x.buffer in moved]:
        raise ScheduleError(f"the address of '{addressed[0]}' is used, which holds something of each part")

    def at(indices: tuple[PrimExpr, ...], share: Share) -> tuple[PrimExpr, ...]:
        first = E.mul(part, E.const(share.per_part, part.dtype))
        return tuple(E.add(i, E.cast(i.dtype, first)) if d == share.axis else i for d, i in enumerate(indices))

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in moved:
            buffer, share = moved[x.buffer]
            return BufferLoad(buffer, at(x.indices, share))
        if isinstance(x, BufferStore) and x.buffer in moved:
            buffer, share = moved[x.buffer]
            return BufferStore(buffer, x.value, at(x.indices, share))
        if isinstance(x, BufferRegion) and x.buffer in moved:
            buffer, share = moved[x.buffer]
            mins = at(tuple(r.min for r in x.region), share)
            ranges = (Range(low, r.extent) for low, r in zip(mins, x.region, strict=True))
            return BufferRegion(buffer, tuple(ranges))
        return x

    return rewrite(stmt, step)


__all__ = ["over_parts"]
