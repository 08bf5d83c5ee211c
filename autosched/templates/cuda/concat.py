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

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, is_injective, spatial
from autosched.templates.concat_form import Parts, parts_of
from autosched.templates.core_nests import indices_of, typed
from autosched.templates.cuda.core_nests import Core
from autosched.templates.cuda.elementwise import default_knobs, widest_vector
from autosched.templates.cuda.nests import block, bound
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, VECTOR_BYTES
from autosched.templates.nests import index, lanes
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import free_vars, loads, substitute
from autosched.tir.stmt import BufferStore, IfThenElse, Stmt


def vector_of(parts: Parts) -> int:
    """Elements of 16 bytes, or as many as the parts are multiples of; 0 where elements without parts do as well."""
    found, shape = parts.block, parts.shape
    assert isinstance(found.body, BufferStore), "an element-wise block is one store"
    behind = {iv.var for iv in spatial(found)[parts.axis :]}
    moved = [x.buffer for x in loads(found.body.value) if any(free_vars(i) & behind for i in x.indices)]
    widest = max(item_bytes(b.dtype) for b in (found.body.buffer, *moved))
    sizes = (n * parts.inner for n in (*parts.starts, shape[parts.axis]))
    vector = math.gcd(max(1, VECTOR_BYTES // widest), *sizes)
    return vector if vector > widest_vector(found) else 0


def find_parts(func: PrimFunc) -> tuple[Core, Parts] | None:
    """The one block of a function whose parts are whole vectors, with what is around it."""
    if not all(map(is_injective, blocks_of(func))):
        return None
    core = Core(func, [])
    found = [p for p in map(parts_of, core.left) if p is not None and vector_of(p)]
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
        sizes = {"elements": math.prod(found[1].shape), "widest": vector_of(found[1])}
        return Anchor(found[1].block.name_hint, "elementwise", sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, default_knobs(anchor.sizes, target))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = find_parts(func)
        assert found is not None, "apply is called on a function that matched"
        core, parts = found
        return core.applied(_launch(parts, config["block_size"], math.gcd(config["vector"], vector_of(parts))), [])


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
