"""reindex and its relatives: copies of buffers whose indices are a block's own iteration variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.access import full_region, point
from autosched.tir.axis import REDUCE, SPATIAL, IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, loads, rewrite, stores, substitute
from autosched.tir.schedule.cache import require_scope
from autosched.tir.schedule.check import body_statements, require_complete_or_reduction, writes_each_point_once
from autosched.tir.schedule.inline import with_regions
from autosched.tir.schedule.iter_map import is_injective
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, LoopKind, Stmt, seq

Indices = tuple[PrimExpr, ...]


def nest_over(variables: Sequence[IterVar], block: Block) -> Stmt:
    """Loops ax0, ax1 … one to one around a block over these variables."""
    loops = [Var(f"ax{i}", iv.var.dtype) for i, iv in enumerate(variables)]
    values = tuple(E.add(x, iv.dom.min) for x, iv in zip(loops, variables, strict=True))
    body: Stmt = BlockRealize(values, IntImm(1, "bool"), block)
    for x, iv in zip(reversed(loops), reversed(variables), strict=True):
        body = For(x, IntImm(0, x.dtype), iv.dom.extent, LoopKind.SERIAL, body)
    return body


def fresh_vars(iter_vars: Sequence[IterVar]) -> tuple[list[IterVar], dict[Var, PrimExpr]]:
    """Spatial variables v0, v1 … over the same domains, and what the old ones become."""
    new = [IterVar(iv.dom, Var(f"v{i}", iv.var.dtype), SPATIAL) for i, iv in enumerate(iter_vars)]
    return new, {iv.var: n.var for iv, n in zip(iter_vars, new, strict=True)}


def insert_beside(tree: Tree, name: str, nest: Stmt, *, after: bool) -> Tree:
    """Put a nest before or after the statement of the block's scope that holds the block."""
    realize = tree.realizes[name]
    scope = tree.scope_of(realize)
    top: Stmt = realize
    for s in tree.ancestors(realize):
        if s is scope:
            break
        top = s
    holder = scope.block.body
    top = next(s for s in body_statements(holder) if tree.is_below(realize, s)) if top is holder else top
    items = body_statements(holder)
    place = next(i for i, s in enumerate(items) if tree.is_below(realize, s)) + (1 if after else 0)
    return tree.replace(holder, seq(*items[:place], nest, *items[place:]))


def one_access(tree: Tree, name: str, buffer: Buffer, *, written: bool, action: str) -> Indices:
    """The indices at which a block uses a buffer. Raises where they differ from place to place."""
    block = tree.block(name)
    found = [x.indices for x in (stores(block.body) if written else loads(block.body)) if x.buffer is buffer]
    if not found or len({tuple(map(form_key, i)) for i in found}) != 1:
        raise ScheduleError(
            f"{action}: block '{name}' uses '{buffer.name}' at more than one place", where=where_block(tree, name)
        )
    own = {iv.var for iv in block.iter_vars}
    if any(free_vars(i) - own for i in found[0]) or any(loads(i) for i in found[0]):
        raise ScheduleError(
            f"{action}: the index of '{buffer.name}' is no expression of the block's variables alone",
            where=where_block(tree, name),
        )  # fmt: skip
    return found[0]


def _require_inside(tree: Tree, name: str, buffer: Buffer, at: Indices, action: str) -> None:
    analyzer = Analyzer()
    for iv in tree.block(name).iter_vars:
        analyzer.bind(iv.var, iv.dom)
    for index, extent in zip(at, buffer.shape, strict=True):
        low, high = analyzer.bound(index)
        if low is None or low < 0 or high is None or not analyzer.can_prove(E.compare(E.LT, index, extent)):
            raise ScheduleError(
                f"{action}: the index of '{buffer.name}' is not proven to stay inside of it",
                where=where_block(tree, name), hint="the block reads it under a condition",
            )  # fmt: skip


def used_vars(tree: Tree, name: str, exprs: Sequence[PrimExpr]) -> list[IterVar]:
    """The block's iteration variables that occur in expressions, in their order."""
    used = {v for x in exprs for v in free_vars(x)}
    return [iv for iv in tree.block(name).iter_vars if iv.var in used]


def _shape_of(tree: Tree, name: str, target: Indices, action: str) -> tuple[PrimExpr, ...]:
    analyzer = Analyzer()
    for iv in tree.block(name).iter_vars:
        analyzer.bind(iv.var, iv.dom)
    shape = []
    for x in target:
        low, high = analyzer.bound(x)
        if isinstance(x, Var):
            dom = next(iv.dom for iv in tree.block(name).iter_vars if iv.var is x)
            shape.append(E.add(dom.min, dom.extent))
        elif low is None or low < 0 or high is None:
            raise ScheduleError(f"{action}: the new index '{x}' has no bounds", where=where_block(tree, name))
        else:
            shape.append(E.const(high + 1, x.dtype))
    return tuple(shape)


def _require_distinct(tree: Tree, name: str, target: Indices, variables: Sequence[IterVar], action: str) -> None:
    extents: dict[Var, int] = {}
    analyzer = Analyzer()
    for iv in variables:
        extent = E.const_int(iv.dom.extent)
        analyzer.bind(iv.var, iv.dom)
        if extent is None:
            if all(any(x is v.var for x in target) for v in variables):
                return
            raise ScheduleError(f"{action}: '{iv.var.name}' has no constant extent", where=where_block(tree, name))
        extents[iv.var] = extent
    if not is_injective(target, extents, analyzer):
        raise ScheduleError(f"{action}: the index map may put two elements in one place", where=where_block(tree, name))


def reindexed_read(
    tree: Tree, name: str, buffer: Buffer, target: Indices, scope: str, copy_name: str, action: str
) -> tuple[Tree, str]:
    """Let a block read a copy of a buffer at `target`, expressions of its own variables; returns the copying block.

    B[vi, vj] = A[vj, vi] * 2   ->   A_reindex[v0, v1] = A[v1, v0];  B[vi, vj] = A_reindex[vi, vj] * 2
    """
    require_scope(scope, action)
    block, where = tree.block(name), where_block(tree, name)
    if any(w.buffer is buffer for w in block.writes):
        raise ScheduleError(f"{action}: block '{name}' writes '{buffer.name}' as well", where=where)
    at = one_access(tree, name, buffer, written=False, action=action)
    _require_inside(tree, name, buffer, at, action)
    variables = used_vars(tree, name, [*target, *at])
    if used_vars(tree, name, at) and not {v for x in at for v in free_vars(x)} <= {
        v for x in target for v in free_vars(x)
    }:
        raise ScheduleError(
            f"{action}: the index map leaves out variables that '{buffer.name}' is read by", where=where
        )
    _require_distinct(tree, name, target, variables, action)
    _require_settled(tree, name, buffer, action)
    copy = Buffer(tree.unique_buffer_name(copy_name), _shape_of(tree, name, target, action), buffer.dtype, scope=scope)
    new, renamed = fresh_vars(variables)
    source, there = (tuple(substitute(i, renamed) for i in x) for x in (at, target))
    made = Block(
        iter_vars=tuple(new), alloc_buffers=(), reads=(point(buffer, source),), writes=(point(copy, there),),
        name_hint=tree.unique_block_name(copy_name), body=BufferStore(copy, BufferLoad(buffer, source), there),
    )  # fmt: skip
    tree = _with_access(tree, name, buffer, copy, target)
    return insert_beside(tree, name, nest_over(new, made), after=False).add_buffers(copy), made.name_hint


def _require_settled(tree: Tree, name: str, buffer: Buffer, action: str) -> None:
    """The writer of the buffer stands before the statement that holds the block."""
    realize, scope = tree.realizes[name], tree.scope_of(tree.realizes[name])
    items = body_statements(scope.block.body)
    here = next(i for i, s in enumerate(items) if tree.is_below(realize, s))
    for writer in tree.writers.get(buffer, ()):
        place = [i for i, s in enumerate(items) if tree.is_below(tree.realizes[writer], s)]
        if place and place[0] >= here:
            raise ScheduleError(
                f"{action}: '{writer}' writes '{buffer.name}' in the loops around block '{name}'",
                where=where_block(tree, name),
            )  # fmt: skip


def _with_access(tree: Tree, name: str, old: Buffer, new: Buffer, at: Indices) -> Tree:
    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is old:
            return BufferLoad(new, at)
        if isinstance(x, BufferStore) and x.buffer is old:
            return BufferStore(new, x.value, at)
        return x

    realize = tree.realizes[name]
    block = realize.block
    init = None if block.init is None else rewrite(block.init, step)
    changed = with_regions(replace(block, body=rewrite(block.body, step), init=init))
    return tree.replace(realize, replace(realize, block=changed))


def reindexed_write(
    tree: Tree, name: str, buffer: Buffer, target: Indices, scope: str, copy_name: str, action: str
) -> tuple[Tree, str]:
    """Let a block write a buffer of its own at `target`, which is copied to the old one; returns the copying block."""
    require_scope(scope, action)
    require_complete_or_reduction(tree, name, action)
    block, where = tree.block(name), where_block(tree, name)
    at = one_access(tree, name, buffer, written=True, action=action)
    reducing = {iv.var for iv in block.iter_vars if iv.kind == REDUCE}
    if any(free_vars(x) & reducing for x in target):
        raise ScheduleError(f"{action}: the index map uses a variable that is reduced over", where=where)
    spatial = [iv for iv in block.iter_vars if iv.kind == SPATIAL]
    variables = used_vars(tree, name, [*target, *at])
    if not writes_each_point_once(block) or {iv.var for iv in variables} < {
        iv.var for iv in spatial if E.const_int(iv.dom.extent) != 1
    }:
        raise ScheduleError(f"{action}: block '{name}' may write one element several times", where=where)
    _require_distinct(tree, name, target, variables, action)
    items = body_statements(tree.scope_of(tree.realizes[name]).block.body)
    here = next(i for i, s in enumerate(items) if tree.is_below(tree.realizes[name], s))
    for reader in tree.readers.get(buffer, ()):
        if reader != name and tree.is_below(tree.realizes[reader], items[here]):
            raise ScheduleError(
                f"{action}: '{reader}' reads '{buffer.name}' in the loops around the block", where=where
            )
    copy = Buffer(tree.unique_buffer_name(copy_name), _shape_of(tree, name, target, action), buffer.dtype, scope=scope)
    new, renamed = fresh_vars(variables)
    source, there = (tuple(substitute(i, renamed) for i in x) for x in (target, at))
    made = Block(
        iter_vars=tuple(new), alloc_buffers=(), reads=(point(copy, source),), writes=(point(buffer, there),),
        name_hint=tree.unique_block_name(copy_name), body=BufferStore(buffer, BufferLoad(copy, source), there),
    )  # fmt: skip
    tree = _with_access(tree, name, buffer, copy, target)
    return insert_beside(tree, name, nest_over(new, made), after=True).add_buffers(copy), made.name_hint


def reindex(tree: Tree, name: str, buffer: Buffer, *, written: bool) -> tuple[Tree, str]:
    """A copy indexed by the block's variables themselves."""
    at = one_access(tree, name, buffer, written=written, action="reindex")
    target = tuple(iv.var for iv in used_vars(tree, name, at))
    make = reindexed_write if written else reindexed_read
    return make(tree, name, buffer, target, "global", f"{buffer.name}_reindex", "reindex")


def cache_index(tree: Tree, name: str, scope: str, cse_thresh: int) -> tuple[Tree, list[str]]:
    """Compute the indices of a block's reads ahead of it, each in a block of its own; returns these blocks.

    cse_thresh  indices that occur less often are left where they are
    """
    require_scope(scope, "cache_index")
    block = tree.block(name)
    own = {iv.var for iv in block.iter_vars}
    found: dict[object, PrimExpr] = {}
    count: dict[object, int] = {}
    for load in loads(block.body):
        for index in load.indices:
            if isinstance(index, Var | IntImm) or loads(index) or not free_vars(index) or free_vars(index) - own:
                continue
            key = form_key(index)
            found.setdefault(key, index)
            count[key] = count.get(key, 0) + 1
    made: list[str] = []
    for key, index in found.items():
        if count[key] < cse_thresh:
            continue
        variables = used_vars(tree, name, [index])
        n = len(made)
        shape = tuple(E.add(iv.dom.min, iv.dom.extent) for iv in variables)
        buffer = Buffer(tree.unique_buffer_name(f"index_var_{n}"), shape, index.dtype, scope=scope)
        new, renamed = fresh_vars(variables)
        at = tuple(iv.var for iv in new)
        ahead = Block(
            iter_vars=tuple(new), alloc_buffers=(), reads=(), writes=(point(buffer, at),),
            name_hint=tree.unique_block_name(f"index_{n}"), body=BufferStore(buffer, substitute(index, renamed), at),
        )  # fmt: skip
        tree = _with_index(tree, name, key, BufferLoad(buffer, tuple(iv.var for iv in variables)))
        tree = insert_beside(tree, name, nest_over(new, ahead), after=False).add_buffers(buffer)
        made.append(ahead.name_hint)
    if not made:
        raise ScheduleError(f"cache_index: block '{name}' reads at no index worth it", where=where_block(tree, name))
    return tree, made


def _with_index(tree: Tree, name: str, key: object, load: BufferLoad) -> Tree:
    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is not load.buffer:
            return BufferLoad(x.buffer, tuple(load if form_key(i) == key else i for i in x.indices))
        return x

    realize = tree.realizes[name]
    changed = with_regions(replace(realize.block, body=rewrite(realize.block.body, step)))
    full = tuple(_whole(r) if any(loads(part.min) for part in r.region) else r for r in changed.reads)
    return tree.replace(realize, replace(realize, block=replace(changed, reads=full)))


def _whole(r: BufferRegion) -> BufferRegion:
    """A region whose place is only known when it runs, as the whole buffer."""
    return full_region(r.buffer)
