"""transform_layout and transform_block_layout: other indices for a buffer's elements, or for a block's iterations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from autosched.errors import InvalidValueError, ScheduleError
from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.access import full_region
from autosched.tir.axis import SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.index_map import IndexMap
from autosched.tir.schedule.cache import replace_everywhere
from autosched.tir.schedule.check import most_of, require_binds_once, require_complete, require_no_match
from autosched.tir.schedule.domain import classify_all, covers_buffer
from autosched.tir.schedule.inline import simplify_indices, with_regions
from autosched.tir.schedule.iter_map import NotAffine, invert, is_injective
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer, fold
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, LoopKind, Stmt


def transform_layout(
    tree: Tree, name: str, buffer: Buffer, index_map: IndexMap, pad_value: object = None, assume_injective: bool = False
) -> Tree:
    """Store a buffer in another layout; every block that uses it is rewritten.

        B[i]  with lambda i: (i // 4, i % 4)   ->   B[i // 4, i % 4]

    Where the new shape has more elements than the old, `pad_value` fills them; only an intermediate buffer whose one
    producer writes all of it can be padded.
    """
    where = where_block(tree, name)
    try:
        shape = index_map.map_shape(buffer.shape)
    except InvalidValueError as e:
        raise ScheduleError(f"transform_layout of '{buffer.name}': {e.message}", where=where) from e
    extents = {v: most_of(s) for v, s in zip(index_map.initial_indices, buffer.shape, strict=True)}
    ranges = Analyzer({v: (0, n) for v, n in extents.items()})
    if not assume_injective and not is_injective(index_map.final_indices, extents, ranges):
        raise ScheduleError(
            f"transform_layout of '{buffer.name}': {index_map} may put two elements in one place", where=where
        )
    require_no_match(tree, buffer, "transform_layout")
    padding = _has_padding(buffer, shape)
    new = replace(buffer, shape=shape, strides=())
    if padding:
        _require_paddable(tree, name, buffer, pad_value)
    producer = tree.writers[buffer][0] if padding else ""
    order = _written_order(tree, producer) if padding else []
    for n in dict.fromkeys([*tree.writers.get(buffer, ()), *tree.readers.get(buffer, ())]):
        realize = tree.realizes[n]
        tree = tree.replace(realize, replace(realize, block=_map_accesses(realize.block, buffer, new, index_map)))
    for n, realize in list(tree.realizes.items()):  # blocks around others: they use some part of the new buffer
        if n != tree.root.block.name_hint and any(
            r.buffer is buffer for r in (*realize.block.reads, *realize.block.writes)
        ):
            current = tree.realizes[n]
            outer = _with_whole(current.block, buffer, new)
            if n not in tree.leaf_names and outer.init is not None:
                start = replace(current.block, body=outer.init, init=None)
                outer = replace(outer, init=_map_accesses(start, buffer, new, index_map).body)
            tree = tree.replace(current, replace(current, block=outer))
    if buffer in tree.interface:
        tree = _replace_in_interface(tree, buffer, new)
    else:
        tree = replace_everywhere(tree, buffer, new)
    return _pad_producer(tree, producer, buffer, new, index_map, order, pad_value) if padding else tree


def _has_padding(buffer: Buffer, shape: Sequence[PrimExpr]) -> bool:
    """Whether a new shape may have more elements than a buffer."""
    kept = {id(s) for s in shape}
    if not all(isinstance(s, E.IntImm) or id(s) in kept for s in buffer.shape):
        return True  # a dimension of a length that is not known is divided
    return bool(prod(map(most_of, shape)) != prod(map(most_of, buffer.shape)))


def _with_whole(block: Block, old: Buffer, new: Buffer) -> Block:
    """A block that declares to use all of a buffer in place of a part of another."""

    def region(r: BufferRegion) -> BufferRegion:
        return full_region(new) if r.buffer is old else r

    return replace(block, reads=tuple(map(region, block.reads)), writes=tuple(map(region, block.writes)))


def _written_order(tree: Tree, name: str) -> list[Var | None]:
    """The variable that a block writes each dimension by."""
    block = tree.block(name)
    return [i.var for i in classify_all(block.writes[0].region, block)]


def _require_paddable(tree: Tree, name: str, buffer: Buffer, pad_value: object) -> None:
    where = where_block(tree, name)
    if buffer in tree.interface:
        raise ScheduleError(
            f"transform_layout: '{buffer.name}' belongs to the function's interface and cannot be padded", where=where
        )  # fmt: skip
    if pad_value is None:
        raise ScheduleError(
            f"transform_layout: the new layout of '{buffer.name}' has padding", where=where, hint="give pad_value"
        )
    writers = tree.writers.get(buffer, [])
    if len(writers) != 1:
        raise ScheduleError(
            f"transform_layout: '{buffer.name}' has {len(writers)} writers; padding needs one", where=where
        )
    require_complete(tree, writers[0], "transform_layout with padding")
    block = tree.block(writers[0])
    indices = classify_all(block.writes[0].region, block)
    plain = isinstance(block.body, BufferStore) and all(covers_buffer(block, buffer, indices))
    if not plain or len(block.iter_vars) != buffer.ndim:
        raise ScheduleError(
            f"transform_layout: block '{writers[0]}' does not write '{buffer.name}' element by element", where=where
        )


def _map_accesses(block: Block, old: Buffer, new: Buffer, index_map: IndexMap) -> Block:
    analyzer = Analyzer(keep_units=True)
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is old:
            return BufferLoad(new, index_map.map_indices(x.indices, analyzer))
        if isinstance(x, BufferStore) and x.buffer is old:
            return BufferStore(new, x.value, index_map.map_indices(x.indices, analyzer))
        return x

    body, init = rewrite(block.body, step), None if block.init is None else rewrite(block.init, step)
    return with_regions(replace(block, body=body, init=init))


def _replace_in_interface(tree: Tree, old: Buffer, new: Buffer) -> Tree:
    mapping = {p: new if b is old else b for p, b in tree.func.buffer_map.items()}
    return tree.with_func(replace(tree.func, buffer_map=FrozenDict(mapping)))


def _pad_producer(
    tree: Tree,
    name: str,
    old_buffer: Buffer,
    buffer: Buffer,
    index_map: IndexMap,
    order: list[Var | None],
    pad_value: object,
) -> Tree:
    """Let a producer run over the new shape and write the pad value where no old element lies."""
    extents = {v: most_of(s) for v, s in zip(index_map.initial_indices, old_buffer.shape, strict=True)}
    block = tree.block(name)
    assert isinstance(block.body, BufferStore)
    fresh = [IterVar(Range(E.const(0, s.dtype), s), Var(f"v{d}", s.dtype), SPATIAL) for d, s in enumerate(buffer.shape)]
    old = _undo(tree, name, index_map, extents, [iv.var for iv in fresh])
    values: dict[Var, PrimExpr] = {iv.var: iv.dom.min for iv in block.iter_vars}  # right for those of extent 1
    values |= {v: x for v, x in zip(order, old, strict=True) if v is not None}
    analyzer = Analyzer({iv.var: iv.dom for iv in fresh})
    real = E.all_of(*(analyzer.simplify(E.compare(E.LT, x, n)) for x, n in zip(old, old_buffer.shape, strict=True)))
    pad = (
        E.to_expr(pad_value, buffer.dtype)
        if not callable(pad_value)
        else E.to_expr(pad_value(*(iv.var for iv in fresh)), buffer.dtype)
    )
    value = E.if_then_else(real, substitute(block.body.value, values), E.cast(buffer.dtype, pad))
    body = simplify_indices(BufferStore(buffer, value, tuple(iv.var for iv in fresh)), analyzer)
    new = with_regions(replace(block, iter_vars=tuple(fresh), body=body))
    return _replace_whole_nest(tree, name, new)


def _undo(
    tree: Tree, name: str, index_map: IndexMap, extents: dict[Var, int], into: Sequence[PrimExpr]
) -> list[PrimExpr]:
    try:
        return invert(index_map.final_indices, extents, into)
    except NotAffine as e:
        raise ScheduleError(f"no inverse of {index_map} is known", where=where_block(tree, name)) from e


def _replace_whole_nest(tree: Tree, name: str, block: Block) -> Tree:
    """New loops ax0, ax1 … over all of a block in place of the loops that only it uses."""
    realize = tree.realizes[name]
    top: Stmt = realize
    while isinstance(tree.parents[top], For):
        top = tree.parents[top]
    loops = [Var(f"ax{d}", iv.var.dtype) for d, iv in enumerate(block.iter_vars)]
    values = tuple(E.add(v, iv.dom.min) for v, iv in zip(loops, block.iter_vars, strict=True))
    nest: Stmt = BlockRealize(values, E.IntImm(1, "bool"), block)
    for v, iv in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        nest = For(v, E.const(0, v.dtype), iv.dom.extent, LoopKind.SERIAL, nest)
    if any(isinstance(s, For) for s in tree.ancestors(top)):
        raise ScheduleError(
            f"block '{name}' shares loops with other blocks",
            where=where_block(tree, name),
            hint="do this before compute_at",
        )
    return tree.replace(top, nest)


def transform_block_layout(tree: Tree, name: str, index_map: IndexMap) -> Tree:
    """Let a block iterate over other variables, each old one an expression of the new; the loops are made anew.

       for i in range(8): B[i] = …   with lambda i: (i // 4, i % 4)
    -> for ax0 in range(2):
           for ax1 in range(4): B[ax0 * 4 + ax1] = …
    """
    realize, where = tree.realizes[name], where_block(tree, name)
    block = realize.block
    loops = tree.loops_of(name)
    if loops:
        require_binds_once(tree, realize, loops[0], "transform_block_layout")
    if len(block.iter_vars) != index_map.ndim:
        raise ScheduleError(
            f"transform_block_layout: {index_map} takes {index_map.ndim} variables, block '{name}' has "
            f"{len(block.iter_vars)}",
            where=where,
        )
    extents = {v: E.as_int(iv.dom.extent) for v, iv in zip(index_map.initial_indices, block.iter_vars, strict=True)}
    try:
        shape = index_map.map_shape([iv.dom.extent for iv in block.iter_vars])
    except InvalidValueError as e:
        raise ScheduleError(f"transform_block_layout: {e.message}", where=where) from e
    if prod(map(E.as_int, shape)) != prod(extents.values()):
        raise ScheduleError(
            f"transform_block_layout: {index_map} is not a bijection of {list(extents.values())}", where=where
        )
    kinds = _new_kinds(tree, name, index_map, block)
    fresh = [
        IterVar(Range(E.const(0, s.dtype), s), Var(f"v{d}", s.dtype), kind)
        for d, (s, kind) in enumerate(zip(shape, kinds, strict=True))
    ]
    old = _undo(tree, name, index_map, extents, [iv.var for iv in fresh])
    analyzer = Analyzer({iv.var: iv.dom for iv in fresh})
    values: dict[Var, PrimExpr] = {
        iv.var: fold(E.add(analyzer.simplify(x), iv.dom.min)) for iv, x in zip(block.iter_vars, old, strict=True)
    }

    def remade(stmt: Stmt) -> Stmt:
        return simplify_indices(substitute(stmt, values), analyzer)

    init = None if block.init is None else remade(block.init)
    matches = tuple(substitute(m, values) for m in block.match_buffers)
    new = with_regions(
        replace(block, iter_vars=tuple(fresh), body=remade(block.body), init=init, match_buffers=matches)
    )
    return _replace_whole_nest(tree, name, new)


def _new_kinds(tree: Tree, name: str, index_map: IndexMap, block: Block) -> list[str]:
    kind_of = {v: iv.kind for v, iv in zip(index_map.initial_indices, block.iter_vars, strict=True)}
    kinds = []
    for x in index_map.final_indices:
        found = {kind_of[v] for v in free_vars(x)}
        if len(found) > 1:
            raise ScheduleError(
                f"transform_block_layout: an index of {index_map} mixes spatial and reducing variables",
                where=where_block(tree, name),
            )  # fmt: skip
        kinds.append(found.pop() if found else SPATIAL)
    return kinds


def to_index_map(index_map: IndexMap | Callable[..., object] | str, ndim: int, dtype: str = "int32") -> IndexMap:
    """An IndexMap from one, from a function of indices, or from text."""
    if isinstance(index_map, str):
        return IndexMap.from_text(index_map, dtype)
    return index_map if isinstance(index_map, IndexMap) else IndexMap.from_func(index_map, ndim, dtype)


def to_separated_map(
    index_map: IndexMap | Callable[..., object] | str, ndim: int, dtype: str = "int32"
) -> tuple[IndexMap, list[int]]:
    """An IndexMap and where its result has axis separators."""
    if isinstance(index_map, IndexMap | str) or not callable(index_map):
        return to_index_map(index_map, ndim, dtype), []
    return IndexMap.from_func_with_separators(index_map, ndim, dtype)
