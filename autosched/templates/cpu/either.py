"""Two schedules of one function, between which the sizes of a call choose: see `either`."""

from __future__ import annotations

import dataclasses

from autosched.ir.structural import structural_equal
from autosched.tir import PrimFunc
from autosched.tir.expr import PrimExpr
from autosched.tir.function import make_root
from autosched.tir.functor import replace_buffers, substitute
from autosched.tir.stmt import For, IfThenElse, LoopKind, Stmt


def either(condition: PrimExpr, func: PrimFunc, other: PrimFunc) -> PrimFunc:
    """The first schedule where a condition on sizes holds, else the other one, inside of the parallel loops of both.

        for b in parallel(n): s(b)
        for b in parallel(n): t(b)
     -> for b in parallel(n):
            if condition: s(b)
            else: t(b)
    Both are of one function, so they have its arguments' buffers and the variables of its sizes.
    """
    own = {buffer: dataclasses.replace(buffer) for buffer in func.root.alloc_buffers}
    body = _either(condition, replace_buffers(func.root.body, own), other.root.body)
    return other.with_body(make_root(body, (*own.values(), *other.root.alloc_buffers), other.root.annotations))


def _either(condition: PrimExpr, a: Stmt, b: Stmt) -> Stmt:
    if (
        isinstance(a, For)
        and isinstance(b, For)
        and a.kind == b.kind == LoopKind.PARALLEL
        and structural_equal(a.extent, b.extent)
    ):
        return dataclasses.replace(b, body=_either(condition, substitute(a.body, {a.loop_var: b.loop_var}), b.body))
    return IfThenElse(condition, a, b)
