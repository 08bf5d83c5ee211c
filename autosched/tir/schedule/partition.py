"""loop_partition, merge and reorder_block_iter_var: loops cut into consecutive ones, sibling nests joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, Range
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.schedule.check import body_statements, starts_at_zero
from autosched.tir.schedule.loops import rebind
from autosched.tir.schedule.place import where_block, where_loop
from autosched.tir.schedule.tree import Tree, all_realizes
from autosched.tir.stmt import Block, For, LetStmt, LoopKind, SeqStmt, Stmt, seq


def loop_partition(tree: Tree, var: Var, sizes: Sequence[int | None]) -> tuple[Tree, list[Var]]:
    """Cut a loop into consecutive ones; one size may be None (what is left), and what sizes leave is a last loop.

       for i in range(10): s(i)   with [2, None]
    -> for i_0 in range(2): s(i_0)
       for i_1 in range(8): s(2 + i_1)
    """
    loop, where = tree.loops[var], where_loop(tree, var)
    extent = E.const_int(loop.extent)
    if not starts_at_zero(loop) or extent is None:
        raise ScheduleError(f"loop_partition: loop '{var.name}' has no constant range from 0", where=where)
    if loop.kind is LoopKind.THREAD_BINDING or loop.annotations:
        raise ScheduleError(f"loop_partition: loop '{var.name}' is bound or annotated", where=where)
    known = sum(s for s in sizes if s is not None)
    missing = sum(s is None for s in sizes)
    if missing > 1 or not sizes or any(s is not None and s <= 0 for s in sizes):
        raise ScheduleError(f"loop_partition: sizes {list(sizes)} are not positive, with at most one None", where=where)
    if known < extent and not missing:
        sizes = [*sizes, None]
    if known > extent or (known == extent and missing):
        raise ScheduleError(f"loop_partition: sizes {list(sizes)} do not make up {extent}", where=where)
    for r in all_realizes(loop.body):
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
            if iv.kind == REDUCE and var in free_vars(value):
                raise ScheduleError(
                    f"loop_partition: block '{r.block.name_hint}' reduces over '{var.name}'", where=where
                )
    parts: list[Stmt] = []
    made: list[Var] = []
    start = 0
    taken = set(tree.realizes)
    for n, size in enumerate(extent - known if s is None else s for s in sizes):
        new = Var(f"{var.name}_{n}", var.dtype)
        analyzer = tree.analyzer(tree.parents[loop])
        analyzer.bind(new, Range(IntImm(0, var.dtype), IntImm(size, var.dtype)))
        shifted: PrimExpr = E.add(IntImm(start, var.dtype), new)
        body = rebind(loop.body if n == 0 else _copied(loop.body, taken), {var: shifted}, analyzer)
        parts.append(For(new, IntImm(0, var.dtype), IntImm(size, var.dtype), loop.kind, body))
        made.append(new)
        start += size
    return tree.replace(loop, seq(*parts)), made


def _copied(stmt: Stmt, taken: set[str]) -> Stmt:
    """A statement with loops and blocks of its own: other variables, other block names."""
    variables: dict[Var, Var] = {}

    def fresh(v: Var) -> None:
        variables.setdefault(v, Var(v.name, v.dtype))

    for s in preorder(stmt):
        if isinstance(s, For):
            fresh(s.loop_var)
        elif isinstance(s, LetStmt | E.Let):
            fresh(s.var)
        elif isinstance(s, Block):
            for iv in s.iter_vars:
                fresh(iv.var)

    def step(x: object) -> object:
        if isinstance(x, Var):
            return variables.get(x, x)
        if isinstance(x, Block):
            name, n = x.name_hint, 0
            while name in taken:
                n += 1
                name = f"{x.name_hint}_{n}"
            taken.add(name)
            return replace(x, name_hint=name)
        return x

    result: Stmt = rewrite(stmt, step)
    return result


def merge(tree: Tree, variables: Sequence[Var]) -> tuple[Tree, Var]:
    """Join sibling nests: loops of one extent, one behind the other, become one loop that runs all their bodies.

       for i in range(8): s(i)
       for j in range(8): t(j)    ->    for i_m in range(8): s(i_m); t(i_m)

    Refused where a later nest reads what an earlier one writes, or writes what it uses.
    """
    if len(variables) < 2:
        raise ScheduleError("merge: at least two loops are needed")
    loops = [tree.loops[v] for v in variables]
    first = loops[0]
    where = where_loop(tree, first.loop_var)
    parent = tree.parents[first]
    items = body_statements(parent) if isinstance(parent, SeqStmt) else ()
    places = [next((i for i, s in enumerate(items) if s is x), -1) for x in loops]
    if -1 in places or places != list(range(places[0], places[0] + len(loops))):
        raise ScheduleError("merge: the loops do not stand one behind the other", where=where)
    for x in loops:
        same = E.const_int(x.extent) is not None and E.const_int(x.extent) == E.const_int(first.extent)
        if not same or not starts_at_zero(x) or x.loop_var.dtype != first.loop_var.dtype:
            raise ScheduleError(
                f"merge: loop '{x.loop_var.name}' has another range", where=where_loop(tree, x.loop_var)
            )
        if x.kind is not LoopKind.SERIAL or x.annotations:
            raise ScheduleError(
                f"merge: loop '{x.loop_var.name}' is not a plain one", where=where_loop(tree, x.loop_var)
            )
    _require_independent(tree, loops)
    new = Var(f"{first.loop_var.name}_m", first.loop_var.dtype)
    analyzer = tree.analyzer(parent)
    analyzer.bind(new, Range(first.start, first.extent))
    bodies = [rebind(x.body, {x.loop_var: new}, analyzer) for x in loops]
    joined = For(new, first.start, first.extent, LoopKind.SERIAL, seq(*bodies))
    kept = (*items[: places[0]], joined, *items[places[-1] + 1 :])
    return tree.replace(parent, seq(*kept)), new


def _require_independent(tree: Tree, loops: Sequence[For]) -> None:
    written: set[object] = set()
    used: set[object] = set()
    for x in loops:
        blocks = [r.block for r in all_realizes(x.body)]
        reads = {r.buffer for b in blocks for r in b.reads}
        writes = {w.buffer for b in blocks for w in b.writes}
        if written & (reads | writes) or used & writes:
            raise ScheduleError(
                f"merge: the nest of '{x.loop_var.name}' uses what one before it writes",
                where=where_loop(tree, x.loop_var),
            )
        written |= writes
        used |= reads


def reorder_block_iter_var(tree: Tree, name: str, order: Sequence[int]) -> Tree:
    """Give a block's iteration variables another order; its loops stay as they are."""
    realize = tree.realizes[name]
    block = realize.block
    if sorted(order) != list(range(len(block.iter_vars))):
        raise ScheduleError(
            f"reorder_block_iter_var: {list(order)} is no order of {len(block.iter_vars)} variables",
            where=where_block(tree, name),
        )
    changed = replace(block, iter_vars=tuple(block.iter_vars[i] for i in order))
    return tree.replace(
        realize, replace(realize, iter_values=tuple(realize.iter_values[i] for i in order), block=changed)
    )
