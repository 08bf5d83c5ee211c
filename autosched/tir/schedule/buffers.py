"""Primitives about buffers themselves: dtypes, axis separators, declared regions, copies in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autosched.errors import InvalidTypeError, ScheduleError
from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import check_dtype
from autosched.tir.expr import Var, to_expr
from autosched.tir.functor import replace_buffers, rewrite
from autosched.tir.schedule.cache import box_below, copy_nest, replace_everywhere, require_scope
from autosched.tir.schedule.check import require_no_match
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.reindex import insert_beside
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import BufferRegion, BufferStore


def unsafe_set_dtype(tree: Tree, name: str, buffer: Buffer, dtype: str) -> Tree:
    """Store a buffer in another dtype: what is stored is converted, and converted back where it is read."""
    if buffer in tree.interface:
        raise ScheduleError(
            f"unsafe_set_dtype: '{buffer.name}' belongs to the function's interface", where=where_block(tree, name),
            hint="cache_write first",
        )  # fmt: skip
    require_no_match(tree, buffer, "unsafe_set_dtype")
    new = replace(buffer, dtype=check_dtype(dtype, "unsafe_set_dtype"))

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            return E.cast(buffer.dtype, BufferLoad(new, x.indices))
        if isinstance(x, BufferStore) and x.buffer is buffer:
            return BufferStore(new, E.cast(new.dtype, x.value), x.indices)
        return x

    root = tree.root.block.name_hint
    for user in [n for n in tree.realizes if n != root]:
        realize = tree.realizes[user]
        block = realize.block
        init = None if block.init is None else rewrite(block.init, step)
        body = rewrite(block.body, step) if user in tree.leaf_names else block.body
        if init is not block.init or body is not block.body:
            tree = tree.replace(realize, replace(realize, block=replace(block, body=body, init=init)))
    return replace_everywhere(tree, buffer, new)


def set_axis_separator(tree: Tree, name: str, buffer: Buffer, separators: Sequence[int]) -> Tree:
    """Note between which dimensions a buffer may not be flattened."""
    if list(separators) != sorted(separators) or any(not 0 <= s <= buffer.ndim for s in separators):
        raise ScheduleError(
            f"set_axis_separator: {list(separators)} are no ascending positions among {buffer.ndim} dimensions",
            where=where_block(tree, name),
        )  # fmt: skip
    new = replace(buffer, axis_separators=tuple(int(s) for s in separators))
    tree = replace_everywhere(tree, buffer, new)
    if buffer in tree.interface:
        func = tree.func
        mapped = FrozenDict({p: new if b is buffer else b for p, b in func.buffer_map.items()})
        tree = tree.with_func(replace(func, buffer_map=mapped))
    return tree


def hide_access(tree: Tree, name: str, kind: str, positions: Sequence[int]) -> Tree:
    """Leave regions out of what a block declares to read or write."""
    if kind not in ("read", "write"):
        raise ScheduleError(
            f"unsafe_hide_buffer_access: '{kind}' is neither 'read' nor 'write'", where=where_block(tree, name)
        )
    realize = tree.realizes[name]
    regions = realize.block.reads if kind == "read" else realize.block.writes
    if any(not 0 <= p < len(regions) for p in positions):
        raise ScheduleError(
            f"unsafe_hide_buffer_access: block '{name}' {kind}s {len(regions)} regions", where=where_block(tree, name)
        )
    kept = tuple(r for i, r in enumerate(regions) if i not in positions)
    block = replace(realize.block, reads=kept) if kind == "read" else replace(realize.block, writes=kept)
    return tree.replace(realize, replace(realize, block=block))


def ranges_of(tree: Tree, name: str, buffer: Buffer, make: Callable[..., object]) -> tuple[Range, ...]:
    """What a function of a block's variables gives: (start, end) or an index for each dimension of a buffer."""
    variables: list[Var] = [iv.var for iv in tree.block(name).iter_vars]
    found = make(*variables)
    parts = list(found) if isinstance(found, list | tuple) else [found]
    if len(parts) == 2 * buffer.ndim:  # as a trace writes it: the starts and ends in turn
        parts = list(zip(parts[::2], parts[1::2], strict=True))
    if len(parts) != buffer.ndim:
        raise InvalidTypeError(
            f"annotate_buffer_access: {len(parts)} ranges for the {buffer.ndim} dimensions of '{buffer.name}'"
        )
    ranges = []
    for part in parts:
        if isinstance(part, list | tuple):
            low, high = E.match_types(to_expr(part[0]), to_expr(part[1]))
            ranges.append(Range(low, E.sub(high, low)))
        else:
            at = to_expr(part)
            ranges.append(Range(at, E.const(1, at.dtype)))
    return tuple(ranges)


def set_access(tree: Tree, name: str, buffer: Buffer, kind: str, ranges: tuple[Range, ...]) -> Tree:
    """Declare the region of a buffer that a block reads or writes."""
    analyzer = Analyzer()
    for iv in tree.block(name).iter_vars:
        analyzer.bind(iv.var, iv.dom)
    simple = tuple(Range(analyzer.simplify(r.min), analyzer.simplify(r.extent)) for r in ranges)
    realize = tree.realizes[name]
    block = realize.block
    region = BufferRegion(buffer, simple)
    if kind == "read":
        block = replace(block, reads=tuple(region if r.buffer is buffer else r for r in block.reads))
    else:
        block = replace(block, writes=tuple(region if r.buffer is buffer else r for r in block.writes))
    return tree.replace(realize, replace(realize, block=block))


def cache_inplace(tree: Tree, name: str, buffer: Buffer, scope: str) -> tuple[Tree, str, str]:
    """Copy a buffer that a block changes in place, let it change the copy, and copy back; returns both blocks."""
    require_scope(scope, "cache_inplace")
    realize, where = tree.realizes[name], where_block(tree, name)
    block = realize.block
    if not any(w.buffer is buffer for w in block.writes) or not any(r.buffer is buffer for r in block.reads):
        raise ScheduleError(f"cache_inplace: block '{name}' does not both read and write '{buffer.name}'", where=where)
    users = [*tree.writers.get(buffer, ()), *tree.readers.get(buffer, ())]
    if set(users) != {name}:
        other = next(u for u in users if u != name)
        raise ScheduleError(f"cache_inplace: block '{other}' uses '{buffer.name}' as well", where=where)
    copy = Buffer(tree.unique_buffer_name(f"{buffer.name}_{scope}"), buffer.shape, buffer.dtype, scope=scope)
    scope_block = tree.scope_of(realize)
    read = box_below(tree, [name], buffer, scope_block, written=False)
    write = box_below(tree, [name], buffer, scope_block, written=True)
    first = tree.unique_block_name(copy.name)
    ahead = copy_nest(first, buffer, copy, read)
    tree = insert_beside(tree, name, ahead, after=False)
    second = tree.unique_block_name(copy.name)
    tree = insert_beside(tree, name, copy_nest(second, copy, buffer, write), after=True)
    current = tree.realizes[name]
    changed = replace_buffers(current.block, {buffer: copy})
    tree = tree.replace(current, replace(current, block=changed))
    return tree.add_buffers(copy), first, second
