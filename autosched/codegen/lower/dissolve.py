"""Replaces blocks by their bodies: iteration variables by their values, predicates by conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosched.codegen.lower.loops import guarded
from autosched.ir.node import walk
from autosched.tir.expr import Buffer, BufferLoad, PrimExpr, Var, add
from autosched.tir.functor import rewrite, substitute
from autosched.tir.simplify import fold
from autosched.tir.stmt import Block, BlockRealize, BufferStore, MatchBufferRegion, Stmt


def dissolve_blocks(root: BlockRealize) -> tuple[Stmt, tuple[Buffer, ...]]:
    """(statements without blocks, all buffers that blocks allocate in order of appearance)."""
    buffers = [b for node in walk(root) if isinstance(node, Block) for b in node.alloc_buffers]
    return _dissolve(root), tuple(dict.fromkeys(buffers))


def _dissolve(root: BlockRealize) -> Stmt:
    def step(node: Any) -> Any:
        if isinstance(node, PrimExpr):
            return fold(node)
        if not isinstance(node, BlockRealize):
            return node
        block = node.block
        body = block.body
        for match in reversed(block.match_buffers):
            body = _inline_match(body, match)
        values: Mapping[Var, PrimExpr] = {
            iv.var: value for iv, value in zip(block.iter_vars, node.iter_values, strict=True) if iv.var is not value
        }
        return guarded(node.predicate, substitute(body, values))

    result: Stmt = rewrite(root, step)
    return result


def _inline_match(body: Stmt, match: MatchBufferRegion) -> Stmt:
    """Accesses of a matched buffer as accesses of its source, moved by the start of the region."""
    source, region = match.source.buffer, match.source.region
    extra = len(region) - len(match.buffer.shape)

    def indices(old: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(r.min for r in region[:extra]) + tuple(
            add(r.min, i) for r, i in zip(region[extra:], old, strict=True)
        )

    def step(node: Any) -> Any:
        if isinstance(node, BufferLoad) and node.buffer is match.buffer:
            return BufferLoad(source, indices(node.indices))
        if isinstance(node, BufferStore) and node.buffer is match.buffer:
            return BufferStore(source, node.value, indices(node.indices))
        return node

    return rewrite(body, step)
