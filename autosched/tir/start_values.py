"""Start values of reductions."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeVar

from autosched.ir.node import Node, preorder
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import largest_finite
from autosched.tir.expr import Call, FloatImm, Max, Min, PrimExpr
from autosched.tir.functor import rewrite, statements
from autosched.tir.stmt import BufferStore

N = TypeVar("N", bound=Node)


def infinite_start(update: PrimExpr, start: PrimExpr) -> PrimExpr:
    """The start value of a reduction; an infinity where floats' last finite number starts a maximum or minimum.

    Functions start with finite numbers, as TVM's do, but the largest of nothing but -inf is -inf.
    """
    if not isinstance(start, FloatImm) or not isinstance(update, Max | Min):
        return start
    last, sign = largest_finite(start.dtype), -1.0 if isinstance(update, Max) else 1.0
    return FloatImm(sign * math.inf, start.dtype) if start.value == sign * last else start


def start_at_infinity(body: N) -> N:
    """The statement with such start values in all buffers that nothing but one kind of extremum is stored to.

    Beside exponentials they stay finite: a running maximum is subtracted from others, and inf - inf is no number.
    """
    if any(isinstance(n, Call) and n.op in ("exp", "exp2") for n in preorder(body)):
        return body
    updates: dict[Buffer, list[PrimExpr]] = {}
    for store in (n for n in statements(body) if isinstance(n, BufferStore)):
        updates.setdefault(store.buffer, []).append(store.value)
    found: dict[Buffer, PrimExpr] = {}
    for buffer, values in updates.items():
        rest = [v for v in values if not isinstance(v, FloatImm)]
        own = all(isinstance(v, Max | Min) and isinstance(v.a, BufferLoad) and v.a.buffer is buffer for v in rest)
        if rest and own and len({type(v) for v in rest}) == 1:
            found[buffer] = rest[0]
    if not found:
        return body

    def step(x: object) -> object:
        if not isinstance(x, BufferStore) or x.buffer not in found:
            return x
        value = infinite_start(found[x.buffer], x.value)
        if isinstance(value, Max | Min):
            value = _with_infinite_tail(value)
        return x if value is x.value else dataclasses.replace(x, value=value)

    return rewrite(body, step)


def _with_infinite_tail(update: Max | Min) -> Max | Min:
    """A step of a reduction whose element is the start value behind the end of an axis: the same infinity there."""
    match update.b:
        case Call("if_then_else", (guard, element, FloatImm() as beyond)):
            infinite = infinite_start(update, beyond)
            if infinite is not beyond:
                return type(update)(update.a, dataclasses.replace(update.b, args=(guard, element, infinite)))
    return update
