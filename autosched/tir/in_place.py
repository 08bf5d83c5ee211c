"""Which output of a function may be written over which of its inputs, because every element is read before."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.ir.node import Node, children, preorder
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import PrimExpr, Var, add, const_int, mul
from autosched.tir.function import PrimFunc
from autosched.tir.functor import statements, substitute
from autosched.tir.simplify import Analyzer, Linear, form_key
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, While


@dataclass(frozen=True, slots=True)
class _Access:
    """One load or store, the nodes that it stands in from the outermost on, and what blocks' variables stand for."""

    node: BufferLoad | BufferStore
    path: tuple[Node, ...]
    values: Mapping[Var, PrimExpr]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(n for n in self.path if isinstance(n, For) and const_int(n.extent) != 1)

    @property
    def analyzer(self) -> Analyzer:
        """What is known of the loops' variables."""
        known = Analyzer()
        for loop in (n for n in self.path if isinstance(n, For)):
            start, extent = const_int(loop.start), const_int(loop.extent)
            if start is not None and extent is not None:
                known.bind(loop.loop_var, (start, extent))
        return known

    @property
    def block(self) -> Block | None:
        return next((n for n in reversed(self.path) if isinstance(n, Block)), None)

    @property
    def indices(self) -> tuple[PrimExpr, ...]:
        """In terms of loop variables."""
        return tuple(substitute(i, self.values) for i in self.node.indices)


def _accesses(node: Node, path: tuple[Node, ...], values: Mapping[Var, PrimExpr]) -> Iterator[_Access]:
    path = (*path, node)
    if node.is_scalar:
        for load in preorder(node):
            if isinstance(load, BufferLoad):
                yield _Access(load, path, values)
        return
    if isinstance(node, BlockRealize):
        bound = zip(node.block.iter_vars, node.iter_values, strict=True)
        values = {**values, **{iv.var: substitute(value, values) for iv, value in bound}}
    if isinstance(node, BufferLoad | BufferStore):
        yield _Access(node, path, values)
    for child in children(node):
        yield from _accesses(child, path, values)


IN_PLACE = "autosched.in_place"  # attribute of a function for which the pairs below are known already


@functools.lru_cache(maxsize=64)
def overwritable(func: PrimFunc) -> frozenset[tuple[int, int]]:
    """Pairs (position of an input, of an output) among the function's buffers that may be the same memory.

    Such an output has one writer, which stores each element once; whoever reads the input reads that same element for
    it, or has read all of it in the rows that one iteration of the common loops works on, before they are written.
    """
    if IN_PLACE in func.attrs:
        return frozenset((int(i), int(o)) for i, o in func.attrs[IN_PLACE])
    written = {n.buffer for n in statements(func.body) if isinstance(n, BufferStore)}
    inputs = [(i, b) for i, b in enumerate(func.buffers) if b not in written]
    outputs = [(i, b) for i, b in enumerate(func.buffers) if b in written]
    pairs = [(i, a, o, b) for i, a in inputs for o, b in outputs if _alike(a, b)]
    if not pairs or _is_opaque(func, {b for _, a, _, b in pairs} | {a for _, a, _, b in pairs}):
        return frozenset()
    found = list(_accesses(func.body, (), {}))
    return frozenset((i, o) for i, a, o, b in pairs if _may_overwrite(found, a, b))


def _alike(a: Buffer, b: Buffer) -> bool:
    plain = not any(x.strides or x.elem_offset is not None for x in (a, b))
    if not plain or a.dtype != b.dtype or any(const_int(x) is None for x in (*a.shape, *b.shape)):
        return False
    return a.const_shape() == b.const_shape() and math.prod(a.const_shape()) > 1


def _is_opaque(func: PrimFunc, buffers: set[Buffer]) -> bool:
    """Whether buffers are used in ways that loads and stores do not show."""
    return any(
        bool(node.match_buffers) if isinstance(node, Block) else isinstance(node, BufferData) and node.buffer in buffers
        for node in preorder(func.body)
    )


def _may_overwrite(found: Sequence[_Access], a: Buffer, b: Buffer) -> bool:
    stores = [x for x in found if isinstance(x.node, BufferStore) and x.node.buffer is b]
    if len(stores) != 1 or any(isinstance(x.node, BufferLoad) and x.node.buffer is b for x in found):
        return False
    (store,) = stores
    reads = [x for x in found if isinstance(x.node, BufferLoad) and x.node.buffer is a]
    if store.block is None or store.block.init is not None or not _stores_once(store, b):
        return False
    return all(_is_same_element(read, store) or _is_read_before(read, store, b) for read in reads)


def _is_same_element(read: _Access, store: _Access) -> bool:
    """Whether the store itself reads the element that it writes."""
    same = zip(read.node.indices, store.node.indices, strict=True)
    return any(n is store.node for n in read.path) and all(form_key(x) == form_key(y) for x, y in same)


def _flat(indices: Sequence[PrimExpr], shape: Sequence[int], analyzer: Analyzer) -> Linear:
    """The position in a row-major array of that shape."""
    total = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        total = add(mul(total, extent), index)
    return analyzer.linear(analyzer.simplify(total))


def _stores_once(store: _Access, b: Buffer) -> bool:
    """Whether no two iterations of the loops around a store write the same element."""
    analyzer, shape, indices = store.analyzer, b.const_shape(), store.indices
    extents = [const_int(loop.extent) for loop in store.loops]
    waiting = {loop.loop_var: n for loop, n in zip(store.loops, extents, strict=True) if n is not None}
    if any(isinstance(n, While) for n in store.path) or len(waiting) < len(extents):
        return False
    first = 0
    for last in range(1, len(shape) + 1):  # axes are taken together until plain loop variables count them
        form = _flat(indices[first:last], shape[first:last], analyzer)
        steps = [(abs(c), atom) for c, atom in form.terms.values() if isinstance(atom, Var) and atom in waiting]
        if len(steps) < len(form.terms):
            continue
        reach = 0
        for step, atom in sorted(steps, key=lambda s: s[0]):
            if step <= reach:
                return False
            reach += step * (waiting.pop(atom) - 1)
        first = last
    return first == len(shape) and not waiting


def _is_read_before(read: _Access, store: _Access, b: Buffer) -> bool:
    """Whether a read comes before all that the store writes, or before what it writes to the rows of one iteration."""
    common, order = _divergence(read, store)
    if order >= 0:
        return False
    loops = [n for n in common if isinstance(n, For) and const_int(n.extent) != 1]
    if not loops:
        return True
    shape = b.const_shape()
    return any(_own_rows(read, store, loops, shape, axes) for axes in range(1, len(shape) + 1))


def _divergence(read: _Access, store: _Access) -> tuple[list[Node], int]:
    """(what both stand in, -1 where the read's part of it comes first, 1 where it comes later)."""
    common: list[Node] = []
    for x, y in zip(read.path, store.path, strict=False):
        if x is not y:
            parent = common[-1] if common else None
            if not isinstance(parent, SeqStmt):
                return common, 1
            at = [n for n, s in enumerate(parent.seq) if s is x or s is y]
            return common, -1 if parent.seq[at[0]] is x and len(at) == 2 else 1
        common.append(x)
    return common, 1


def _own_rows(read: _Access, store: _Access, loops: Sequence[For], shape: Sequence[int], axes: int) -> bool:
    """Whether each iteration of the common loops reads and writes rows, of leading axes, of its own."""
    own = {loop.loop_var for loop in loops}
    forms = [_flat(x.indices[:axes], shape[:axes], x.analyzer) for x in (read, store)]
    steps = []
    for form in forms:
        terms = {atom: c for c, atom in form.terms.values() if isinstance(atom, Var)}
        if len(terms) != len(form.terms) or not own <= set(terms):
            return False
        steps.append({v: terms[v] for v in own})
    if steps[0] != steps[1] or any(c <= 0 for c in steps[0].values()):
        return False
    bounds = [_bound_without(form, own, x) for form, x in zip(forms, (read, store), strict=True)]
    if any(low is None or high is None for low, high in bounds):
        return False
    span = max(high for _, high in bounds) - min(low for low, _ in bounds)  # type: ignore[type-var, operator]
    extents = {loop.loop_var: const_int(loop.extent) for loop in loops}
    for var, step in sorted(steps[0].items(), key=lambda s: s[1]):
        extent = extents[var]
        if step <= span or extent is None:
            return False
        span += step * (extent - 1)
    return True


def _bound_without(form: Linear, own: set[Var], access: _Access) -> tuple[int | None, int | None]:
    """What the part of an index that the common loops do not count lies within, both ends included."""
    rest = Linear(form.const, {k: t for k, t in form.terms.items() if t[1] not in own})
    return access.analyzer.bound(rest.build("int64"))


__all__ = ["overwritable"]
