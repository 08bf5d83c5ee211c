"""What keeps buffers of threads in registers: constant indices, and no conditions that only spare unused elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator

from autosched.codegen.lower.loops import enter
from autosched.codegen.lower.tidy import difference
from autosched.ir.node import map_children, preorder
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var, all_of, const_int
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.simplify import Analyzer, Linear, split_conditions
from autosched.tir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LoopKind, Stmt

IN_REGISTERS = "local"


def unroll_register_loops(stmt: Stmt) -> Stmt:
    """The statement with those loops unrolled whose variables index a register buffer: registers have no addresses."""
    new = map_children(stmt, lambda c: unroll_register_loops(c) if isinstance(c, Stmt) else c)
    if not isinstance(new, For) or new.kind != LoopKind.SERIAL or const_int(new.extent) is None:
        return new
    own = {n.buffer for n in preorder(new.body) if isinstance(n, Allocate)}
    for node in preorder(new.body):
        if not isinstance(node, BufferLoad | BufferStore) or node.buffer.scope != IN_REGISTERS or node.buffer in own:
            continue
        if any(new.loop_var in free_vars(i) for i in node.indices):
            return dataclasses.replace(new, kind=LoopKind.UNROLLED)
    return new


def fix_register_indices(stmt: Stmt, analyzer: Analyzer) -> Stmt:
    """Take threads out of indices of register buffers where a condition leaves them one value.

    Before:  for i in 2: if ty * 2 + i < 2: D[ty * 2 + i] = C_local[ty * 2 + i]
    After:   for i in 2: if ty * 2 + i < 2: D[ty * 2 + i] = C_local[i]
    A tile that is as large as the whole dimension begins at 0 in every thread, so that these indices remain.
    """

    def expression(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer.scope == IN_REGISTERS:
            return BufferLoad(x.buffer, tuple(analyzer.simplify(i) for i in x.indices))
        return x

    def child(c: object) -> object:
        if isinstance(c, Stmt):
            return fix_register_indices(c, analyzer)
        return rewrite(c, expression) if isinstance(c, PrimExpr) else c

    if isinstance(stmt, For):
        body = fix_register_indices(stmt.body, enter(analyzer, stmt))
        return stmt if body is stmt.body else dataclasses.replace(stmt, body=body)
    if isinstance(stmt, IfThenElse):
        inner = analyzer.copy()
        for condition in split_conditions(stmt.condition):
            inner.assume(condition)
        then_case = fix_register_indices(stmt.then_case, inner)
        else_case = None if stmt.else_case is None else fix_register_indices(stmt.else_case, analyzer)
        return IfThenElse(stmt.condition, then_case, else_case)
    new = map_children(stmt, child)
    if isinstance(new, BufferStore) and new.buffer.scope == IN_REGISTERS:
        return BufferStore(new.buffer, new.value, tuple(analyzer.simplify(i) for i in new.indices))
    return new


def drop_register_guards(stmt: Stmt, fixed: frozenset[Var], local: frozenset[Buffer]) -> tuple[Stmt, frozenset[Var]]:
    """Leave out conditions that decide which elements of a register buffer are ever written; gives their variables too.

    Before:  if by * 64 + ty * 8 + i < 130: C_local[by * 64 + ty * 8 + i] += A_shared[…] * B_shared[…]
    After:   C_local[by * 64 + ty * 8 + i] += A_shared[…] * B_shared[…]
    That is right where every store to the buffer has the condition: no one reads an element that nobody writes. `fixed`
    are the thread's own variables; `local` the buffers in registers.
    """
    guards: dict[Buffer, list[set[Hashable]]] = {}
    for store, conditions in _stores(stmt, ()):
        if store.buffer in local:
            keys = {key for c in conditions if (key := _element_key(c, store, fixed)) is not None}
            guards.setdefault(store.buffer, []).append(keys)
    common = {buffer: set.intersection(*found) for buffer, found in guards.items()}
    dropped: set[Var] = set()
    new = _without(stmt, common, fixed, dropped) if any(common.values()) else stmt
    return new, frozenset(dropped)


def _stores(stmt: Stmt, conditions: tuple[PrimExpr, ...]) -> Iterator[tuple[BufferStore, tuple[PrimExpr, ...]]]:
    if isinstance(stmt, BufferStore):
        yield stmt, conditions
    elif isinstance(stmt, IfThenElse):
        yield from _stores(stmt.then_case, (*conditions, *split_conditions(stmt.condition)))
        if stmt.else_case is not None:
            yield from _stores(stmt.else_case, conditions)
    else:
        for child in (c for c in _statements(stmt)):
            yield from _stores(child, conditions)


def _statements(stmt: Stmt) -> list[Stmt]:
    from autosched.ir.node import children

    return [c for c in children(stmt) if isinstance(c, Stmt)]


def _element_key(condition: PrimExpr, store: BufferStore, fixed: frozenset[Var]) -> Hashable | None:
    """What the condition says of the stored element's indices, the same for every way to write them; None: of more."""
    a = Analyzer()
    form = difference(condition, a)
    if form is None or any(isinstance(x, BufferLoad) for x in preorder(condition)):
        return None
    rest = Linear().add(form)
    factors: list[int] = []
    for index in store.indices:
        at = a.linear(index)
        own = [(key, c) for key, (c, atom) in at.terms.items() if free_vars(atom) - fixed]
        factor = 0
        if own:
            key, c = own[0]
            have = rest.terms.get(key, (0, None))[0]
            factor = have // c if have % c == 0 else 0
        rest.add(at, -factor)
        factors.append(factor)
    if any(free_vars(atom) - fixed for _, atom in rest.terms.values()):
        return None
    return (*factors, rest.const, frozenset((key, c) for key, (c, _) in rest.terms.items()))


def _without(stmt: Stmt, common: dict[Buffer, set[object]], fixed: frozenset[Var], dropped: set[Var]) -> Stmt:
    new = map_children(stmt, lambda c: _without(c, common, fixed, dropped) if isinstance(c, Stmt) else c)
    if not isinstance(new, IfThenElse) or new.else_case is not None:
        return new
    stores = [store for store, _ in _stores(new.then_case, ())]
    reads = {x.buffer for x in preorder(new.then_case) if isinstance(x, BufferLoad)}
    if any(isinstance(n, Evaluate) for n in preorder(new.then_case)):
        return new  # an instruction runs where the condition holds
    if not stores or any(b.scope == "global" for b in reads) or any(s.buffer not in common for s in stores):
        return new
    kept = []
    for c in split_conditions(new.condition):
        if all(_element_key(c, s, fixed) in common[s.buffer] for s in stores):
            dropped |= free_vars(c)
        else:
            kept.append(c)
    return IfThenElse(all_of(*kept), new.then_case) if kept else new.then_case
