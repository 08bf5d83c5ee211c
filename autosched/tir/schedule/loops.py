"""Loop transformations: split, fuse, reorder, add_unit_loop, and who runs a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from autosched.errors import InvalidValueError, ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, Range
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule.check import (
    only_child_chain,
    require_binds_once,
    require_iter_kinds,
    require_no_ring,
    require_parallel,
    starts_at_zero,
)  # fmt: skip
from autosched.tir.schedule.place import where_block, where_loop
from autosched.tir.schedule.tree import Tree, realizes_below, simplify_values
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import (
    THREADS,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
)  # fmt: skip


def rebind(stmt: Stmt, values: Mapping[Var, PrimExpr], analyzer: Analyzer, guards: Sequence[PrimExpr] = ()) -> Stmt:
    """Replace loop variables where loops and blocks use them, and add `guards` to the blocks' predicates.

    Bodies of blocks are left alone: they see their iteration variables only.
    """
    match stmt:
        case BlockRealize():
            bound = simplify_values(analyzer, (substitute(v, values) for v in stmt.iter_values))
            return BlockRealize(
                bound, join_conditions(analyzer, [substitute(stmt.predicate, values), *guards]), stmt.block
            )
        case For():
            inner = analyzer.copy()
            start, extent = (analyzer.simplify(substitute(x, values)) for x in (stmt.start, stmt.extent))
            (low, _), (_, high) = analyzer.bound(start), analyzer.bound(extent)
            top = analyzer.bound(start)[1]
            inner.bounds[stmt.loop_var] = (low, None if high is None or top is None else top + high - 1)
            body = rebind(stmt.body, values, inner, guards)
            return For(stmt.loop_var, start, extent, stmt.kind, body, stmt.thread, stmt.annotations, stmt.span)
        case SeqStmt():
            return SeqStmt(tuple(rebind(s, values, analyzer, guards) for s in stmt.seq))
        case IfThenElse():
            return IfThenElse(
                substitute(stmt.condition, values), rebind(stmt.then_case, values, analyzer, guards),
                None if stmt.else_case is None else rebind(stmt.else_case, values, analyzer, guards),
            )  # fmt: skip
        case LetStmt():
            return LetStmt(stmt.var, substitute(stmt.value, values), rebind(stmt.body, values, analyzer, guards))
        case BufferStore() | Evaluate() | While() if guards:
            return IfThenElse(join_conditions(analyzer, guards), substitute(stmt, values))
        case _:
            return substitute(stmt, values)


def join_conditions(analyzer: Analyzer, conditions: Sequence[PrimExpr]) -> PrimExpr:
    """The conjunction, simplified: what is known to hold left out, each conjunct once."""
    kept: dict[object, PrimExpr] = {}
    for condition in conditions:
        for c in split_conditions(condition):
            simple = analyzer.simplify(c)
            if not (isinstance(simple, IntImm) and simple.value):
                kept.setdefault(form_key(simple), simple)
    return E.all_of(*kept.values())


def split(
    tree: Tree, var: Var, factors: Sequence[int | None], preserve_unit_iters: bool = True, predicated: bool = True
) -> tuple[Tree, list[Var]]:
    """Divide a loop into one per factor, outer to inner; one factor may be None (as many as needed).

       for i in range(7): s(i)
    -> for i_0 in range(2):
           for i_1 in range(4):
               if i_0 * 4 + i_1 < 7: s(i_0 * 4 + i_1)
    """
    loop = tree.loops[var]
    _require_plain(tree, loop, "split")
    sizes, covered = _split_sizes(tree, loop, factors)
    new_vars = [Var(f"{var.name}_{i}", var.dtype) for i in range(len(sizes))]
    value: PrimExpr = E.const(0, var.dtype)
    for i, (v, size) in enumerate(zip(new_vars, sizes, strict=True)):
        if preserve_unit_iters or E.const_int(size) != 1:
            stride: PrimExpr | int = 1
            for s in sizes[i + 1 :]:
                stride = E.mul(stride, s)
            value = E.add(value, E.mul(v, stride))
    analyzer = tree.analyzer(tree.parents[loop])
    for v, size in zip(new_vars, sizes, strict=True):
        analyzer.bind(v, Range(E.const(0, v.dtype), size))
    guards = [] if covered or not predicated else [E.compare(E.LT, value, loop.extent)]
    body = rebind(loop.body, {var: value}, analyzer, guards)
    for v, size in zip(reversed(new_vars), reversed(sizes), strict=True):
        body = For(v, E.const(0, v.dtype), size, LoopKind.SERIAL, body)
    return tree.replace(loop, body), new_vars


def _split_sizes(tree: Tree, loop: For, factors: Sequence[int | None]) -> tuple[list[PrimExpr], bool]:
    """The loops' extents, and whether they cover the old extent exactly."""
    dtype, where = loop.loop_var.dtype, where_loop(tree, loop.loop_var)
    known = [f for f in factors if f is not None]
    if len(known) < len(factors) - 1:
        raise ScheduleError("split: at most one factor may be None", where=where)
    if not factors or any(f <= 0 for f in known):
        raise ScheduleError(f"split: factors must be positive, got {list(factors)}", where=where)
    inner = prod(known)
    extent = E.const_int(loop.extent)
    if len(known) == len(factors):
        if extent is None or inner < extent:
            raise ScheduleError(
                f"split: the product of factors {list(factors)} is smaller than the extent "
                f"{loop.extent if extent is None else extent}",
                where=where, hint="give one factor as None",
            )  # fmt: skip
        return [IntImm(f, dtype) for f in known], inner == extent
    rest = (
        IntImm(-(-extent // inner), dtype) if extent is not None else E.floordiv(E.add(loop.extent, inner - 1), inner)
    )
    covered = inner == 1 or (extent is not None and extent % inner == 0)
    return [rest if f is None else IntImm(f, dtype) for f in factors], covered


def _require_plain(tree: Tree, loop: For, action: str) -> None:
    where = where_loop(tree, loop.loop_var)
    if not starts_at_zero(loop):
        raise ScheduleError(f"{action}: loop '{loop.loop_var.name}' does not start at 0", where=where)
    if loop.kind is LoopKind.THREAD_BINDING or loop.annotations:
        what = f"is bound to {loop.thread}" if loop.kind is LoopKind.THREAD_BINDING else "has annotations"
        raise ScheduleError(f"{action}: loop '{loop.loop_var.name}' {what}", where=where, hint=f"{action} first")


def fuse(tree: Tree, variables: Sequence[Var], preserve_unit_iters: bool = True) -> tuple[Tree, Var]:
    """Make one loop of several, outer to inner, each the only child of the one before.

       for i in range(7):
           for j in range(9): s(i, j)
    -> for i_j_fused in range(63): s(i_j_fused // 9, i_j_fused % 9)

    It counts in the widest of their types.
    """
    if not variables:
        raise ScheduleError("fuse: no loops given")
    loops = [tree.loops[v] for v in variables]
    for loop in loops:
        _require_plain(tree, loop, "fuse")
    for outer, inner in zip(loops, loops[1:]):
        if outer.body is not inner:
            raise ScheduleError(
                f"fuse: loop '{inner.loop_var.name}' is not the only child of loop '{outer.loop_var.name}'",
                where=where_loop(tree, outer.loop_var),
            )  # fmt: skip
        if free_vars(inner.extent) & set(variables):
            raise ScheduleError(f"fuse: the extent of loop '{inner.loop_var.name}' depends on an outer loop")
    top = loops[0]
    if len(loops) == 1:
        return tree, top.loop_var
    fused = Var("_".join(v.name for v in variables) + "_fused", max((v.dtype for v in variables), key=item_bytes))
    extents = [E.cast(fused.dtype, loop.extent) for loop in loops]
    extent: PrimExpr = extents[0]
    for each in extents[1:]:
        extent = E.mul(extent, each)
    values: dict[Var, PrimExpr] = {}
    rest: PrimExpr = fused
    for variable, each in reversed([*zip(variables, extents, strict=True)][1:]):
        value = E.const(0, fused.dtype) if E.const_int(each) == 1 else E.floormod(rest, each)
        values[variable] = E.cast(variable.dtype, value)
        rest = E.floordiv(rest, each)
    unit = E.const_int(top.extent) == 1 and not preserve_unit_iters
    values[top.loop_var] = E.cast(top.loop_var.dtype, E.const(0, fused.dtype) if unit else rest)
    analyzer = tree.analyzer(tree.parents[top])
    analyzer.bind(fused, Range(E.const(0, fused.dtype), extent))
    body = rebind(loops[-1].body, values, analyzer)
    return tree.replace(top, For(fused, E.const(0, fused.dtype), extent, LoopKind.SERIAL, body)), fused


def reorder(tree: Tree, variables: Sequence[Var]) -> Tree:
    """Put loops of one chain into the given order; loops between them that are not named stay where they are."""
    if len({id(v) for v in variables}) != len(variables):
        raise ScheduleError("reorder: a loop is given twice")
    if len(variables) < 2:
        return tree
    loops = [tree.loops[v] for v in variables]
    bottom = max(loops, key=lambda x: len(tree.loops_above(x)))
    around = [*tree.loops_above(bottom), bottom]
    if any(x not in around for x in loops):
        raise ScheduleError("reorder: the loops are not in one chain", where=where_loop(tree, variables[0]))
    chain = around[min(around.index(x) for x in loops) :]
    if only_child_chain(chain[0], bottom) is None:
        raise ScheduleError(
            f"reorder: a loop between '{chain[0].loop_var.name}' and '{bottom.loop_var.name}' holds more than "
            "the next loop",
            where=where_loop(tree, chain[0].loop_var),
        )  # fmt: skip
    blocks = list(realizes_below(bottom.body))
    require_iter_kinds(tree, blocks, "reorder")
    require_no_ring(tree, blocks, "reorder")
    for r in blocks:
        if r.block.init is not None or any(iv.kind == REDUCE for iv in r.block.iter_vars):
            require_binds_once(tree, r, chain[0], "reorder")
    queue = list(loops)
    order = [queue.pop(0) if x in loops else x for x in chain]
    for r in blocks:
        if r.block.init is not None:
            _require_start_first(tree, r, chain, order)
    seen: set[Var] = set()
    chained = {x.loop_var for x in chain}
    for x in order:
        if ((free_vars(x.extent) | free_vars(x.start)) & chained) - seen:
            raise ScheduleError(
                f"reorder: the bounds of loop '{x.loop_var.name}' depend on a loop that would come inside of it"
            )
        seen.add(x.loop_var)
    body = bottom.body
    for x in reversed(order):
        body = For(x.loop_var, x.start, x.extent, x.kind, body, x.thread, x.annotations, x.span)
    return tree.replace(chain[0], body)


def _require_start_first(tree: Tree, realize: BlockRealize, chain: Sequence[For], order: Sequence[For]) -> None:
    """Check that each point of a reduction still begins at its start, where it is initialised.

    Loops that only reduce or only choose points may change places. Of `i = (f_0 * 5 + f_1) // 3, k = … % 3` with `f_1`
    outside, the second point would begin at f = 5, in the middle of its reduction.
    """
    tangled = _tangled_vars(realize)
    old, new = ([x.loop_var for x in loops if x.loop_var in tangled] for loops in (chain, order))
    if old != new:
        name = realize.block.name_hint
        raise ScheduleError(
            f"reorder: loops {', '.join(v.name for v in old)} run over points and reduction of block '{name}' at once: "
            "in another order, a point would not begin at its initialisation",
            where=where_block(tree, name), hint="decompose_reduction first",
        )  # fmt: skip


def _tangled_vars(realize: BlockRealize) -> set[Var]:
    """The loop variables that bind, alone or together with others, both spatial and reducing variables of a block."""
    groups: list[tuple[set[Var], set[str]]] = []  # variables that share bindings, kinds that they bind
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        variables, kinds = set(free_vars(value)), {iv.kind}
        for group in [g for g in groups if g[0] & variables]:
            groups.remove(group)
            variables, kinds = variables | group[0], kinds | group[1]
        groups.append((variables, kinds))
    return {v for variables, kinds in groups if len(kinds) > 1 for v in variables}


def add_unit_loop(tree: Tree, stmt: Stmt) -> tuple[Tree, Var]:
    """A loop of extent 1 around a loop or block, of the dtype that the loops there have."""
    var = Var("u", _dtype_at(tree, stmt))
    return tree.replace(stmt, For(var, E.const(0, var.dtype), E.const(1, var.dtype), LoopKind.SERIAL, stmt)), var


def _dtype_at(tree: Tree, stmt: Stmt) -> str:
    near = [stmt, *reversed(tree.loops_above(stmt))]
    found = [x.loop_var.dtype for x in near if isinstance(x, For)]
    if isinstance(stmt, BlockRealize):
        found += [iv.var.dtype for iv in stmt.block.iter_vars]
    return found[0] if found else "int32"


def set_kind(tree: Tree, var: Var, kind: LoopKind, thread: str = "") -> Tree:
    """Say who runs a loop; a second kind replaces the first."""
    loop = tree.loops[var]
    action = {LoopKind.VECTORIZED: "vectorize", LoopKind.THREAD_BINDING: "bind", LoopKind.UNROLLED: "unroll"}.get(
        kind, "parallel"
    )
    if kind is not LoopKind.UNROLLED:
        if loop.kind is LoopKind.THREAD_BINDING and kind is not LoopKind.THREAD_BINDING:
            raise ScheduleError(f"{action}: loop '{var.name}' is bound to {loop.thread}", where=where_loop(tree, var))
        cooperating = thread.startswith("threadIdx")
        if not cooperating:
            require_parallel(tree, loop, action, private_copies=kind is not LoopKind.VECTORIZED)
    return tree.replace(loop, replace(loop, kind=kind, thread=thread))


def bind(tree: Tree, var: Var, thread: str) -> Tree:
    """Bind a loop to a thread axis."""
    if thread not in THREADS:
        raise InvalidValueError(f"bind: unknown thread axis '{thread}'", hint=f"one of {', '.join(THREADS)}")
    return set_kind(tree, var, LoopKind.THREAD_BINDING, thread)
