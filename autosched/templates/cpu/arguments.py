"""Positions of the largest or smallest elements, as two reductions of one value each, which run in vectors.

Before:  best[i], value[i] = the first k and x[i, k] of which no x[i, j] is larger      pairs, one step after another
After:   value[i] = max(value[i], x[i, k])
         best[i] = min(best[i], k if x[i, k] == value[i] or x[i, k] is a NaN else the last k)

A NaN is the largest and the smallest of all, as in `topi.argmax`; of equal ones, and of several NaN, the first counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from autosched.ir.node import FrozenDict, preorder
from autosched.templates.classify import blocks_of, is_reduction, reduced, spatial
from autosched.tir import Block, Buffer, BufferLoad, BufferStore, PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.dtypes import is_float
from autosched.tir.expr import Call, PrimExpr, const_int
from autosched.tir.extrema import KEEP_NAN
from autosched.tir.function import make_root
from autosched.tir.functor import blocks, rewrite, substitute
from autosched.tir.schedule.inline import with_regions
from autosched.tir.schedule.reduction import identity_of
from autosched.tir.schedule.reindex import nest_over
from autosched.tir.simplify import form_key
from autosched.tir.stmt import BlockRealize, For, LetStmt, LoopKind, SeqStmt, Stmt, seq

_EXTREMA: dict[type[E.CmpOp], type[E.BinaryOp]] = {E.GT: E.Max, E.LT: E.Min}
POSITION = "int32"
MOST = np.iinfo(POSITION).max


@dataclass(frozen=True)
class _Pairs:
    """A reduction of pairs: where their parts are stored, the element, and whether the largest or the smallest wins."""

    block: Block
    position: BufferStore
    value: BufferStore
    element: PrimExpr
    extremum: type[E.BinaryOp]


@lru_cache(maxsize=64)
def in_two_reductions(func: PrimFunc) -> PrimFunc:
    """The function with reductions of pairs that nothing but their position is read of as two; else itself."""
    exponentials = any(isinstance(x, Call) and x.op in ("exp", "exp2") for x in preorder(func.body))
    found = [] if exponentials else [p for p in map(_pairs, blocks_of(func)) if p is not None]
    root = func.root
    parts = root.body.seq if isinstance(root.body, SeqStmt) else (root.body,)
    alone = [_block_of_plain_loops(nest) for nest in parts]
    found = [p for p in found if p.block in alone and _is_internal(func, p)]
    if not found:
        return func
    new = {p.block: p for p in found}
    narrow = {p.position.buffer: replace(p.position.buffer, dtype=POSITION) for p in found}
    nests: list[Stmt] = []
    for nest in parts:
        pairs = next((new[b] for b in blocks(nest) if b in new), None)
        nests += [_reads_narrow(nest, narrow)] if pairs is None else _two(pairs, narrow[pairs.position.buffer])
    buffers = tuple(narrow.get(b, b) for b in root.alloc_buffers)
    return func.with_body(make_root(seq(*nests), buffers, root.annotations))


def _is_internal(func: PrimFunc, pairs: _Pairs) -> bool:
    """Whether both results stay in the function, and the value is read by nobody."""
    parts = (pairs.position.buffer, pairs.value.buffer)
    if any(p is b for p in parts for b in func.buffers):
        return False
    others = [b for b in blocks_of(func) if b is not pairs.block]
    return not any(isinstance(x, BufferLoad) and x.buffer is parts[1] for b in others for x in preorder(b.body))


def _block_of_plain_loops(nest: Stmt) -> Block | None:
    """The one block of a nest whose loops go over its axes, one for each; None for any other nest."""
    loops: list[Var] = []
    while isinstance(nest, For) and nest.kind == LoopKind.SERIAL and const_int(nest.start) == 0:
        loops.append(nest.loop_var)
        nest = nest.body
    if not isinstance(nest, BlockRealize) or const_int(nest.predicate) != 1 or [*nest.iter_values] != loops:
        return None
    return nest.block


def _reads_narrow(nest: Stmt, narrow: dict[Buffer, Buffer]) -> Stmt:
    """The statement with positions of the narrow type, which come to their own type where they are read."""

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in narrow:
            return E.cast(x.dtype, BufferLoad(narrow[x.buffer], x.indices))
        if isinstance(x, Block):
            return with_regions(x) if x.iter_vars else x
        return x

    return rewrite(nest, step)


def _two(pairs: _Pairs, position: Buffer) -> list[Stmt]:
    """The loops of the extreme values, and those of their positions."""
    first, kind, value = pairs.block, pairs.extremum, pairs.value.buffer
    start = identity_of(kind, value.dtype)
    keep = FrozenDict({KEEP_NAN: 1} if is_float(value.dtype) else {})
    own = BufferLoad(value, pairs.value.indices)
    largest = replace(
        first, name_hint=f"{first.name_hint}_value", body=BufferStore(value, kind(own, pairs.element), own.indices),
        init=BufferStore(value, start, own.indices), annotations=keep,
    )  # fmt: skip
    k = reduced(first)[0]
    last = E.const((const_int(k.dom.extent) or MOST) - 1, POSITION)
    found = E.compare(E.EQ, pairs.element, own)
    if is_float(value.dtype):
        found = E.Or(found, E.compare(E.NE, pairs.element, pairs.element))
    so_far = BufferLoad(position, own.indices)
    step = E.Min(so_far, E.select(found, E.cast(POSITION, k.var), last))
    where = replace(
        first, body=BufferStore(position, step, own.indices), init=BufferStore(position, last, own.indices),
        annotations=FrozenDict({}),
    )  # fmt: skip
    return [nest_over(block.iter_vars, block) for block in (_own_axes(with_regions(b)) for b in (largest, where))]


def _own_axes(block: Block) -> Block:
    """The block with iteration variables of its own."""
    new = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars}
    assert block.init is not None, "it is a reduction"
    return with_regions(
        replace(
            block,
            iter_vars=tuple(replace(iv, var=new[iv.var]) for iv in block.iter_vars),
            body=substitute(block.body, new),
            init=substitute(block.init, new),
        )
    )


def _pairs(block: Block) -> _Pairs | None:
    """A reduction of pairs of a position and a value of which the best, by `topi`'s rule, is kept; else None."""
    if not is_reduction(block) or len(reduced(block)) != 1 or len(block.writes) != 2:
        return None
    body = block.body
    values: dict[PrimExpr, PrimExpr] = {}
    while isinstance(body, LetStmt):
        values[body.var] = body.value
        body = body.body
    stores = body.seq if isinstance(body, SeqStmt) else ()
    found = [_with_value(s, values) for s in stores if isinstance(s, BufferStore)]
    if len(found) != 2 or len(stores) != 2:
        return None
    position, value = found
    axes = [iv.var for iv in spatial(block)]
    k = reduced(block)[0]
    extent = const_int(k.dom.extent)
    if [*position.indices] != axes or [*value.indices] != axes or (extent is not None and extent >= MOST):
        return None
    if not isinstance(position.value, E.Select) or not isinstance(value.value, E.Select):
        return None
    if form_key(position.value.condition) != form_key(value.value.condition):
        return None
    if not is_own(position.value.true_value, position) or not is_own(value.value.true_value, value):
        return None
    at, element = position.value.false_value, value.value.false_value
    if (at.value if isinstance(at, E.Cast) else at) is not k.var or not _starts(block, position.buffer, extent):
        return None
    if any(isinstance(x, BufferLoad) and x.buffer in (position.buffer, value.buffer) for x in preorder(element)):
        return None
    own_at, own = position.value.true_value, value.value.true_value
    conditions = {*map(form_key, _alternatives(position.value.condition))}
    for better, kind in _EXTREMA.items():
        equal = E.And(E.compare(E.EQ, own, element), E.compare(E.LT, own_at, at))
        expected = {form_key(E.compare(better, own, element)), form_key(equal)}
        if is_float(element.dtype):
            expected.add(form_key(E.compare(E.NE, own, own)))
        if conditions == expected and _starts(block, value.buffer, extent, kind):
            return _Pairs(block, position, value, element, kind)
    return None


def _with_value(store: BufferStore, values: Mapping[PrimExpr, PrimExpr]) -> BufferStore:
    """The store of a value that a variable may stand for."""
    return replace(store, value=values.get(store.value, store.value))


def _alternatives(e: PrimExpr) -> list[PrimExpr]:
    return [*_alternatives(e.a), *_alternatives(e.b)] if isinstance(e, E.Or) else [e]


def _starts(block: Block, buffer: Buffer, extent: int | None, kind: type[E.BinaryOp] | None = None) -> bool:
    """Whether a part starts with what loses against all: the worst value; the last position or one behind it."""
    assert block.init is not None, "it is a reduction"
    starts = [s for s in preorder(block.init) if isinstance(s, BufferStore) and s.buffer is buffer]
    if len(starts) != 1:
        return False
    start = starts[0].value
    if kind is None:
        number = const_int(start)
        return number is not None and (number >= MOST if extent is None else number >= extent - 1)
    if isinstance(start, E.FloatImm):
        return start.value == (-math.inf if kind is E.Max else math.inf)
    worst = identity_of(kind, buffer.dtype)
    return const_int(start) is not None and const_int(start) == const_int(worst)
