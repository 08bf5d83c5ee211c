"""Many tensors side by side along the innermost axis: a vector of the result would be of several of them.

    for row in parallel:
        for each part, one after the other: for i in the part's columns: out[row, start + i] = value of the part

An element alone would ask for each part whether it is of it.
"""

from __future__ import annotations

import math

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, is_injective, spatial
from autosched.templates.concat_form import Parts, parts_of
from autosched.templates.core_nests import indices_of, typed
from autosched.templates.cpu.core_nests import Core
from autosched.templates.nests import index, loop
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import substitute
from autosched.tir.stmt import BufferStore, LoopKind, Stmt, seq

LEAST_PARTS, MOST_PARTS = 5, 512


class Concat:
    """One concatenation of many narrow parts and what is element-wise around it."""

    name = "concat"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = _find(func, target)
        if found is None:
            return None
        sizes = {"rows": math.prod(found[1].shape[:-1]), "columns": found[1].shape[-1]}
        return Anchor(found[1].block.name_hint, "elementwise", sizes)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32")}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, {"width": target.lanes("float32")})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        found = _find(func, target)
        assert found is not None, "apply is called on a function that matched"
        core, parts = found
        return core.applied(_rows(parts, int(config["width"])), [])


def _find(func: PrimFunc, target: Target) -> tuple[Core, Parts] | None:
    if not all(map(is_injective, blocks_of(func))):
        return None
    core = Core(func, [], target)
    found = [p for p in map(parts_of, core.left) if p is not None]
    if len(found) != 1 or len(core.left) != 1:
        return None
    parts = found[0]
    count, columns = len(parts.starts), parts.shape[-1]
    narrow = LEAST_PARTS <= count <= MOST_PARTS and columns <= count * target.lanes("float32")
    if parts.axis != len(parts.shape) - 1 or not narrow:
        return None
    core.names |= {parts.block.name_hint}
    return core, parts


def _rows(parts: Parts, width: int) -> Stmt:
    variables = [iv.var for iv in spatial(parts.block)]
    out, outer = parts.block.writes[0].buffer, parts.shape[:-1]
    ends = (*parts.starts[1:], parts.shape[-1])

    def of_row(row: PrimExpr) -> Stmt:
        before = indices_of(row, outer)

        def columns(value: PrimExpr, first: PrimExpr, count: int) -> Stmt:
            def element(lane: PrimExpr) -> Stmt:
                at = typed(out, [*before, E.add(first, lane)])
                places = {v: E.cast(v.dtype, i) for v, i in zip(variables, at, strict=True)}
                return BufferStore(out, substitute(value, places), at)

            return loop("lane", count, element, LoopKind.VECTORIZED) if count > 1 else element(index(0))

        stmts: list[Stmt] = []
        for start, end in zip(parts.starts, ends, strict=True):
            value, vectors, rest = parts.of_part(start), (end - start) // width, (end - start) % width
            if vectors:

                def vector(v: PrimExpr, value: PrimExpr = value, start: int = start) -> Stmt:
                    return columns(value, E.add(E.mul(v, index(width)), index(start)), width)

                stmts.append(loop("vector", vectors, vector) if vectors > 1 else vector(index(0)))
            if rest:
                stmts.append(columns(value, index(end - rest), rest))
        return seq(*stmts)

    count = math.prod(outer)
    return loop("row", count, of_row, LoopKind.PARALLEL) if count > 1 else of_row(index(0))
