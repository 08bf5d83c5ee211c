"""cache_read, cache_write and set_scope: copies of buffers, and where buffers live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.access import point
from autosched.tir.axis import SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, replace_buffers, rewrite
from autosched.tir.schedule.check import body_statements, require_complete_or_reduction
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.region import Interval, Part, touched_part
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, LoopKind, SeqStmt, Stmt, seq

SCOPES = (
    "global",
    "local",
    "shared",
    "shared.dyn",
    "wmma.matrix_a",
    "wmma.matrix_b",
    "wmma.accumulator",
    "wgmma.accumulator",
)


def buffer_at(tree: Tree, name: str, which: int | str | Buffer, *, written: bool, action: str) -> Buffer:
    """The buffer a user means: a position in the block's reads or writes, a buffer's name, or the buffer."""
    block = tree.block(name)
    kind = "writes" if written else "reads"
    regions = block.writes if written else block.reads
    buffers = list(dict.fromkeys(r.buffer for r in regions))
    if isinstance(which, int) and 0 <= which < len(buffers):
        return buffers[which]
    for b in buffers:
        if b is which or b.name == which:
            return b
    shown = getattr(which, "name", which)
    raise ScheduleError(
        f"{action}: block '{name}' has no {kind[:-1]} buffer {shown!r}: it {kind} {[b.name for b in buffers]}",
        where=where_block(tree, name),
    )  # fmt: skip


def require_scope(scope: str, action: str) -> None:
    if scope not in SCOPES:
        raise ScheduleError(f"{action}: unknown storage scope '{scope}'", hint=f"one of {', '.join(SCOPES)}")


def copy_nest(name: str, source: Buffer, target: Buffer, box: Part) -> Stmt:
    """Loops ax0, ax1 … that copy a box, or all of dimensions whose extents are no numbers."""
    box = tuple(None if i is not None and _reaches_all(i, n) else i for i, n in zip(box, source.shape, strict=True))
    iter_vars, values, loops = [], [], []
    for d, (interval, size) in enumerate(zip(box, source.shape, strict=True)):
        v = Var(f"v{d}", size.dtype)
        loop = Var(f"ax{d}", size.dtype)
        iter_vars.append(IterVar(Range(IntImm(0, size.dtype), size), v, SPATIAL))
        loops.append((loop, size if interval is None else IntImm(interval.width, loop.dtype)))
        values.append(loop if interval is None else E.add(interval.base, loop))
    at: tuple[PrimExpr, ...] = tuple(iv.var for iv in iter_vars)
    guards = [
        c
        for interval, value, size in zip(box, values, source.shape, strict=True)
        if interval is not None and None in (interval.const_base, E.const_int(size))
        for c in (E.compare(E.GE, value, 0), E.compare(E.LT, value, size))
    ]
    block = Block(
        iter_vars=tuple(iter_vars), alloc_buffers=(), reads=(point(source, at),), writes=(point(target, at),),
        name_hint=name, body=BufferStore(target, BufferLoad(source, at), at),
    )  # fmt: skip
    body: Stmt = BlockRealize(tuple(values), E.all_of(*guards), block)
    for loop, width in reversed(loops):
        body = For(loop, IntImm(0, loop.dtype), width, LoopKind.SERIAL, body)
    return body


def _reaches_all(interval: Interval, size: PrimExpr) -> bool:
    """Whether an interval has all of a dimension whose extent is no number and lies below its end."""
    most = Analyzer().bound(size)[1]
    return E.const_int(size) is None and interval.const_base == 0 and most is not None and interval.width >= most


def _common_parent(tree: Tree, statements: Sequence[Stmt]) -> Stmt:
    """The innermost statement around all of some."""
    paths = [[s, *tree.ancestors(s)] for s in statements]
    shared = [s for s in paths[0] if all(any(s is x for x in p) for p in paths[1:])]
    return next(s for s in shared if not any(s is x for x in statements))


def _body_of(holder: Stmt) -> Stmt:
    """What a sequence, loop or block runs; a sequence stands for itself."""
    match holder:
        case For(body=body):
            return body
        case BlockRealize(block=block):
            return block.body
        case _:
            return holder


def _insert(tree: Tree, parent: Stmt, nest: Stmt, place: int) -> Tree:
    """Put a nest at a place among the statements that `parent` runs."""
    holder = _body_of(parent)
    items = body_statements(holder)
    return tree.replace(holder, seq(*items[:place], nest, *items[place:]))


def _place_of(tree: Tree, parent: Stmt, names: Sequence[str], *, last: bool) -> int:
    holder = _body_of(parent)
    places = [
        i for i, s in enumerate(body_statements(holder)) if any(tree.is_below(tree.realizes[n], s) for n in names)
    ]
    return max(places) if last else min(places)


def box_below(tree: Tree, names: Sequence[str], buffer: Buffer, parent: Stmt, *, written: bool) -> Part:
    box = touched_part(tree, names, buffer, parent, written=written, analyzer=tree.analyzer(parent))
    assert box is not None, "somebody uses the buffer"
    return box


def _rename_in(tree: Tree, names: Sequence[str], old: Buffer, new: Buffer, starts: Sequence[PrimExpr] = ()) -> Tree:
    """One buffer for another in some blocks; with `starts`, the new one begins there and is indexed from there."""

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is old:
            return BufferLoad(new, tuple(E.sub(i, b) for i, b in zip(x.indices, starts, strict=True)))
        if isinstance(x, BufferStore) and x.buffer is old:
            return BufferStore(new, x.value, tuple(E.sub(i, b) for i, b in zip(x.indices, starts, strict=True)))
        if isinstance(x, BufferRegion) and x.buffer is old:
            ranges = (Range(E.sub(r.min, b), r.extent) for r, b in zip(x.region, starts, strict=True))
            return BufferRegion(new, tuple(ranges))
        return x

    for n in names:
        realize = tree.realizes[n]
        block = rewrite(realize.block, step) if starts else replace_buffers(realize.block, {old: new})
        tree = tree.replace(realize, BlockRealize(realize.iter_values, realize.predicate, block))
    return tree


def _part_of(tree: Tree, scope: BlockRealize, box: Part) -> tuple[Interval, ...] | None:
    """What a copy inside of a block keeps of a buffer: the part that one run of the block uses; None for all of it."""
    if scope is tree.root:
        return None
    known = tuple(i for i in box if i is not None)
    own = {iv.var for iv in scope.block.iter_vars}
    fits = len(known) == len(box) and all(free_vars(i.base) <= own for i in known)
    return known if fits else None


def _with_copy(
    tree: Tree, scope: BlockRealize, parent: Stmt, place: int, name: str, buffer: Buffer, storage: str, box: Part,
    users: Sequence[str], *, written: bool,
) -> Tree:  # fmt: skip
    """Put the nest that copies a box from (to) a buffer at a place, and let the users work on the copy."""
    part = _part_of(tree, scope, box)
    shape = buffer.shape if part is None else tuple(E.const(i.width, n.dtype) for i, n in zip(part, buffer.shape))
    copy = Buffer(tree.unique_buffer_name(f"{buffer.name}_{storage}"), shape, buffer.dtype, scope=storage)
    starts = () if part is None else tuple(i.base for i in part)
    source, target = (copy, buffer) if written else (buffer, copy)
    if part is None:
        nest = copy_nest(name, source, target, box)
    else:
        nest = _copy_part(name, source, target, part, written=written)
    tree = _insert(tree, parent, nest, place)
    tree = _rename_in(tree, users, buffer, copy, starts)
    holder = tree.realizes[scope.block.name_hint]
    return _replace_realize(tree, holder, replace(holder.block, alloc_buffers=(*holder.block.alloc_buffers, copy)))


def _copy_part(name: str, source: Buffer, target: Buffer, part: Sequence[Interval], *, written: bool) -> Stmt:
    """Loops ax0, ax1 … over a copy of a part: A_local[v0, v1] = A[start + v0, v1], or back where it is written."""
    dtypes = [i.base.dtype for i in part]
    iter_vars = [
        IterVar(Range(IntImm(0, t), IntImm(i.width, t)), Var(f"v{d}", t), SPATIAL)
        for d, (i, t) in enumerate(zip(part, dtypes, strict=True))
    ]
    own = tuple(iv.var for iv in iter_vars)
    there = tuple(E.add(i.base, v) for i, v in zip(part, own, strict=True))
    read, write = (own, there) if written else (there, own)
    block = Block(
        iter_vars=tuple(iter_vars), alloc_buffers=(), reads=(point(source, read),), writes=(point(target, write),),
        name_hint=name, body=BufferStore(target, BufferLoad(source, read), write),
    )  # fmt: skip
    loops = [Var(f"ax{d}", t) for d, t in enumerate(dtypes)]
    body: Stmt = BlockRealize(tuple(loops), IntImm(1, "bool"), block)
    for loop, i in zip(reversed(loops), reversed(part), strict=True):
        body = For(loop, IntImm(0, loop.dtype), IntImm(i.width, loop.dtype), LoopKind.SERIAL, body)
    return body


def cache_read(
    tree: Tree, name: str, which: int | str | Buffer, scope: str, consumers: Sequence[str] = ()
) -> tuple[Tree, str]:
    """Copy what blocks read of a buffer into a new one and let them read that; returns the copy block's name.

        C[i] = A[i] + 1   ->   A_global[i] = A[i];  C[i] = A_global[i] + 1

    The copy stands at the widest place; compute_at moves it. Without `consumers`, all readers use the copy.
    """
    require_scope(scope, "cache_read")
    buffer = buffer_at(tree, name, which, written=False, action="cache_read")
    if any(w.buffer is buffer for w in tree.block(name).writes):
        raise ScheduleError(f"cache_read: block '{name}' writes '{buffer.name}' as well", where=where_block(tree, name))
    scope_block = tree.scope_of(tree.realizes[name])
    tree = tree.seen_from(scope_block)
    writers = _those_in(tree, scope_block, tree.writers.get(buffer, []), name, "cache_read")
    every = _those_in(tree, scope_block, tree.readers[buffer], name, "cache_read")
    readers = [r for r in every if not consumers or r in consumers]
    unrelated = [c for c in consumers if c not in every]
    if unrelated:
        raise ScheduleError(
            f"cache_read: block '{unrelated[0]}' does not read '{buffer.name}'", where=where_block(tree, name)
        )
    readers = [r for r in readers if r not in writers]
    if not readers:
        raise ScheduleError(
            f"cache_read: block '{consumers[0]}' writes '{buffer.name}' as well", where=where_block(tree, name)
        )
    if writers and max(map(tree.position, writers)) > min(map(tree.position, readers)):
        raise ScheduleError(f"cache_read: '{buffer.name}' is written after it is read", where=where_block(tree, name))
    users = [*writers, *readers]
    parent = _common_parent(tree, [tree.realizes[n] for n in users]) if writers else scope_block
    parent = _holder(tree, parent)
    place = _place_of(tree, parent, writers, last=True) + 1 if writers else _place_of(tree, parent, readers, last=False)
    if place > _place_of(tree, parent, readers, last=False):
        raise ScheduleError(
            f"cache_read: '{readers[0]}' reads '{buffer.name}' in the loops that write it, '{readers[-1]}' "
            "outside of them",
            where=where_block(tree, name), hint="name consumer_blocks that stand together",
        )  # fmt: skip
    box = box_below(tree, writers or readers, buffer, parent, written=bool(writers))
    copy_name = tree.unique_block_name(tree.unique_buffer_name(f"{buffer.name}_{scope}"))
    tree = _with_copy(tree, scope_block, parent, place, copy_name, buffer, scope, box, readers, written=False)
    return tree, copy_name


def _those_in(tree: Tree, scope: BlockRealize, users: Sequence[str], name: str, action: str) -> list[str]:
    """The users of a buffer that stand directly in a block. Raises ScheduleError where others do not stand outside."""
    found = [n for n in users if tree.scope_of(tree.realizes[n]) is scope]
    other = next((n for n in users if n not in found and tree.is_below(tree.realizes[n], scope)), None)
    if other is not None:
        raise ScheduleError(
            f"{action}: block '{other}' uses the buffer as well and stands in another block",
            where=where_block(tree, name),
        )  # fmt: skip
    return found


def _holder(tree: Tree, stmt: Stmt) -> Stmt:
    """The nearest statement that may take another beside what it holds: a sequence, a loop or a block."""
    while not isinstance(stmt, SeqStmt | For | BlockRealize):
        stmt = tree.parents[stmt]
    return stmt


def cache_write(
    tree: Tree, name: str, which: int | str | Buffer, scope: str, consumers: Sequence[str] = ()
) -> tuple[Tree, str]:
    """Let a block write into a new buffer that is copied to the old one; returns the copy block's name.

        C[i] = A[i] + 1   ->   C_local[i] = A[i] + 1;  C[i] = C_local[i]

    `consumers` read the new buffer directly.
    """
    require_scope(scope, "cache_write")
    buffer = buffer_at(tree, name, which, written=True, action="cache_write")
    scope_block = tree.scope_of(tree.realizes[name])
    tree = tree.seen_from(scope_block)
    require_complete_or_reduction(tree, name, "cache_write")
    readers = _those_in(tree, scope_block, tree.readers.get(buffer, []), name, "cache_write")
    unrelated = [c for c in consumers if c not in readers]
    if unrelated:
        raise ScheduleError(
            f"cache_write: block '{unrelated[0]}' does not read '{buffer.name}'", where=where_block(tree, name)
        )
    users = [tree.realizes[n] for n in (name, *readers)]
    parent = _holder(tree, _common_parent(tree, users) if readers else scope_block)
    place = _place_of(tree, parent, [name], last=True) + 1
    left = [r for r in readers if r not in consumers]
    behind = _place_of(tree, parent, [name, *consumers], last=True) + 1
    if not readers:
        place = len(body_statements(_body_of(parent)))
    elif not left or behind <= _place_of(tree, parent, left, last=False):
        place = behind
    elif place > _place_of(tree, parent, left, last=False):
        raise ScheduleError(
            f"cache_write: '{left[0]}' reads '{buffer.name}' in the loops that write it, others outside of them",
            where=where_block(tree, name), hint="name consumer_blocks that read the new buffer",
        )  # fmt: skip
    box = box_below(tree, [name], buffer, parent, written=True)
    copy_name = tree.unique_block_name(tree.unique_buffer_name(f"{buffer.name}_{scope}"))
    names = [name, *consumers]
    tree = _with_copy(tree, scope_block, parent, place, copy_name, buffer, scope, box, names, written=True)
    return tree, copy_name


def set_scope(tree: Tree, name: str, which: int | str | Buffer, scope: str) -> Tree:
    """Say where a buffer that the block writes lives ("global", "local" …)."""
    require_scope(scope, "set_scope")
    buffer = buffer_at(tree, name, which, written=True, action="set_scope")
    if buffer in tree.interface:
        raise ScheduleError(
            f"set_scope: '{buffer.name}' belongs to the function's interface",
            where=where_block(tree, name), hint="cache_write first",
        )  # fmt: skip
    if buffer.scope == scope:
        return tree
    return replace_everywhere(tree, buffer, replace(buffer, scope=scope))


def replace_everywhere(tree: Tree, old: Buffer, new: Buffer) -> Tree:
    """One buffer for another, in the blocks that use it and where it is allocated."""
    root = tree.root.block.name_hint
    names = [
        n for n, r in tree.realizes.items()
        if n != root and any(x.buffer is old for x in (*r.block.reads, *r.block.writes))
    ]  # fmt: skip
    tree = _rename_in(tree, names, old, new)
    holders = [r for r in tree.realizes.values() if old in r.block.alloc_buffers]
    for r in holders:
        current = tree.realizes[r.block.name_hint]
        allocs = tuple(new if b is old else b for b in current.block.alloc_buffers)
        tree = _replace_realize(tree, current, replace(current.block, alloc_buffers=allocs))
    return tree


def _replace_realize(tree: Tree, realize: BlockRealize, block: Block) -> Tree:
    new = BlockRealize(realize.iter_values, realize.predicate, block)
    return tree.with_root(new) if realize is tree.root else tree.replace(realize, new)


def position_of(tree: Tree, name: str, which: int | str | Buffer, *, written: bool, action: str) -> int:
    """The position of a buffer among those that a block reads (writes)."""
    found = buffer_at(tree, name, which, written=written, action=action)
    block = tree.block(name)
    buffers = list(dict.fromkeys(r.buffer for r in (block.writes if written else block.reads)))
    return next(i for i, b in enumerate(buffers) if b is found)


def read_or_write(tree: Tree, name: str, which: tuple[str, int] | str | Buffer) -> tuple[str, int]:
    """("read" or "write", position) of the buffer that a user means."""
    if isinstance(which, tuple | list):
        kind, index = which
        if kind not in ("read", "write"):
            raise ScheduleError(f"a buffer is given as ('read' or 'write', position), got {which!r}")
        return kind, index
    try:
        return "write", position_of(tree, name, which, written=True, action="transform_layout")
    except ScheduleError:
        return "read", position_of(tree, name, which, written=False, action="transform_layout")
