"""A function around its anchor: what feeds it and what follows it; steps that templates of all back ends share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from autosched.errors import ScheduleError
from autosched.templates.classify import blocks_of, is_injective
from autosched.tir import Block, BufferStore, PrimFunc
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import loads
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import form_key


@dataclass(frozen=True)
class Chain:
    """A function around its anchor: `before` feeds the anchor, `after` are its element-wise consumers in order."""

    before: tuple[Block, ...]
    anchor: Block
    after: tuple[Block, ...]


def chain_around(func: PrimFunc, anchor: Block) -> Chain | None:
    """The blocks around the anchor, where those behind it are element-wise over the anchor's own domain."""
    blocks = blocks_of(func)
    at = next(i for i, b in enumerate(blocks) if b is anchor)
    after = blocks[at + 1 :]
    if consumers(anchor, after) != after:
        return None
    if too_large_to_inline((*blocks[:at], anchor)) or too_large_to_inline(after):
        return None
    return Chain(blocks[:at], anchor, after)


def consumers(anchor: Block, behind: tuple[Block, ...]) -> tuple[Block, ...]:
    """The first of the blocks behind an anchor, as many as are element-wise over its domain, each on the one before."""
    written = anchor.writes[0].buffer
    for count, block in enumerate(behind):
        if not is_injective(block):
            return behind[:count]
        assert isinstance(block.body, BufferStore), "what is injective stores"
        reads = [x for x in loads(block.body.value) if x.buffer is written]
        if not reads or [*map(_extent, block.body.buffer.shape)] != [*map(_extent, written.shape)]:
            return behind[:count]
        if any(not _same_indices(x.indices, block.body.indices) for x in reads):
            return behind[:count]
        written = block.body.buffer
    return behind


def _extent(size: PrimExpr) -> Hashable:
    """A size as its number, of whatever type, or the form of its expression."""
    known = const_int(size)
    return form_key(size) if known is None else known


def _same_indices(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Whether both name the same element, a dimension of one counting for 0."""
    return len(a) == len(b) and all(x is y or getattr(x, "value", 1) == 0 for x, y in zip(a, b, strict=True))


def schedule_epilogue(sch: Schedule, chain: Chain) -> str:
    """Fold all consumers into one and give the anchor registers; the name of the block that writes the result.

    Without consumers the anchor gets a copy block behind it, so that the tile is always: start, update, write.
    """
    for block in chain.after[:-1]:
        sch.compute_inline(block.name_hint)
    anchor = chain.anchor.name_hint
    if not chain.after:
        copy: Block = sch.get(sch.cache_write(anchor, 0, "local"))
        return copy.name_hint
    sch.set_scope(anchor, 0, "local")
    return chain.after[-1].name_hint


def require(condition: bool, message: str) -> None:
    """Refuse a configuration that the template cannot apply."""
    if not condition:
        raise ScheduleError(message)
