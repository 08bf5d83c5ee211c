"""Causal attention without the work that its mask throws away: keys that no query of a chunk sees are not visited.

    for panel of keys:                 if the chunk's last query sees it: …
    for step of a row in the softmax:  the same
    for t in range(keys that the tile's last query sees): tile += exp[…, t] * v[t, :]

What the diagonal crosses is computed whole and masked, so that the results stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autosched.ir.node import preorder
from autosched.tir import PrimExpr, PrimFunc, Var, as_int, const
from autosched.tir import expr as E
from autosched.tir.functor import rewrite, substitute
from autosched.tir.stmt import BlockRealize, For, IfThenElse


@dataclass(frozen=True)
class Skips:
    """The loops of a scheduled attention that stop early.

    shift   query i sees keys up to i + shift
    widths  loops over panels or steps of keys, and the keys in one iteration
    step    the keys that are visited together or not at all: a multiple of all widths
    chunk   the loop whose iterations have a chunk of queries each, and the block of masked scores below it
    keys    the loop over single keys of the second product, that block, and its dimension that counts queries
    """

    shift: int
    widths: Mapping[Var, int]
    step: int
    chunk: tuple[Var, str]
    keys: tuple[Var, str, int]


def skip_hidden(func: PrimFunc, skips: Skips) -> PrimFunc:
    """The function with the loops of `skips` limited to keys that a query at hand sees."""
    chunk, scaled = skips.chunk
    keys, context, rows = skips.keys
    last = E.add(_last_row(func, chunk, scaled, 2), skips.shift)
    end = E.add(_last_row(func, keys, context, rows), skips.shift + 1)

    def step(x: object) -> object:
        if not isinstance(x, For):
            return x
        if x.loop_var is keys:
            return replace(x, extent=E.minimum(x.extent, end))
        if x.loop_var not in skips.widths:
            return x
        first = E.mul(E.floordiv(x.loop_var, skips.step // skips.widths[x.loop_var]), skips.step)
        # a condition in this form splits no loop: both parts of it would have the same code
        return replace(x, body=IfThenElse(E.Not(E.compare(E.LT, last, first)), x.body))

    return rewrite(func, step)


def _last_row(func: PrimFunc, loop: Var, block: str, dimension: int) -> PrimExpr:
    """The largest value of a block's variable in one iteration of a loop around it."""
    body = next(x.body for x in preorder(func.body) if isinstance(x, For) and x.loop_var is loop)
    realize = next(x for x in preorder(body) if isinstance(x, BlockRealize) and x.block.name_hint == block)
    ends = {x.loop_var: const(as_int(x.extent) - 1, x.loop_var.dtype) for x in preorder(body) if isinstance(x, For)}
    return substitute(realize.iter_values[dimension], ends)
