"""Tiles that know the sizes of neither the whole arrays nor the loops around: kernels that differ in these share them.

Before:  tile(x, w, out, panel, row):    for c in range(24): … w[panel, c, k, v] …         w: [4, 24, 16, 32]
After:   tile(x…, w…, out…, n):          for c in range(n): … w[0, c, k, v] …
called   tile(offset(x, …), offset(w, 49152 * panel), offset(out, …), 24)

Each buffer begins where the part lies that a call works on, and how often a loop runs around other code is an argument.
What lies in unrolled and vectorised code, and the distances that loops go, stay numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autosched.codegen.cpu.cut import outside_vars
from autosched.codegen.cpu.prefetch import PREFETCH, PREFETCH_L2
from autosched.ir.node import map_children, preorder
from autosched.tir.access import is_own
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import BinaryOp, Call, FloorDiv, PrimExpr, Var, add, const, const_int, mul
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.simplify import Analyzer, Linear
from autosched.tir.stmt import BufferStore, For, LoopKind, Stmt

LEAST_COUNT = 4  # iterations: a window's loops stay as they are
LEAST_STEPS = 17  # and those over the channels of a block, which have no loop inside
_MOST_ELEMENTS = 1 << 31

Indices = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A tile that others may share, and how it is called.

    starts  how many bytes from its begin each buffer's part lies
    sizes   arguments that it has beside those of the original, with their values
    """

    stmt: Stmt
    buffers: tuple[Buffer, ...]
    starts: tuple[PrimExpr, ...]
    sizes: tuple[Var, ...]
    values: tuple[int, ...]


def open_sizes(stmt: Stmt, buffers: Sequence[Buffer], a: Analyzer) -> Opened:
    """The tile without sizes that are not its own; `a` knows the variables outside."""
    outside = frozenset(outside_vars(stmt))
    accesses: dict[Buffer, dict[int, Indices]] = {buffer: {} for buffer in buffers}  # by the ids of the indices
    for x in preorder(stmt):
        if isinstance(x, BufferLoad | BufferStore) and x.buffer in accesses:
            accesses[x.buffer][id(x.indices)] = x.indices
    parts = [_parts(buffer, found.values(), outside, a) for buffer, found in accesses.items()]
    changed = {old: part.buffer for old, part in zip(buffers, parts, strict=True) if part is not None}
    indices = {key: new for part in parts if part is not None for key, new in part.indices.items()}

    def access(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in changed:
            return BufferLoad(changed[x.buffer], indices[id(x.indices)])
        if isinstance(x, BufferStore) and x.buffer in changed:
            return dataclasses.replace(x, buffer=changed[x.buffer], indices=indices[id(x.indices)])
        return x

    sizes: dict[Var, int] = {}
    stmt = _open_loops(rewrite(stmt, access), frozenset(changed.get(b, b) for b in buffers), sizes)
    starts = tuple(const(0) if part is None else part.start for part in parts)
    return Opened(stmt, tuple(changed.get(b, b) for b in buffers), starts, tuple(sizes), tuple(sizes.values()))


def _open_loops(stmt: Stmt, arguments: frozenset[Buffer], sizes: dict[Var, int]) -> Stmt:
    """The statement with the extents of loops around other code as variables, which are added to `sizes`."""
    if isinstance(stmt, For):
        if not stmt.annotations.keys().isdisjoint((PREFETCH, PREFETCH_L2)):
            return stmt  # what is asked for ahead follows from the extents inside
        count = const_int(stmt.extent)
        if count is not None and stmt.kind == LoopKind.SERIAL and count >= _least(stmt):
            if _adds_up_lanes(stmt, arguments):
                return stmt
            size = Var(f"n_{stmt.loop_var.name}", stmt.loop_var.dtype)
            sizes[size] = count
            stmt = dataclasses.replace(stmt, extent=size)
    return map_children(stmt, lambda c: _open_loops(c, arguments, sizes) if isinstance(c, Stmt) else c)


def _adds_up_lanes(loop: For, arguments: frozenset[Buffer]) -> bool:
    """Whether a loop reduces what its own tile made, as the lanes of a partial sum: a tree does that for a number."""
    store = loop.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, BinaryOp) or not is_own(store.value.a, store):
        return False
    return isinstance(store.value.b, BufferLoad) and store.value.b.buffer not in arguments


def _least(loop: For) -> int:
    """How often a loop runs at least whose extent is an argument."""
    inner = (n for n in preorder(loop.body, scalars=False) if isinstance(n, For) and n.kind == LoopKind.SERIAL)
    return LEAST_COUNT if any(True for _ in inner) else LEAST_STEPS


@dataclass(frozen=True, slots=True)
class _Parts:
    """A buffer that begins at `start`, in bytes of the whole one, and its indices by the ids of the whole one's."""

    buffer: Buffer
    start: PrimExpr
    indices: dict[int, Indices]


def _parts(buffer: Buffer, accesses: Collection[Indices], outside: frozenset[Var], a: Analyzer) -> _Parts | None:
    """A buffer from where the variables outside say; None where indices mix them with others.

    What the accesses do not have in common stays in their indices.

    Extents may be symbols where no stride depends on them but those of dimensions that are always at place 0.
    """
    shape = [const_int(extent) for extent in buffer.shape]
    if buffer.strides or not 0 < math.prod(n for n in shape if n is not None) < _MOST_ELEMENTS:
        return None
    strides = [_product(shape[dim + 1 :]) for dim in range(len(shape))]
    has_rows = bool(shape) and shape[-1] is not None  # whose start lies where a row does
    places: list[tuple[tuple[Linear, PrimExpr], ...]] = []
    for indices in accesses:
        splits = [_split(index, outside, a) for index in indices]
        place = tuple(split for split in splits if split is not None)
        is_at = all(stride is not None or const_int(index) == 0 for index, stride in zip(indices, strides, strict=True))
        if len(place) < len(splits) or not is_at:
            return None
        has_rows &= not place or not place[-1][0].terms
        places.append(place)
    if not places:
        return None
    start, found = Linear(), dict[int, Indices]()
    common = [_common([place[dim][0] for place in places]) for dim in range(len(shape))]
    for shared, stride in zip(common, strides, strict=True):
        start.add(shared, stride or 0)
    for indices, place in zip(accesses, places, strict=True):
        inner = []
        for (outer, rest), shared, index in zip(place, common, indices, strict=True):
            own = Linear()
            own.add(outer)
            own.add(shared, -1)
            inner.append(add(own.build(index.dtype), rest) if own.terms else rest)
        found[id(indices)] = tuple(inner)
    moves = [any(const_int(indices[dim]) != 0 for indices in found.values()) for dim in range(len(shape))]
    new = tuple(const(n if n is not None and moving else 0, "int64") for n, moving in zip(strides, moves, strict=True))
    # Where lanes are moved, rows of whole vectors are worth knowing; elsewhere sizes only tell equal code apart.
    moves_lanes = has_rows and any(isinstance(x, FloorDiv) for i in found.values() for x in preorder(i[-1]))
    ones = (const(1, "int64"),) * len(shape)
    part = dataclasses.replace(
        buffer, shape=(*ones[:-1], const(shape[-1] or 1, "int64")) if moves_lanes else ones, strides=new
    )
    begin = a.simplify(mul(start.build("int64"), item_bytes(buffer.dtype)))
    return _Parts(part, begin, found)


def _product(extents: Sequence[int | None]) -> int | None:
    """The product of extents; None where one is a symbol."""
    return None if None in extents else math.prod(n for n in extents if n is not None)


def _common(places: Sequence[Linear]) -> Linear:
    """The terms that several sums have."""
    found = Linear()
    for key, (coefficient, atom) in places[0].terms.items():
        if all(key in x.terms and x.terms[key][0] == coefficient for x in places):
            found.terms[key] = coefficient, atom
    return found


def _split(index: PrimExpr, outside: frozenset[Var], a: Analyzer) -> tuple[Linear, PrimExpr] | None:
    """(what of an index the variables outside say, the rest); None for an index in which one depends on the other.

    Nor has an index two parts that source cannot say: one that is read from memory, or computed by a function.
    """
    if any(isinstance(n, BufferLoad | Call) for n in preorder(index)):
        return None
    if not free_vars(index) & outside:
        return Linear(), index
    whole = a.linear(index)
    first, rest = Linear(), Linear(whole.const)
    for key, (coefficient, atom) in whole.terms.items():
        used = free_vars(atom)
        if used <= outside:
            first.terms[key] = coefficient, atom
        elif used & outside:
            return None
        else:
            rest.terms[key] = coefficient, atom
    return first, rest.build(index.dtype)
