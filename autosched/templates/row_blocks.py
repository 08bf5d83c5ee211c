"""Reductions along the innermost axis and what hangs on them, such as softmax and LayerNorm: how they are found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.errors import ScheduleError
from autosched.ir.node import preorder
from autosched.templates.base import Anchor
from autosched.templates.classify import (
    blocks_of,
    extents,
    find_contraction,
    is_injective,
    is_reduction,
    reduced,
    spatial,
)
from autosched.tir import Block, BufferLoad, BufferStore, Call, PrimFunc
from autosched.tir.expr import const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import form_key


@dataclass(frozen=True)
class Rows:
    """How many leading output axes count rows, the extent of the innermost of them, and the blocks in order."""

    row_axes: int
    innermost: int
    blocks: tuple[Block, ...]


def _reduces_innermost(block: Block, several: bool) -> bool:
    """One reduction axis, or `several`, of which the last runs along the last dimension of what is read."""
    if not reduced(block) or len(reduced(block)) > 1 and not several or not isinstance(block.body, BufferStore):
        return False
    k = reduced(block)[-1].var
    own = block.body.buffer
    reads = [x for x in loads(block.body.value) if x.buffer is not own]
    return bool(reads) and any(x.indices and x.indices[-1] is k for x in reads)


def contiguous_axes(block: Block, most: int) -> int:
    """How many of a block's last axes, `most` at most, every access goes along as one, or none of them at all.

    That is those of a reduction where it is one, and whole dimensions of what is read and written.
    """
    assert isinstance(block.body, BufferStore)
    store = block.body
    accesses = [(x.buffer, x.indices) for x in loads(store.value)] + [(store.buffer, store.indices)]

    def alike(count: int) -> bool:
        axes = block.iter_vars[-count:]
        along = {iv.var for iv in axes}
        return len({iv.kind for iv in axes}) == 1 and all(
            len(indices) >= count
            and all(i is iv.var for i, iv in zip(indices[-count:], axes, strict=True))
            and not any(along & free_vars(i) for i in indices[:-count])
            and tuple(map(const_int, buffer.shape[-count:])) == extents(axes)
            for buffer, indices in accesses
            if any(along & free_vars(i) for i in indices)
        )

    return next((n for n in range(min(most, len(block.iter_vars)), 1, -1) if alike(n)), 1)


def _row_axes(block: Block) -> int:
    """Leading output axes of a reduction that are not of extent one (those that keepdims leaves); one at least."""
    whole = extents(spatial(block))
    shape = whole
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return max(len(shape), min(len(whole), 1))


def match_rows(func: PrimFunc, squares: bool = False, several: bool = False) -> Anchor | None:
    """The anchor of a function whose reductions all run along the last axis of the same rows, else None.

    squares   sums of squares are reductions of rows too, as RMSNorm's, and no products of two operands
    several   rows may have several axes, of which the last is the innermost, and there may be one row, without an axis
    """
    blocks = blocks_of(func)
    reductions = [b for b in blocks if is_reduction(b)]
    product = find_contraction(func)
    if product is not None and not (squares and _is_square(product.a, product.b)):
        return None
    if not reductions or not all(_reduces_innermost(b, several) for b in reductions):
        return None
    if not all(is_injective(b) or is_reduction(b) for b in blocks):
        return None
    axes = max(_row_axes(b) for b in reductions)
    rows = extents(spatial(reductions[0]))[:axes]
    if (axes == 0 and not several) or any(extents(spatial(b))[:axes] != rows for b in blocks):
        return None
    length = math.prod(extents(reduced(reductions[0])))
    sizes = {"rows": math.prod(rows), "length": length}
    op = "softmax" if len(reductions) == 2 else "rows"
    return Anchor(reductions[0].name_hint, op, sizes, Rows(axes, rows[-1] if rows else 1, blocks))


def _is_square(a: BufferLoad, b: BufferLoad) -> bool:
    """Whether both factors of a product are the same element."""
    return a.buffer is b.buffer and [*map(form_key, a.indices)] == [*map(form_key, b.indices)]


def match_rows_of_one_result(func: PrimFunc, several: bool = False) -> Anchor | None:
    """The same where the last block alone writes a result: the others are computed where it runs."""
    found = match_rows(func, squares=True, several=several)
    results = {id(b) for b in func.buffers}
    if found is None or any(id(b.writes[0].buffer) in results for b in found.details.blocks[:-1]):
        return None
    return found


def inline_cheap(sch: Schedule, blocks: tuple[Block, ...]) -> None:
    """Fold element-wise blocks with one consumer, or without transcendental functions, into their consumers."""
    kept = too_large_to_inline(blocks)
    for block in blocks[:-1]:
        if not is_injective(block) or block in kept:
            continue
        consumers = sch.get_consumers(block.name_hint)
        if len(consumers) == 1 or not is_costly(block):
            try:
                sch.compute_inline(block.name_hint)
            except ScheduleError:
                continue  # it stays a block of its own in the row


def is_costly(block: Block) -> bool:
    """Whether the block calls functions that are worth computing once."""
    return any(isinstance(x, Call) and x.op != "if_then_else" for x in preorder(block.body))
