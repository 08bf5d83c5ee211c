"""Two schedules of one function, between which a size of the call chooses: see `either`."""

from __future__ import annotations

from autosched.codegen.lower.launches import LAUNCHED
from autosched.ir.node import FrozenDict
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.function import make_root
from autosched.tir.stmt import For, LoopKind, Stmt, seq


def either(size: PrimExpr, one: PrimFunc, other: PrimFunc) -> PrimFunc:
    """The first schedule for a size of 1, else the other one: launches that are made once, or not at all.

        for bx in blockIdx: s(bx)
        for bx in blockIdx: t(bx)
     -> for _ in range(2 - min(size, 2)):           # annotation "launched_each_time"
            for bx in blockIdx: s(bx)
        for _ in range(min(size, 2) - 1):
            for bx in blockIdx: t(bx)
    Both are of one function, so they have its arguments' buffers and the variables of its sizes.
    """
    two = E.const(2, size.dtype)
    more = E.sub(E.minimum(size, two), E.const(1, size.dtype))
    body = seq(repeated(E.sub(E.const(1, size.dtype), more), one.root.body), repeated(more, other.root.body))
    return other.with_body(make_root(body, (*one.root.alloc_buffers, *other.root.alloc_buffers)))


def repeated(count: PrimExpr, body: Stmt) -> Stmt:
    """Launches that are made so many times, which may be 0."""
    start, notes = E.const(0, count.dtype), FrozenDict({LAUNCHED: True})
    return For(Var("once", count.dtype), start, count, LoopKind.SERIAL, body, annotations=notes)
