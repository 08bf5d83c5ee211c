"""Loop nests of templates that write their statements themselves, where no schedule leads to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import rewrite, substitute
from autosched.tir.stmt import Block, BufferStore, For, LoopKind, Stmt

INDEX = "int32"
At = Callable[[tuple[PrimExpr, ...]], PrimExpr]


def index(value: int) -> IntImm:
    """A constant of the type of loop variables."""
    return IntImm(value, INDEX)


def loop(
    name: str, extent: int | PrimExpr, body: Callable[[Var], Stmt], kind: LoopKind = LoopKind.SERIAL, thread: str = "",
    annotations: Mapping[str, object] | None = None,
) -> Stmt:  # fmt: skip
    """A loop from 0, whose variable has the type of the extent."""
    count = index(extent) if isinstance(extent, int) else extent
    var = Var(name, count.dtype)
    return For(var, E.const(0, count.dtype), count, kind, body(var), thread, FrozenDict(annotations or {}))


def nested(
    names: str, extents: Sequence[int | PrimExpr], body: Callable[..., Stmt], kind: LoopKind = LoopKind.SERIAL
) -> Stmt:
    """Loops inside of each other; `names` are separated by blanks, `body` takes their variables."""
    first, _, rest = names.partition(" ")

    def inner(var: Var) -> Stmt:
        return nested(rest, extents[1:], lambda *others: body(var, *others), kind) if rest else body(var)

    return loop(first, extents[0], inner, kind)


def unrolled(names: str, extents: Sequence[int], body: Callable[..., Stmt]) -> Stmt:
    """Nested loops without jumps."""
    return nested(names, extents, body, LoopKind.UNROLLED)


def lanes(count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """Neighbours of one access."""
    return loop("lane", count, body, LoopKind.VECTORIZED) if count > 1 else body(index(0))


def value_at(
    blocks: Mapping[Buffer, Block], buffer: Buffer, indices: Sequence[PrimExpr], known: Mapping[Buffer, At]
) -> PrimExpr:
    """An element of what element-wise blocks compute, in terms of arguments and of `known` elements.

    blocks   the block that writes each buffer
    known    what elements of some buffers are
    """
    if buffer in known:
        return known[buffer](tuple(indices))
    if buffer not in blocks:
        return BufferLoad(buffer, tuple(indices))
    found = blocks[buffer]
    assert isinstance(found.body, BufferStore), "an element-wise block is one store"
    variables = [iv.var for iv in found.iter_vars]
    values: dict[Var, PrimExpr] = {v: E.cast(v.dtype, i) for v, i in zip(variables, indices, strict=True)}

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and (x.buffer in known or x.buffer in blocks):
            return value_at(blocks, x.buffer, x.indices, known)
        return x

    result: PrimExpr = rewrite(substitute(found.body.value, values), step)
    return result


def element_of(load: BufferLoad, axes: Sequence[IterVar], values: Sequence[PrimExpr]) -> PrimExpr:
    """What a block loads, for given values of its axes."""
    return substitute(load, {iv.var: E.cast(iv.var.dtype, v) for iv, v in zip(axes, values, strict=True)})
