"""Second names of buffer regions, and how to do without them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr, add, cast
from autosched.tir.functor import rewrite
from autosched.tir.stmt import BufferStore, MatchBufferRegion, Stmt


def inline_matches(body: Stmt, matches: Sequence[MatchBufferRegion]) -> Stmt:
    """Accesses of matched buffers as accesses of their sources, moved by the start of the regions."""
    for match in reversed(matches):
        body = _inline(body, match)
    return body


def _inline(body: Stmt, match: MatchBufferRegion) -> Stmt:
    source, region = match.source.buffer, match.source.region
    extra = len(region) - len(match.buffer.shape)

    def indices(old: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(r.min for r in region[:extra]) + tuple(
            add(r.min, cast(r.min.dtype, i)) for r, i in zip(region[extra:], old, strict=True)
        )

    def step(node: object) -> object:
        if isinstance(node, BufferLoad) and node.buffer is match.buffer:
            return BufferLoad(source, indices(node.indices))
        if isinstance(node, BufferStore) and node.buffer is match.buffer:
            return BufferStore(source, node.value, indices(node.indices))
        return node

    result: Stmt = rewrite(body, step)
    return result
