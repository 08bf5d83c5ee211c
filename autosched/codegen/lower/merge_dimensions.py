"""Makes one dimension of those that a function counts through together: boxes of tensors are cut from them.

Before:  x: [8, 4, 56, 56]     x[n, c, p // 56, p % 56]
After:   x: [8, 4, 3136]       x[n, c, p]

Dimensions of one element join their neighbours. Each element stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autosched.ir.node import FrozenDict, preorder
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite
from autosched.tir.simplify import form_key
from autosched.tir.stmt import BufferRegion, BufferStore

Groups = tuple[tuple[int, ...], ...]  # neighbouring dimensions that become one


def merge_dimensions(func: PrimFunc) -> PrimFunc:
    """The function with arguments of fewer dimensions where all accesses allow it; itself where none does."""
    addressed = {x.buffer for x in preorder(func.body) if isinstance(x, BufferData)}
    accesses: dict[Buffer, list[tuple[PrimExpr, ...]]] = {}
    for x in preorder(func.body):
        if isinstance(x, BufferLoad | BufferStore):
            accesses.setdefault(x.buffer, []).append(x.indices)
    made: dict[Buffer, tuple[Buffer, Groups]] = {}
    for buffer in func.buffers:
        shape = [const_int(n) or 0 for n in buffer.shape]
        if buffer in addressed or buffer.strides or buffer not in accesses or 0 in shape or len(shape) < 2:
            continue
        groups = _groups(shape, accesses[buffer])
        if len(groups) < len(shape):
            sizes = (math.prod(shape[d] for d in dims) for dims in groups)
            made[buffer] = replace(buffer, shape=tuple(IntImm(n, buffer.shape[0].dtype) for n in sizes)), groups
    if not made:
        return func

    def step(x: object) -> object:
        if isinstance(x, BufferLoad | BufferStore) and x.buffer in made:
            new, groups = made[x.buffer]
            shape = [const_int(n) or 0 for n in x.buffer.shape]
            return replace(x, buffer=new, indices=tuple(_joined(shape, x.indices, dims) for dims in groups))
        if isinstance(x, BufferRegion) and x.buffer in made:
            new, _ = made[x.buffer]
            return BufferRegion(new, tuple(Range(IntImm(0, n.dtype), n) for n in new.shape))
        return x

    buffers = {p: made[b][0] if b in made else b for p, b in func.buffer_map.items()}
    return replace(func, buffer_map=FrozenDict(buffers), body=rewrite(func.body, step))


def _groups(shape: Sequence[int], accesses: Sequence[Sequence[PrimExpr]]) -> Groups:
    """Which neighbouring dimensions each access counts through together."""
    groups: list[tuple[int, ...]] = [(0,)]
    for d in range(1, len(shape)):
        wider = (*groups[-1], d)
        if all(_join(shape, indices, wider) is not None for indices in accesses):
            groups[-1] = wider
        else:
            groups.append((d,))
    return tuple(groups)


def _joined(shape: Sequence[int], indices: Sequence[PrimExpr], dims: Sequence[int]) -> PrimExpr:
    found = _join(shape, indices, dims)
    assert found is not None, "these dimensions were found to be counted through together"
    return found


def _join(shape: Sequence[int], indices: Sequence[PrimExpr], dims: Sequence[int]) -> PrimExpr | None:
    """The number whose digits are the indices of neighbouring dimensions; None where they are no digits of one."""
    size, number = shape[dims[0]], indices[dims[0]]
    for d in dims[1:]:
        own = indices[d]
        if shape[d] == 1 and const_int(own) == 0:
            continue
        if size == 1 and const_int(number) == 0:
            size, number = shape[d], own
            continue
        is_digit = isinstance(own, E.FloorMod) and const_int(own.b) == shape[d]
        is_rest = isinstance(number, E.FloorDiv) and const_int(number.b) == shape[d]
        if not is_digit or not is_rest or form_key(own.a) != form_key(number.a):  # type: ignore[attr-defined]
            return None
        size, number = size * shape[d], number.a  # type: ignore[attr-defined]
    return number


__all__ = ["merge_dimensions"]
