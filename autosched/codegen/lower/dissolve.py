"""Replaces blocks by their bodies: iteration variables by their values, predicates by conditions."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.codegen.lower.loops import guarded
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import rewrite, statements, substitute
from autosched.tir.match import inline_matches
from autosched.tir.simplify import fold
from autosched.tir.stmt import Block, BlockRealize, Stmt


def dissolve_blocks(root: BlockRealize) -> tuple[Stmt, tuple[Buffer, ...]]:
    """(statements without blocks, all buffers that blocks allocate in order of appearance)."""
    buffers = [b for node in statements(root) if isinstance(node, Block) for b in node.alloc_buffers]
    return _dissolve(root), tuple(dict.fromkeys(buffers))


def _dissolve(root: BlockRealize) -> Stmt:
    def step(node: object) -> object:
        if isinstance(node, PrimExpr):
            return fold(node)
        if not isinstance(node, BlockRealize):
            return node
        block = node.block
        body = inline_matches(block.body, block.match_buffers)
        values: Mapping[Var, PrimExpr] = {
            iv.var: value for iv, value in zip(block.iter_vars, node.iter_values, strict=True) if iv.var is not value
        }
        return guarded(node.predicate, substitute(body, values))

    result: Stmt = rewrite(root, step)
    return result
