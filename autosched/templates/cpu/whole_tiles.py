"""Tiles of rows computed whole: those of the last one that are no rows repeat the last row, and are not stored.

       for r in unroll(8): if tile * 8 + r < m: acc[r] += x[tile * 8 + r] * w
    -> for r in unroll(8): acc[r] += x[min(tile * 8 + r, m - 1)] * w

A length that comes with the call then costs no branch inside the loops over products.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Var, all_of
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.schedule.inline import with_regions
from autosched.tir.simplify import split_conditions
from autosched.tir.stmt import BlockRealize, Stmt


def compute_whole(func: PrimFunc, whole: Mapping[str, Collection[Var]]) -> PrimFunc:
    """A scheduled function without conditions on the loops of ragged tiles, in blocks whose results stay inside.

    whole   names of such blocks -> loops over tiles in which they are computed whole; of the buffers that they read at
            these loops' places, inputs are read at their last place instead of behind it, and others are padded
    """
    inputs = frozenset(func.buffers)

    def step(x: object) -> object:
        if not isinstance(x, BlockRealize) or not (loops := frozenset(whole.get(x.block.name_hint, ()))):
            return x
        pairs = zip(x.block.iter_vars, x.iter_values, strict=True)
        ragged = frozenset(iv.var for iv, value in pairs if loops & free_vars(value))
        kept = [c for c in split_conditions(x.predicate) if not loops & free_vars(c)]
        body = _within(x.block.body, ragged, inputs)
        return replace(x, predicate=all_of(*kept), block=with_regions(replace(x.block, body=body)))

    return rewrite(func, step)


def _within(stmt: Stmt, ragged: frozenset[Var], inputs: frozenset[Buffer]) -> Stmt:
    """A block's body that reads no input behind its last place."""

    def step(x: object) -> object:
        if not isinstance(x, BufferLoad) or x.buffer not in inputs:
            return x
        pairs = zip(x.indices, x.buffer.shape, strict=True)
        return replace(x, indices=tuple(E.minimum(i, E.sub(n, 1)) if ragged & free_vars(i) else i for i, n in pairs))

    return rewrite(stmt, step)
