"""What kind of computation a block is, read from its form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from autosched.ir.node import preorder
from autosched.tir import (
    REDUCE,
    Add,
    Block,
    BufferLoad,
    BufferStore,
    Cast,
    IterVar,
    Mul,
    PrimExpr,
    PrimFunc,
    Var,
    as_int,
)  # fmt: skip
from autosched.tir.functor import blocks as blocks_below
from autosched.tir.functor import free_vars, loads


@lru_cache(maxsize=64)
def blocks_of(func: PrimFunc) -> tuple[Block, ...]:
    """The blocks of an unscheduled function in order, without the root."""
    return tuple(b for b in blocks_below(func.body) if b is not func.root)


def is_reduction(block: Block) -> bool:
    return any(iv.kind == REDUCE for iv in block.iter_vars)


def is_injective(block: Block) -> bool:
    """Whether the block computes each element of one buffer once, on its own, at its own indices."""
    if is_reduction(block) or block.init is not None or not isinstance(block.body, BufferStore):
        return False
    variables = [iv.var for iv in block.iter_vars]
    return len(block.body.indices) == len(variables) and all(
        i is v for i, v in zip(block.body.indices, variables, strict=True)
    )


def alike_axes(block: Block) -> int:
    """How many innermost axes every access runs along contiguously, exactly as the output does, or not at all."""
    if not is_injective(block):
        return 1
    assert isinstance(block.body, BufferStore)
    out = block.body.indices
    accesses = loads(block.body.value)
    depth = 1
    while depth < len(out) and all(_goes_along(x, block.body, depth + 1) for x in accesses):
        depth += 1
    return depth


def _goes_along(load: BufferLoad, store: BufferStore, depth: int) -> bool:
    """Whether a load's last `depth` indices are those of the store, or none of its indices depends on those."""
    out, shape = store.indices[-depth:], store.buffer.const_shape()[-depth:]
    if len(load.indices) >= depth and load.buffer.const_shape()[-depth:] == shape:
        if all(x is y for x, y in zip(load.indices[-depth:], out, strict=True)):
            return True
    moving = {v for x in out for v in free_vars(x)}
    return not any(moving & set(free_vars(x)) for x in load.indices)


def spatial(block: Block) -> tuple[IterVar, ...]:
    return tuple(iv for iv in block.iter_vars if iv.kind != REDUCE)


def reduced(block: Block) -> tuple[IterVar, ...]:
    return tuple(iv for iv in block.iter_vars if iv.kind == REDUCE)


def extents(axes: tuple[IterVar, ...]) -> tuple[int, ...]:
    return tuple(as_int(iv.dom.extent) for iv in axes)


@dataclass(frozen=True)
class Contraction:
    """A block that computes out[…] += a[…] * b[…]."""

    block: Block
    a: BufferLoad
    b: BufferLoad


def _operand(x: PrimExpr) -> BufferLoad | None:
    while isinstance(x, Cast):
        x = x.value
    return x if isinstance(x, BufferLoad) else None


def contraction(block: Block) -> Contraction | None:
    """The two factors of a sum-of-products block, or None for any other."""
    body = block.body
    if not is_reduction(block) or not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return None
    left, right = body.value.a, body.value.b
    own = left if isinstance(left, BufferLoad) and left.buffer is body.buffer else None
    if own is None or not isinstance(right, Mul | Cast):
        return None
    while isinstance(right, Cast):
        right = right.value
    if not isinstance(right, Mul):
        return None
    a, b = _operand(right.a), _operand(right.b)
    return Contraction(block, a, b) if a is not None and b is not None else None


def find_contraction(func: PrimFunc) -> Contraction | None:
    """The one contraction among the blocks; None where there is none or more than one."""
    found = [c for c in map(contraction, blocks_of(func)) if c is not None]
    return found[0] if len(found) == 1 else None


def index_vars(load: BufferLoad) -> tuple[Var, ...] | None:
    """The variables of an access whose indices are plain variables (or 0 in dimensions of one), else None."""
    result = []
    for i in load.indices:
        if isinstance(i, Var):
            result.append(i)
        elif free_vars(i):
            return None
    return tuple(result)


def producers_of(func: PrimFunc, load: BufferLoad) -> tuple[Block, ...]:
    """The blocks that write what `load` reads; empty for a parameter."""

    def writes(block: Block) -> bool:
        return any(isinstance(x, BufferStore) and x.buffer is load.buffer for x in preorder(block.body))

    return tuple(filter(writes, blocks_of(func)))


def is_parameter(func: PrimFunc, load: BufferLoad) -> bool:
    return any(b is load.buffer for b in func.buffers)
