"""Tensors one after the other along an axis, where the innermost axis alone is no multiple of a vector.

The axis and those behind it are one flat axis, along which every part lies side by side in memory. Where all parts
begin at multiples of a vector, each vector belongs to one part:

    for vectors of the result in blockIdx, threadIdx:
        if first < size of a: out[vector] = a[…] else: out[vector] = b[…]

Other forms of it are vectors or elements already (`elementwise`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.ir.node import walk
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, extents, is_injective, spatial
from autosched.templates.core_nests import indices_of, typed
from autosched.templates.cuda.core_nests import Core
from autosched.templates.cuda.elementwise import default_knobs, widest_vector
from autosched.templates.cuda.nests import block, bound
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, VECTOR_BYTES
from autosched.templates.nests import index, lanes
from autosched.tir import Block, PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Call, IntImm, PrimExpr
from autosched.tir.functor import free_vars, loads, rewrite, substitute
from autosched.tir.stmt import BufferStore, IfThenElse, Stmt

MOST_ELEMENTS = 1 << 30  # whose numbers fit 32 bits


@dataclass(frozen=True)
class Parts:
    """A block whose value differs along an axis from each of `starts` on.

    block   element-wise
    axis    position of the axis among the block's
    vector  elements of 16 bytes, or as many as the parts are multiples of
    """

    block: Block
    axis: int
    starts: tuple[int, ...]
    vector: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return extents(spatial(self.block))

    @property
    def inner(self) -> int:
        """Elements for each place along the axis."""
        return math.prod(self.shape[self.axis + 1 :])

    @property
    def value(self) -> PrimExpr:
        """An element, in terms of the block's axes."""
        assert isinstance(self.block.body, BufferStore), "an element-wise block is one store"
        return self.block.body.value

    def of_part(self, start: int) -> PrimExpr:
        """The value from a start on to the next."""

        def step(x: object) -> object:
            begins = _start(x)
            return x.args[1 if start >= begins[1] else 2] if isinstance(x, Call) and begins is not None else x

        found: PrimExpr = rewrite(self.value, step)
        return found


def _start(x: object) -> tuple[Var, int] | None:
    """(v, start) of `if_then_else(v >= start, …)`."""
    if not isinstance(x, Call) or x.op != "if_then_else" or not isinstance(x.args[0], E.GE):
        return None
    var, start = x.args[0].a, x.args[0].b
    return (var, start.value) if isinstance(var, Var) and isinstance(start, IntImm) else None


def parts_of(found: Block) -> Parts | None:
    """The parts of an element-wise block; None where there is one only, or vectors would reach over a border."""
    if not is_injective(found):
        return None
    assert isinstance(found.body, BufferStore), "an element-wise block is one store"
    begins = [s for s in map(_start, walk(found.body.value)) if s is not None]
    axes = [iv.var for iv in spatial(found)]
    if len({var for var, _ in begins}) != 1 or begins[0][0] not in axes:
        return None
    axis, shape = axes.index(begins[0][0]), extents(spatial(found))
    starts = tuple(sorted({0, *(start for _, start in begins)}))
    if not 0 < math.prod(shape) <= MOST_ELEMENTS or starts[0] < 0 or starts[-1] >= shape[axis]:
        return None
    behind = set(axes[axis:])
    moved = [x.buffer for x in loads(found.body.value) if any(free_vars(i) & behind for i in x.indices)]
    widest = max(item_bytes(b.dtype) for b in (found.body.buffer, *moved))
    inner = math.prod(shape[axis + 1 :])
    vector = math.gcd(max(1, VECTOR_BYTES // widest), *(n * inner for n in (*starts, shape[axis])))
    return Parts(found, axis, starts, vector) if vector > widest_vector(found) else None


def find_parts(func: PrimFunc) -> tuple[Core, Parts] | None:
    """The one block of a function whose parts are whole vectors, with what is around it."""
    if not all(map(is_injective, blocks_of(func))):
        return None
    core = Core(func, [])
    found = [p for p in map(parts_of, core.left) if p is not None]
    if len(found) != 1:
        return None
    core.names |= {found[0].block.name_hint}
    return core, found[0]


class Concat:
    """One concatenation and what is element-wise around it."""

    name = "concat"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = find_parts(func)
        if found is None:
            return None
        sizes = {"elements": math.prod(found[1].shape), "widest": found[1].vector}
        return Anchor(found[1].block.name_hint, "elementwise", sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        gpu = target.gpu
        values = {**anchor.sizes, "warp": gpu.warp_size, "most_threads": gpu.max_threads_per_block}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, default_knobs(anchor.sizes, target))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = find_parts(func)
        assert found is not None, "apply is called on a function that matched"
        core, parts = found
        return core.applied(_launch(parts, config["block_size"], math.gcd(config["vector"], parts.vector)), [])


def _launch(parts: Parts, threads: int, vector: int) -> Stmt:
    """A vector for each thread."""
    shape, axis, inner = parts.shape, parts.axis, parts.inner
    row = shape[axis] * inner
    total = math.prod(shape) // vector
    threads = min(threads, total)
    variables = [iv.var for iv in spatial(parts.block)]
    out = parts.block.writes[0].buffer

    def of_thread(bx: Var, tx: Var) -> Stmt:
        flat = E.add(E.mul(bx, index(threads)), tx)
        before = indices_of(E.floordiv(flat, index(row // vector)), shape[:axis])
        first = E.mul(E.floormod(flat, index(row // vector)), index(vector))

        def of_part(start: int) -> Stmt:
            value = parts.of_part(start)

            def element(lane: PrimExpr) -> Stmt:
                inside = E.cast(out.shape[axis].dtype, E.add(first, lane))
                at = typed(out, [*before, *indices_of(inside, shape[axis:])])
                values = {v: E.cast(v.dtype, i) for v, i in zip(variables, at, strict=True)}
                return BufferStore(out, substitute(value, values), at)

            return lanes(vector, element)

        def among(starts: Sequence[int]) -> Stmt:
            """The part that the vector is in, by halves."""
            if len(starts) == 1:
                return of_part(starts[0])
            middle = len(starts) // 2
            is_below = E.compare(E.LT, first, index(starts[middle] * inner))
            return IfThenElse(is_below, among(starts[:middle]), among(starts[middle:]))

        stmt = among(parts.starts)
        if total % threads:
            stmt = IfThenElse(E.compare(E.LT, flat, index(total)), stmt)
        return block("concat", stmt)

    return bound(((BLOCK_X, -(-total // threads)), (THREAD_X, threads)), of_thread)
