"""Orders the unrolled loops of register tiles so that few loaded values have to stay in registers.

Before:  for o in unroll(2): for w in unroll(6): acc[o, w] += x[w] * weight[o]     6 values of x wait for the second o
After:   for w in unroll(6): for o in unroll(2): acc[o, w] += x[w] * weight[o]     2 values of weight wait
Each element is still updated in the order of the reduction loops.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass

from autosched.codegen.cpu.types import Isa
from autosched.ir.node import map_children, preorder
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import BufferStore, For, IfThenElse, LoopKind, Stmt

_MOST_LOOPS = 5  # all their orders are tried


@dataclass(frozen=True, slots=True)
class _Nest:
    """Unrolled loops, outer to inner, around `inner`: a vectorised loop or the store, perhaps under a condition."""

    loops: tuple[For, ...]
    inner: Stmt
    store: BufferStore
    lane: Var | None
    vectors: int  # vectors that the vectorised loop makes


def order_unrolled(stmt: Stmt, isa: Isa) -> Stmt:
    """The statement with its nests of unrolled loops in an order that needs fewer registers."""
    nest = _nest(stmt, isa)
    if nest is not None and len(nest.loops) + (nest.lane is not None) > 1 and _may_move(nest):
        return _in_best_order(nest)
    return map_children(stmt, lambda c: order_unrolled(c, isa) if isinstance(c, Stmt) else c)


def _nest(stmt: Stmt, isa: Isa) -> _Nest | None:
    loops: list[For] = []
    while isinstance(stmt, For) and stmt.kind == LoopKind.UNROLLED and const_int(stmt.extent) is not None:
        loops.append(stmt)
        stmt = stmt.body
    inner, lane, vectors = stmt, None, 1
    if isinstance(stmt, For) and stmt.kind == LoopKind.VECTORIZED and const_int(stmt.extent) is not None:
        lane = stmt.loop_var
        stmt = stmt.body
    if isinstance(stmt, IfThenElse) and stmt.else_case is None:
        stmt = stmt.then_case
    if not loops or len(loops) > _MOST_LOOPS or not isinstance(stmt, BufferStore):
        return None
    if lane is not None:
        assert isinstance(inner, For), "the loop that has the lane's variable"
        vectors = -(-(const_int(inner.extent) or 1) // isa.lanes(stmt.buffer.dtype))
    return _Nest(tuple(loops), inner, stmt, lane, vectors)


def _may_move(nest: _Nest) -> bool:
    """Whether no two iterations of the loops that the store's place depends on meet in memory."""
    store = nest.store
    place = tuple(form_key(i) for i in store.indices)
    for load in _loads(store.value):
        if load.buffer is store.buffer and tuple(form_key(i) for i in load.indices) != place:
            return False
    ranges = {loop.loop_var: const_int(loop.extent) or 1 for loop in nest.loops}
    if nest.lane is not None:
        assert isinstance(nest.inner, For), "the loop that has the lane's variable"
        ranges[nest.lane] = const_int(nest.inner.extent) or 1
    seen: set[Var] = set()
    for index in store.indices:
        steps = []
        for coefficient, atom in Analyzer().linear(index).terms.values():
            used = free_vars(atom) & ranges.keys()
            if not used:
                continue
            if not isinstance(atom, Var) or atom in seen:
                return False
            seen.add(atom)
            steps.append((abs(coefficient), ranges[atom]))
        reach = 0
        for step, extent in sorted(steps):
            if step <= reach:
                return False
            reach += step * (extent - 1)
    return True


def _loads(value: PrimExpr) -> list[BufferLoad]:
    return [x for x in preorder(value) if isinstance(x, BufferLoad)]


def _in_best_order(nest: _Nest) -> Stmt:
    placed = {x for i in nest.store.indices for x in free_vars(i)}
    moving = [loop for loop in nest.loops if loop.loop_var in placed]
    reducing = [loop for loop in nest.loops if loop.loop_var not in placed]
    orders = [tuple(reducing) + order for order in itertools.permutations(moving)]
    best = min(orders, key=lambda order: _waiting(order, nest))
    if _waiting(best, nest) >= _waiting(nest.loops, nest):
        return _wrap(nest.loops, nest.inner)
    return _wrap(best, nest.inner)


def _wrap(loops: tuple[For, ...], inner: Stmt) -> Stmt:
    for loop in reversed(loops):
        inner = dataclasses.replace(loop, body=inner)
    return inner


def _waiting(loops: tuple[For, ...], nest: _Nest) -> int:
    """Registers for loaded values that are used again after others have been loaded."""
    sizes = [(loop.loop_var, const_int(loop.extent) or 1) for loop in loops]
    if nest.lane is not None:
        sizes.append((nest.lane, nest.vectors))
    total = 0
    for load in _loads(nest.store.value):
        if load.buffer is nest.store.buffer:
            continue
        used = {x for i in load.indices for x in free_vars(i)}
        again = next((k for k, (var, size) in enumerate(sizes) if var not in used and size > 1), len(sizes))
        total += math.prod(size for var, size in sizes[again:] if var in used)
    return total
