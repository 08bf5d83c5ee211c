"""Causal attention without the work that its mask throws away: keys that no query of a chunk sees are not visited.

    for panel of keys:                 if the chunk's last query sees it: …
    for step of a row in the softmax:  the same
    for t in range(keys that the tile's last query sees): tile += exp[…, t] * v[t, :]

What the diagonal crosses is computed whole and masked, so that the results stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autosched.ir.node import walk
from autosched.tir import Block, BufferStore, FloatImm, PrimExpr, PrimFunc, Select, Var, as_int, const
from autosched.tir import expr as E
from autosched.tir.functor import rewrite, substitute
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import BlockRealize, For, IfThenElse


def causal_shift(block: Block) -> int | None:
    """The c for which a block of scores [batch, head, i, j] hides (sets to -inf) all keys j > i + c; None for no c."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    if not isinstance(value, Select) or not isinstance(value.false_value, FloatImm) or len(block.iter_vars) != 4:
        return None
    i, j = (iv.var for iv in block.iter_vars[2:])
    for condition in split_conditions(value.condition) if value.false_value.value == -math.inf else ():
        if isinstance(condition, E.LE | E.LT):
            shift = Analyzer().linear(E.sub(E.sub(condition.b, i), E.sub(condition.a, j)))
            if not shift.terms:
                return shift.const - isinstance(condition, E.LT)
    return None


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

    def step(x: Any) -> Any:
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
    body = next(x.body for x in walk(func.body) if isinstance(x, For) and x.loop_var is loop)
    realize = next(x for x in walk(body) if isinstance(x, BlockRealize) and x.block.name_hint == block)
    ends = {x.loop_var: const(as_int(x.extent) - 1, x.loop_var.dtype) for x in walk(body) if isinstance(x, For)}
    return substitute(realize.iter_values[dimension], ends)
