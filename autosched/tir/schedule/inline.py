"""compute_inline and reverse_compute_inline: element-wise blocks dissolve into their neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.access import infer_regions
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, loads, rewrite, substitute
from autosched.tir.match import inline_matches
from autosched.tir.schedule.check import require_complete, require_no_match, require_not_output
from autosched.tir.schedule.iter_map import NotAffine, invert, is_injective
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import Block, BlockRealize, BufferStore, Stmt


def compute_inline(tree: Tree, name: str) -> Tree:
    """Put what a block computes in place of every read of it, and take the block away.

    B[i] = A[i] * 2;  C[i] = B[i] + 1   ->   C[i] = A[i] * 2 + 1
    """
    require_complete(tree, name, "compute_inline")
    require_not_output(tree, name, "compute_inline")
    store = _single_store(tree, name, "compute_inline")
    require_no_match(tree, store.buffer, "compute_inline")
    block, consumers = tree.block(name), tree.consumers(name)
    variables = _distinct_vars(store.indices, block)
    if variables is None:
        variables, value = _at_the_places_written(tree, name, store)
    else:
        _require_inside(tree, name, store.buffer, variables)
        value = store.value
    left = {iv.var: iv.dom.min for iv in block.iter_vars if iv.var not in variables and iv.var in free_vars(value)}
    if any(E.const_int(iv.dom.extent) != 1 for iv in block.iter_vars if iv.var in left):
        raise _not_once(tree, name)
    _require_inputs_settled(tree, name)
    value = substitute(value, left)
    return tree.merge(name, {n: _rewrite_reads(tree.block(n), store.buffer, variables, value) for n in consumers})


def _not_once(tree: Tree, name: str) -> ScheduleError:
    return ScheduleError(
        f"compute_inline: block '{name}' does not write all of its buffer, each element once, at places that tell its "
        "iteration variables",
        where=where_block(tree, name),
    )  # fmt: skip


def _at_the_places_written(tree: Tree, name: str, store: BufferStore) -> tuple[list[Var | None], PrimExpr]:
    """Variables for the places of a buffer, and what the block stores there: `B[9 - i] = A[i]` is A[9 - x] at x."""
    places = [Var(f"x{d}", i.dtype) for d, i in enumerate(store.indices)]
    found = _inverse(tree.block(name), store.buffer, store.indices, places)
    if found is None:
        raise _not_once(tree, name)
    return list(places), substitute(store.value, found)


def _require_inside(tree: Tree, name: str, buffer: Buffer, variables: list[Var | None]) -> None:
    """What leaves its buffer stays where it is, for the code generator to refuse."""
    domains = {iv.var: iv.dom for iv in tree.block(name).iter_vars}
    for axis, var in enumerate(variables):
        dom, size = domains[var] if var is not None else None, E.const_int(buffer.shape[axis])
        low, extent = (E.const_int(dom.min), E.const_int(dom.extent)) if dom is not None else (0, 1)
        if low is None or extent is None or size is None or 0 <= low <= low + extent <= size:
            continue
        raise ScheduleError(
            f"compute_inline: block '{name}' writes '{buffer.name}' from {low} to {low + extent - 1} along dimension "
            f"{axis}, which has {size} elements",
            where=where_block(tree, name),
        )  # fmt: skip


def _require_inputs_settled(tree: Tree, name: str) -> None:
    """What the block reads must not be written after it: the consumers will read it instead."""
    place = tree.position(name)
    for r in tree.block(name).reads:
        late = [w for w in tree.writers.get(r.buffer, ()) if tree.position(w) > place]
        if late:
            raise ScheduleError(
                f"compute_inline: '{late[0]}' writes '{r.buffer.name}' after block '{name}' has read it",
                where=where_block(tree, name),
            )  # fmt: skip


def _single_store(tree: Tree, name: str, action: str) -> BufferStore:
    body = tree.block(name).body
    if not isinstance(body, BufferStore):
        raise ScheduleError(
            f"{action}: the body of block '{name}' is more than one store", where=where_block(tree, name)
        )
    return body


def _distinct_vars(indices: tuple[PrimExpr, ...], block: Block) -> list[Var | None] | None:
    """The block's variable per dimension (None for a constant zero), or None unless all are distinct variables."""
    own = {iv.var for iv in block.iter_vars}
    result: list[Var | None] = []
    for i in indices:
        if isinstance(i, Var) and i in own:
            result.append(i)
        elif isinstance(i, IntImm) and i.value == 0:
            result.append(None)
        else:
            return None
    named = [v for v in result if v is not None]
    return result if len({id(v) for v in named}) == len(named) else None


def _rewrite_reads(block: Block, buffer: Buffer, variables: list[Var | None], value: PrimExpr) -> Block:
    """A block with `buffer[x, …]` replaced by `value` where `variables` are x, …; equal reads by one expression."""
    analyzer = _analyzer(block)
    made: dict[object, PrimExpr] = {}

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            key = tuple(form_key(i) for i in x.indices)
            if key not in made:
                at = {v: i for v, i in zip(variables, x.indices, strict=True) if v is not None}
                made[key] = substitute(value, at)
            return made[key]
        return x

    def whole(stmt: Stmt) -> Stmt:
        return simplify_indices(rewrite(stmt, step), analyzer)

    body, init = whole(block.body), None if block.init is None else whole(block.init)
    return with_regions(replace(block, body=body, init=init))


def _analyzer(block: Block) -> Analyzer:
    analyzer = Analyzer(keep_units=True)
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    return analyzer


def simplify_indices(stmt: Stmt, analyzer: Analyzer) -> Stmt:
    """Simplify the indices of loads and stores and the conditions of choices, with the ranges that are known."""

    def step(x: object) -> object:
        if isinstance(x, BufferLoad):
            return BufferLoad(x.buffer, tuple(analyzer.simplify(i) for i in x.indices))
        if isinstance(x, BufferStore):
            return BufferStore(x.buffer, x.value, tuple(analyzer.simplify(i) for i in x.indices))
        if isinstance(x, E.Call) and x.op == "if_then_else":
            return E.if_then_else(analyzer.simplify(x.args[0]), x.args[1], x.args[2])
        return x

    return rewrite(stmt, step)


def with_regions(block: Block) -> Block:
    """The block with its reads and writes inferred anew from its body."""
    body = inline_matches(block.body, block.match_buffers)
    init = None if block.init is None else inline_matches(block.init, block.match_buffers)
    reads, writes = infer_regions(body, init, block.alloc_buffers)
    if block.init is None and any(w.buffer is r.buffer for w in block.writes for r in block.reads):
        # an update reads what it writes; TVM lists that read first
        own = {w.buffer for w in writes}
        reads = tuple(r for r in reads if r.buffer in own) + tuple(r for r in reads if r.buffer not in own)
    return replace(block, reads=reads, writes=writes)


def reverse_compute_inline(tree: Tree, name: str) -> Tree:
    """Apply an element-wise block where its only producer stores its result, and take the block away.

    B[i] = A[i] * 2;  C[i] = B[i] + 1   ->   C[i] = A[i] * 2 + 1
    B[x] = A[x] * 2;  C[i, j] = B[i * 4 + j] + 1   ->   C[x // 4, x % 4] = A[x] * 2 + 1
    """
    require_complete(tree, name, "reverse_compute_inline")
    store, block = _single_store(tree, name, "reverse_compute_inline"), tree.block(name)
    producers, where = tree.producers(name), where_block(tree, name)
    if len(producers) != 1:
        raise ScheduleError(
            f"reverse_compute_inline: block '{name}' needs one producer, it has {producers or 'none'}", where=where
        )  # fmt: skip
    producer = producers[0]
    require_complete(tree, producer, "reverse_compute_inline into its producer")
    require_not_output(tree, producer, "reverse_compute_inline into its producer")
    if tree.consumers(producer) != [name]:
        raise ScheduleError(
            f"reverse_compute_inline: what '{producer}' writes is read by other blocks: {tree.consumers(producer)}",
            where=where,
        )  # fmt: skip
    source = _single_store(tree, producer, "reverse_compute_inline into its producer")
    require_no_match(tree, source.buffer, "reverse_compute_inline")
    realize = tree.realizes[producer]
    placed = _affine_inverse(tree, name, source)
    if placed is None:
        at = inverse_of_read(tree, name, source.buffer)
        placed = {v: i for v, i in zip(at, source.indices, strict=True) if v is not None}
    placed |= {iv.var: iv.dom.min for iv in block.iter_vars if iv.var not in placed}

    def step(x: object) -> object:
        return source.value if isinstance(x, BufferLoad) and x.buffer is source.buffer else x

    value = rewrite(substitute(store.value, placed), step)
    body = BufferStore(store.buffer, value, tuple(substitute(i, placed) for i in store.indices))
    into = tree.block(producer)
    new = with_regions(replace(into, body=simplify_indices(body, _analyzer(into))))
    tree = tree.replace(realize, BlockRealize(realize.iter_values, realize.predicate, new))
    return tree.replace(tree.realizes[name], None).drop_unused_buffers()


def _affine_inverse(tree: Tree, name: str, source: BufferStore) -> dict[Var, PrimExpr] | None:
    """The consumer's variables in terms of where the producer writes, for a read such as `B[i * 4 + j]`.

    None where it reads at its own variables, and where no exact inverse that covers the whole buffer is known.
    """
    block, buffer = tree.block(name), source.buffer
    reads = [x.indices for x in loads(block.body) if x.buffer is buffer]
    if not reads or _distinct_vars(reads[0], block) is not None:
        return None
    first = [form_key(i) for i in reads[0]]
    if any([form_key(i) for i in other] != first for other in reads[1:]):
        return None
    return _inverse(block, buffer, reads[0], source.indices)


def _inverse(
    block: Block, buffer: Buffer, indices: Sequence[PrimExpr], places: Sequence[PrimExpr]
) -> dict[Var, PrimExpr] | None:
    """A block's variables for each place of a buffer that it accesses at `indices`.

    None unless each element is accessed exactly once and an inverse is known.
    """
    extents: dict[Var, int] = {}
    for iv in block.iter_vars:
        n = E.const_int(iv.dom.extent)
        if n is None or E.const_int(iv.dom.min) != 0:
            return None
        extents[iv.var] = n
    sizes = [E.const_int(n) for n in buffer.shape]
    if any(n is None for n in sizes) or math.prod(extents.values()) != math.prod(n for n in sizes if n is not None):
        return None
    analyzer = _analyzer(block)
    inside = [E.all_of(E.compare(E.GE, i, 0), E.compare(E.LT, i, n)) for i, n in zip(indices, buffer.shape)]
    if not analyzer.can_prove(E.all_of(*inside)) or not is_injective(indices, extents, analyzer):
        return None
    try:
        found = invert(indices, extents, places)
    except NotAffine:
        return None
    return dict(zip(extents, found, strict=True))


def inverse_of_read(tree: Tree, name: str, buffer: Buffer) -> list[Var | None]:
    """The consumer's variable for each dimension of what it reads. Raises unless it reads each element exactly once."""
    block, where = tree.block(name), where_block(tree, name)
    found: list[Var | None] | None = None
    for load in (x for x in loads(block.body) if x.buffer is buffer):
        variables = _distinct_vars(load.indices, block)
        if variables is None or (found is not None and any(a is not b for a, b in zip(found, variables, strict=True))):
            raise ScheduleError(
                f"reverse_compute_inline: block '{name}' does not read '{buffer.name}' at its own place", where=where
            )
        found = variables
    if found is None:
        raise ScheduleError(f"reverse_compute_inline: block '{name}' does not read '{buffer.name}' itself", where=where)
    domains = {iv.var: iv.dom for iv in block.iter_vars}
    for v, size in zip(found, buffer.shape, strict=True):
        n = 1 if v is None else E.const_int(domains[v].extent)
        start = 0 if v is None else E.const_int(domains[v].min)
        if start != 0 or n is None or n != E.const_int(size):
            raise ScheduleError(
                f"reverse_compute_inline: block '{name}' does not read all of '{buffer.name}'", where=where
            )
    rest = [iv for iv in block.iter_vars if iv.var not in found and E.const_int(iv.dom.extent) != 1]
    if rest:
        raise ScheduleError(
            f"reverse_compute_inline: block '{name}' reads elements of '{buffer.name}' more than once "
            f"(over '{rest[0].var.name}')",
            where=where,
        )  # fmt: skip
    return found


__all__ = ["compute_inline", "free_vars", "reverse_compute_inline", "simplify_indices", "with_regions"]
