"""decompose_reduction and rfactor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from autosched.errors import ScheduleError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule.check import feeds_reduction, require_binds_once, require_reduction
from autosched.tir.schedule.inline import with_regions
from autosched.tir.schedule.loops import join_conditions
from autosched.tir.schedule.place import where_block, where_loop
from autosched.tir.schedule.project import seen_without
from autosched.tir.schedule.tree import Tree, realizes_below, simplify_values
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    LoopKind,
    SeqStmt,
    Stmt,
    seq,
)


def decompose_reduction(tree: Tree, name: str, var: Var) -> tuple[Tree, str, str]:
    """Move a reduction's initialisation in front of a loop; returns the names of the init and the update block.

       for k in range(5):
           for j in range(9): C[j] (init 0) += A[k, j]
    -> for j_init in range(9): C[j_init] = 0
       for k in range(5):
           for j in range(9): C[j] += A[k, j]
    """
    require_reduction(tree.seen_from(tree.scope_of(tree.realizes[name])), name, "decompose_reduction")
    realize, loop = tree.realizes[name], tree.loops[var]
    loops, where = tree.loops_of(name), where_block(tree, name)
    if loop not in loops:
        raise ScheduleError(f"decompose_reduction: loop '{var.name}' is not around block '{name}'", where=where)
    above = loops[: loops.index(loop)]
    culprit = next((x for x in above if feeds_reduction(realize, x.loop_var)), None)
    if culprit is not None:
        raise ScheduleError(
            f"decompose_reduction: loop '{culprit.loop_var.name}' above '{var.name}' belongs to the reduction "
            f"of '{name}'",
            where=where, hint=f"decompose at '{culprit.loop_var.name}' or above",
        )  # fmt: skip
    require_binds_once(tree, realize, loop, "decompose_reduction")
    block = realize.block
    assert block.init is not None
    init_name, update_name = tree.unique_block_name(f"{name}_init"), tree.unique_block_name(f"{name}_update")
    own = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars if iv.kind == SPATIAL}
    init = with_regions(Block(
        iter_vars=tuple(replace(iv, var=own[iv.var]) for iv in block.iter_vars if iv.kind == SPATIAL), alloc_buffers=(),
        reads=(), writes=(), name_hint=init_name, body=substitute(block.init, own),
    ))  # fmt: skip
    if isinstance(block.body, BlockRealize | For | SeqStmt):  # a tile: its blocks' variables are no variables of it
        init = replace(init, writes=tuple(substitute(w, own) for w in block.writes))
    nest, _ = spatial_nest(tree, realize, loops[loops.index(loop) :], init, suffix="_init")
    update = replace(block, name_hint=update_name, init=None, reads=_with_own(block))
    tree = tree.replace(realize, BlockRealize(realize.iter_values, realize.predicate, update))
    current = tree.loops[var]
    return tree.replace(current, seq(nest, current)), init_name, update_name


def _with_own(block: Block) -> tuple[BufferRegion, ...]:
    """The reads of an update: what it writes, then what it read before."""
    written = {w.buffer for w in block.writes}
    return block.writes + tuple(r for r in block.reads if r.buffer not in written)


def spatial_nest(
    tree: Tree,
    realize: BlockRealize,
    loops: list[For],
    block: Block,
    suffix: str,
    extra: Mapping[Var, PrimExpr] | None = None,
) -> tuple[Stmt, dict[Var, PrimExpr]]:
    """Copies of the loops that bind a block's spatial variables, around another block over the same variables.

    `extra` binds those of `block`'s variables that stand before. Returns the nest and the map from old loop
    variables to new ones.
    """
    spatial = [v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if iv.kind == SPATIAL]
    used = {x for v in spatial for x in free_vars(v)}
    kept = [x for x in loops if x.loop_var in used]
    dropped = {x.loop_var for x in loops} - used
    renamed: dict[Var, PrimExpr] = {x.loop_var: Var(f"{x.loop_var.name}{suffix}", x.loop_var.dtype) for x in kept}
    analyzer = tree.analyzer(realize)
    for x in kept:
        new = renamed[x.loop_var]
        assert isinstance(new, Var)
        analyzer.bounds[new] = analyzer.bounds[x.loop_var]
    values = simplify_values(analyzer, (substitute(v, renamed) for v in spatial))
    predicate = join_conditions(analyzer, seen_without(tree, realize, loops, dropped, renamed, values, analyzer))
    values = (*(extra or {}).values(), *values)
    body: Stmt = BlockRealize(values, predicate, block)
    for x in reversed(kept):
        new = renamed[x.loop_var]
        assert isinstance(new, Var)
        start, extent = substitute(x.start, renamed), substitute(x.extent, renamed)
        body = For(new, start, extent, x.kind, body, x.thread, x.annotations)
    return body, renamed


def identity_of(kind: type, dtype: str) -> PrimExpr:
    """The element that changes nothing under Add, Mul, Max or Min."""
    if kind is E.Add:
        return E.const(0, dtype)
    if kind is E.Mul:
        return E.const(1, dtype)
    info = np.finfo(dtype) if is_float(dtype) else np.iinfo(dtype)
    value = info.min if kind is E.Max else info.max
    return E.const(float(value) if is_float(dtype) else int(value), dtype)


def _reducer(tree: Tree, name: str) -> tuple[type[E.BinaryOp], PrimExpr, BufferStore]:
    """(combination, combined value, store) of a reduction block's update. Raises unless it is a known reducer.

    The update may stand under a condition, as that of a partial result does.
    """
    block = tree.block(name)
    store, init = block.body, block.init
    if isinstance(store, IfThenElse) and store.else_case is None:
        store = store.then_case
    if (
        isinstance(store, BufferStore)
        and isinstance(init, BufferStore)
        and isinstance(store.value, E.Add | E.Mul | E.Max | E.Min)
    ):
        key = (store.buffer, *map(form_key, store.indices))
        sides = (store.value.a, store.value.b)
        for own, other in (sides, sides[::-1]):
            if isinstance(own, BufferLoad) and (own.buffer, *map(form_key, own.indices)) == key:
                if not any(isinstance(x, BufferLoad) and x.buffer is store.buffer for x in preorder(other)):
                    return type(store.value), other, store
    raise ScheduleError(
        f"rfactor: block '{name}' is not a sum, product, maximum or minimum of one value", where=where_block(tree, name)
    )  # fmt: skip


def rfactor(tree: Tree, var: Var, factor_axis: int = 0, *, behind_all: bool = True) -> tuple[Tree, str, str]:
    """Split a reduction: partial results per iteration of a loop, then their combination; returns both block names.

    behind_all  whether the combination stands behind all loops of the block, as TVM puts it, or under those that are
                not reduced and stand around

       for k_0 in range(8):
           for k_1 in range(4): S[] (init 0) += A[k_0 * 4 + k_1]
    -> for k_0 in range(8):
           for k_1 in range(4): S_rf[k_1] (init 0) += A[k_0 * 4 + k_1]
       for k_1 in range(4): S[] (init 0) += S_rf[k_1]
    """
    loop, where = tree.loops[var], where_loop(tree, var)
    realizes = [r for r in tree.realizes.values() if loop in tree.loops_of(r.block.name_hint)]
    if len(realizes) != 1:
        raise ScheduleError(f"rfactor: loop '{var.name}' must be around one block, not {len(realizes)}", where=where)
    realize = realizes[0]
    name = realize.block.name_hint
    require_reduction(tree, name, "rfactor")
    bound = [(iv, v) for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if var in free_vars(v)]
    unused_unit = not bound and E.const_int(loop.extent) == 1  # simplified away where it was bound
    if (not bound and not unused_unit) or any(iv.kind != REDUCE for iv, _ in bound):
        raise ScheduleError(f"rfactor: loop '{var.name}' does not run over a reduction alone", where=where)
    extent = E.const_int(loop.extent)
    if extent is None or E.const_int(loop.start) != 0:
        raise ScheduleError(f"rfactor: loop '{var.name}' needs a constant extent and to start at 0", where=where)
    kind, value, store = _reducer(tree, name)
    rank = store.buffer.ndim
    if not -rank - 1 <= factor_axis <= rank:
        raise ScheduleError(
            f"rfactor: factor_axis {factor_axis} is out of range for '{store.buffer.name}' of {rank} dimensions",
            where=where,
        )
    axis = factor_axis + rank + 1 if factor_axis < 0 else factor_axis
    loops = tree.loops_of(name)
    top = next(x for x in loops if x is loop or feeds_reduction(realize, x.loop_var))
    require_binds_once(tree, realize, top, "rfactor")
    while behind_all and loops[0] is not top and len(list(realizes_below(loops[loops.index(top) - 1]))) == 1:
        top = loops[loops.index(top) - 1]
    return _rfactor(tree, realize, loops[loops.index(top) :], loop, axis, kind, value, store)


def _rfactor(
    tree: Tree, realize: BlockRealize, loops: list[For], loop: For, axis: int,
    kind: type[E.BinaryOp], value: PrimExpr, store: BufferStore,
) -> tuple[Tree, str, str]:  # fmt: skip
    block, buffer = realize.block, store.buffer
    shape = (
        *buffer.shape[:axis],
        E.cast(buffer.shape[0].dtype if buffer.shape else "int32", loop.extent),
        *buffer.shape[axis:],
    )
    partial = replace(buffer, name=tree.unique_buffer_name(f"{buffer.name}_rf"), shape=shape)
    neutral = identity_of(kind, buffer.dtype)
    rf_name = tree.unique_block_name(f"{block.name_hint}_rf")
    rf = _partial_block(tree, realize, loops, loop, axis, partial, neutral, kind, value, store, rf_name)
    final_vars = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars if iv.kind == SPATIAL}
    step = Var(f"v{loop.loop_var.name}", loop.loop_var.dtype)
    at = tuple(substitute(i, final_vars) for i in store.indices)
    source = BufferLoad(partial, (*at[:axis], step, *at[axis:]))
    assert block.init is not None
    final = with_regions(replace(
        block,
        iter_vars=(IterVar(Range(E.const(0, step.dtype), loop.extent), step, REDUCE),
                   *(replace(iv, var=final_vars[iv.var]) for iv in block.iter_vars if iv.kind == SPATIAL)),
        body=BufferStore(buffer, kind(BufferLoad(buffer, at), source), at), init=substitute(block.init, final_vars),
    ))  # fmt: skip
    last = Var(loop.loop_var.name, loop.loop_var.dtype)
    nest, _ = spatial_nest(tree, realize, loops, final, suffix="", extra={step: last})
    nest = _innermost(nest, lambda body: For(last, loop.start, loop.extent, LoopKind.SERIAL, body))
    tree = tree.replace(realize, rf)
    top = tree.loops[loops[0].loop_var]
    tree = tree.replace(top, seq(top, nest)).add_buffers(partial)
    return tree, rf_name, block.name_hint


def _innermost(stmt: Stmt, wrap: Callable[[Stmt], Stmt]) -> Stmt:
    return replace(stmt, body=_innermost(stmt.body, wrap)) if isinstance(stmt, For) else wrap(stmt)


def _partial_block(
    tree: Tree, realize: BlockRealize, loops: list[For], loop: For, axis: int, partial: Buffer,
    neutral: PrimExpr, kind: type[E.BinaryOp], value: PrimExpr, store: BufferStore, name: str,
) -> BlockRealize:  # fmt: skip
    """The block of partial results: the loop becomes spatial, loops that share its variable's binding bind
    themselves."""
    block = realize.block
    bound = list(zip(block.iter_vars, realize.iter_values, strict=True))
    touched = {iv.var for iv, v in bound if loop.loop_var in free_vars(v)}
    together = {loop.loop_var, *(x for iv, v in bound if iv.var in touched for x in free_vars(v))}
    while more := [
        (iv, v) for iv, v in bound if iv.var not in touched and iv.kind == REDUCE and together & free_vars(v)
    ]:
        touched |= {iv.var for iv, _ in more}  # axes that were fused, of which the loop moves the last alone
        together |= {x for _, v in more for x in free_vars(v)}
    for iv, v in bound:
        if iv.var not in touched and together & free_vars(v):
            raise ScheduleError(
                f"rfactor: the binding of '{iv.var.name}' shares a loop with the reduction",
                where=where_block(tree, block.name),
            )  # fmt: skip
    own: dict[Var, PrimExpr] = {}
    analyzer = tree.analyzer(realize)
    made: dict[Var, IterVar] = {}
    for x in loops:
        if x.loop_var in together:
            v = Var(f"v{x.loop_var.name}", x.loop_var.dtype)
            own[x.loop_var] = v
            made[x.loop_var] = IterVar(Range(x.start, x.extent), v, SPATIAL if x is loop else REDUCE)
            analyzer.bounds[v] = analyzer.bounds[x.loop_var]
    iter_vars = [made.pop(loop.loop_var)]
    values: list[PrimExpr] = [loop.loop_var]
    renamed: dict[Var, PrimExpr] = {}
    for iv, value_ in bound:  # in TVM's order: the loops that bind a variable stand in its place
        if iv.var in touched:
            inside = [x.loop_var for x in loops if x.loop_var in made and x.loop_var in free_vars(value_)]
            iter_vars += [made.pop(x) for x in inside]
            values += inside
            continue
        var = renamed[iv.var] = Var(iv.var.name, iv.var.dtype)
        iter_vars.append(replace(iv, var=var))
        values.append(value_)
        analyzer.bind(var, iv.dom)
    inner = dict(renamed)
    for iv, v in bound:
        if iv.var in touched:
            inner[iv.var] = analyzer.simplify(substitute(v, own))
    predicate, around, guards = _predicates(tree, realize, loops, loop, own, analyzer)
    if isinstance(block.body, IfThenElse):
        around.append(substitute(block.body.condition, inner))
    at = tuple(substitute(i, inner) for i in store.indices)
    step = own[loop.loop_var]
    place = (*at[:axis], step, *at[axis:])
    has_reduction = any(iv.kind == REDUCE for iv in iter_vars)
    guard = E.all_of(*guards) if has_reduction else E.all_of(*guards, *around)
    source = E.if_then_else(guard, substitute(value, inner), neutral)
    new = replace(block, iter_vars=tuple(iter_vars), name_hint=name)
    if has_reduction:
        update: Stmt = BufferStore(partial, kind(BufferLoad(partial, place), source), place)
        body = IfThenElse(E.all_of(*around), update) if around else update
        new = replace(new, body=body, init=BufferStore(partial, neutral, place))
    else:
        new = replace(new, body=BufferStore(partial, source, place), init=None, reads=(), writes=())
    return BlockRealize(tuple(values), predicate, with_regions(new))


def _predicates(
    tree: Tree, realize: BlockRealize, loops: list[For], loop: For, own: Mapping[Var, PrimExpr], analyzer: Analyzer
) -> tuple[PrimExpr, list[PrimExpr], list[PrimExpr]]:
    """(predicate, conditions that the update stands under, conditions that choose between value and neutral element).

    Conditions on the loops that became variables of the block say more than the domains of these variables: as a
    predicate they would be lost where the loops are made anew. Those that always let a partial result begin can stand
    around the update, which loops can be cut by; the others guard the value.
    """
    others = {x.loop_var for x in loops if feeds_reduction(realize, x.loop_var)} - {loop.loop_var}
    start: dict[Var, PrimExpr] = {v: E.const(0, v.dtype) for v in others}
    predicates: list[PrimExpr] = []
    around: list[PrimExpr] = []
    guards: list[PrimExpr] = []
    every = {x.loop_var for x in tree.loops_of(realize.block.name_hint)}  # other variables are symbols
    for c in split_conditions(realize.predicate):
        if not free_vars(c) & own.keys():
            predicates.append(c)
        elif free_vars(c) & every <= own.keys():
            begins = analyzer.can_prove(substitute(c, start))
            (around if begins else guards).append(substitute(c, own))
        else:
            raise ScheduleError(
                f"rfactor: the bound on loop '{loop.loop_var.name}' depends on loops that are not reduced",
                where=where_block(tree, realize.block.name),
            )  # fmt: skip
    return E.all_of(*predicates), around, guards
