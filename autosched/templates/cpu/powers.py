"""Exponentials of what is at most 0, as a softmax has them: they need no guard against results that are too large.

largest[row] = max(largest[row], x[row, k])
exp(x[row, k] - largest[row])                 # exp_below
"""

from __future__ import annotations

from typing import cast

from autosched.codegen.cpu.math import EXP_BELOW
from autosched.ir.node import preorder
from autosched.ir.structural import structural_equal
from autosched.templates.classify import blocks_of, reduced
from autosched.templates.flash import is_largest_or_zero
from autosched.tir import Block, Buffer, BufferLoad, BufferStore, Call, Max, PrimFunc, Range, Select, Sub, Var
from autosched.tir.access import is_own
from autosched.tir.expr import const_int
from autosched.tir.functor import rewrite, substitute


def bound_powers(func: PrimFunc) -> PrimFunc:
    """The function with `exp_below` where a float32 has the largest of its row subtracted."""
    largest = {b.writes[0].buffer: b for b in blocks_of(func) if _is_largest(b)}
    found = {
        id(x): Call(EXP_BELOW, x.args, x.dtype)
        for block in blocks_of(func)
        for x in preorder(block.body)
        if isinstance(x, Call) and x.op in ("exp", "tir.exp") and _is_bounded(x, block, largest)
    }
    return rewrite(func, lambda node: found.get(id(node), node)) if found else func


def _is_largest(block: Block) -> bool:
    """largest[row] = max(largest[row], x[row, k])"""
    store = block.body
    if len(reduced(block)) != 1 or not isinstance(store, BufferStore) or not isinstance(store.value, Max):
        return False
    return is_own(store.value.a, store) and store.buffer.dtype == "float32"


def _is_bounded(power: Call, block: Block, largest: dict[Buffer, Block]) -> bool:
    """Whether the argument is an element of a row less the row's largest element."""
    argument = power.args[0]
    if power.dtype != "float32" or not isinstance(argument, Sub):
        return False
    taken = argument.b.false_value if isinstance(argument.b, Select) else argument.b
    if not isinstance(taken, BufferLoad) or taken.buffer not in largest:
        return False
    if not is_largest_or_zero(argument.b, taken.buffer):
        return False
    other = largest[taken.buffer]
    store, k = cast(BufferStore, other.body), reduced(other)[0]
    row = {own: at for own, at in zip(store.indices, taken.indices, strict=True) if isinstance(own, Var)}
    if len(row) != len(store.indices):
        return False
    along = [iv.var for iv in block.iter_vars if _is_same_range(iv.dom, k.dom)]
    values = (substitute(cast(Max, store.value).b, {**row, k.var: var}) for var in along)
    return any(structural_equal(value, argument.a) for value in values)


def _is_same_range(a: Range, b: Range) -> bool:
    return const_int(a.min) == const_int(b.min) == 0 and structural_equal(a.extent, b.extent)
