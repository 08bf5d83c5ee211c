"""What attention looks like as blocks: softmax(q kᵀ * scale + bias) v, and which keys a query sees."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.templates.chain import Chain
from autosched.templates.classify import (
    Contraction,
    blocks_of,
    contraction,
    index_vars,
    is_injective,
    is_reduction,
    reduced,
    spatial,
)  # fmt: skip
from autosched.tir import Block, BufferLoad, BufferStore, FloatImm, IntImm, PrimFunc, Select, Var
from autosched.tir import expr as E
from autosched.tir.functor import loads
from autosched.tir.simplify import Analyzer, split_conditions


@dataclass(frozen=True)
class Attention:
    """The blocks of an attention function in their roles.

    scores, context  the two products
    key        how the scores read the keys; `column` and `inner` are the dimensions of it that count keys and elements
    before     element-wise blocks on the scores; the last one's result is the argument of the softmax
    softmax    the reductions and the exponential over rows, in order
    weights    the block that makes weights of both, in front of the second product; None: the result is divided
    chain      the second product and what is behind it
    rows, columns  which dimension of the result counts queries, and which the elements of a value
    """

    scores: Block
    context: Block
    key: BufferLoad
    column: int
    inner: int
    before: tuple[Block, ...]
    softmax: tuple[Block, ...]
    chain: Chain
    rows: int
    columns: int
    weights: Block | None = None


def find_attention(func: PrimFunc, shares_heads: bool = False) -> Attention | None:
    """Two products with the rows' softmax between them, and element-wise blocks behind.

    shares_heads  also where heads of queries share a head of keys
    """
    blocks = blocks_of(func)
    products = [c for c in map(contraction, blocks) if c is not None]
    if len(products) != 2 or not all(isinstance(b.body, BufferStore) for b in blocks):
        return None
    first, second = products
    behind = _behind(blocks, second.block)
    between = [b for b in blocks if b not in (first.block, second.block) and b not in behind]
    reductions = [b for b in between if is_reduction(b)]
    if len(reductions) != 2 or not all(is_injective(b) for b in (*between, *behind) if b not in reductions):
        return None
    softmax = between[between.index(reductions[0]) :]
    before = between[: between.index(reductions[0])]
    if not before or len(softmax) not in (3, 4) or not all(_reduces_rows(b) for b in reductions):
        return None
    weights = softmax[3] if len(softmax) == 4 else None
    if reductions[1] is not softmax[2]:
        return None
    roles = _roles(first, second, weights or softmax[1], shares_heads)
    if roles is None:
        return None
    chain = Chain((), second.block, tuple(behind))
    return Attention(
        first.block, second.block, *roles[:3], tuple(before), tuple(softmax[:3]), chain, *roles[3:], weights
    )


def _behind(blocks: tuple[Block, ...], start: Block) -> list[Block]:
    """The blocks that depend on what a block writes."""
    made, found = {start.writes[0].buffer}, []
    for b in blocks:
        assert isinstance(b.body, BufferStore)
        if b is not start and any(x.buffer in made for x in loads(b.body.value)):
            made.add(b.body.buffer)
            found.append(b)
    return [b for b in found if not is_reduction(b)] if not any(map(is_reduction, found)) else []


def _reduces_rows(block: Block) -> bool:
    assert isinstance(block.body, BufferStore)
    k = reduced(block)
    reads = [x for x in loads(block.body.value) if x.buffer is not block.body.buffer]
    return len(k) == 1 and any(x.indices[-1] is k[0].var for x in reads)


def _roles(
    first: Contraction, second: Contraction, power: Block, shares_heads: bool
) -> tuple[BufferLoad, int, int, int, int] | None:
    """(key, its columns, its inner dimension, rows of the result, columns of it)."""
    outer = [iv.var for iv in spatial(first.block)]
    if len(outer) != 4 or len(reduced(first.block)) != 1 or len(reduced(second.block)) != 1:
        return None
    key = next((x for x in (first.a, first.b) if _position(x, outer[3]) is not None), None)
    weights = next((x for x in (second.a, second.b) if x.buffer is power.writes[0].buffer), None)
    if key is None or weights is None or index_vars(weights) is None:
        return None
    if index_vars(key) is None and not (shares_heads and _is_shared(key, outer[1])):
        return None
    column, inner = _position(key, outer[3]), _position(key, reduced(first.block)[0].var)
    out = [iv.var for iv in spatial(second.block)]
    if column is None or inner is None or len(out) != 4 or weights.indices[-1] is not reduced(second.block)[0].var:
        return None
    taken = [next((n for n, v in enumerate(out) if v is i), None) for i in weights.indices[:-1]]
    if None in taken or len(set(taken)) != 3:
        return None
    left = next(n for n in range(4) if n not in taken)
    rows = taken[2]
    assert rows is not None, "the search looked"
    return (key, column, inner, rows, left) if left == 3 else None


def _is_shared(key: BufferLoad, head: Var) -> bool:
    """Whether heads in a row read one head of keys, and the indices are plain besides."""
    plain = [i for i in key.indices if not (isinstance(i, E.FloorDiv) and i.a is head and isinstance(i.b, IntImm))]
    return len(plain) == 3 and all(isinstance(i, Var) for i in plain)


def _position(load: BufferLoad, v: Var) -> int | None:
    return next((n for n, i in enumerate(load.indices) if i is v), None)


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
