"""Dimensions that lie one after the other in all that a function reads and writes, as one dimension.

for c, y, x in grid(64, h, w): out[c, y, x] = blocked[c // 16, y, x, c % 16]
-> for c, yx in grid(64, h * w): out[c, yx] = blocked[c // 16, yx, c % 16]

Vectors then go across rows of an image, whose length comes with the call.
"""

from __future__ import annotations

import dataclasses

from autosched.ir.node import FrozenDict, preorder
from autosched.tir.axis import SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, Var, const_int, mul
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, loads, rewrite
from autosched.tir.size_expr import same_extent
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, Stmt


def merged_axes(func: PrimFunc) -> PrimFunc:
    """The function over fewer axes, where it is one nest around one element-wise block; else the function itself.

    Two axes become one where one at least has an extent that comes with the call.
    """
    nest = func.root.body
    loops: list[For] = []
    while isinstance(nest, For):
        loops.append(nest)
        nest = nest.body
    if func.root.alloc_buffers or not isinstance(nest, BlockRealize) or const_int(nest.predicate) != 1:
        return func
    block = nest.block
    plain = len(loops) == len(nest.iter_values) and all(
        value is loop.loop_var and const_int(loop.start) == 0 and iv.kind == SPATIAL
        for loop, value, iv in zip(loops, nest.iter_values, block.iter_vars, strict=True)
    )
    if not plain or block.init is not None or not isinstance(block.body, BufferStore):
        return func
    for axis in range(len(loops) - 1, 0, -1):
        places = _places(block, axis)
        if places:
            return merged_axes(_merged(func, loops, nest, axis, places))
    return func


def _places(block: Block, axis: int) -> dict[Buffer, int]:
    """Where each buffer that has them has an axis and the one before it side by side; empty where one has not."""
    assert isinstance(block.body, BufferStore), "the caller looked"
    first, second = block.iter_vars[axis - 1 : axis + 1]
    both = {first.var, second.var}
    if const_int(first.dom.extent) is not None and const_int(second.dom.extent) is not None:
        return {}
    found: dict[Buffer, int] = {}
    others: set[Buffer] = set()
    accesses: list[BufferLoad | BufferStore] = [block.body, *loads(block.body.value)]
    for x in accesses:
        named = [n for n, index in enumerate(x.indices) if both & free_vars(index)]
        if not named:
            others.add(x.buffer)
            continue
        at = named[0]
        if named != [at, at + 1] or x.indices[at] is not first.var or x.indices[at + 1] is not second.var:
            return {}
        if found.setdefault(x.buffer, at) != at or x.buffer.strides:
            return {}
        if not same_extent(x.buffer.shape[at + 1], second.dom.extent):
            return {}
    n_named = sum(x.buffer in found for x in accesses)
    n_used = sum(isinstance(x, Var) and x in both for x in preorder(block.body))
    regions = [r for r in (*block.reads, *block.writes) if r.buffer in found]
    exact = all(r.region[found[r.buffer] + n].min is v for r in regions for n, v in enumerate((first.var, second.var)))
    return found if exact and not others & found.keys() and n_used == 2 * n_named else {}


def _merged(func: PrimFunc, loops: list[For], nest: BlockRealize, axis: int, places: dict[Buffer, int]) -> PrimFunc:
    block = nest.block
    first, second = block.iter_vars[axis - 1 : axis + 1]
    own, extent = Var(f"{first.var.name}_{second.var.name}", second.var.dtype), mul(first.dom.extent, second.dom.extent)
    new = {
        b: dataclasses.replace(b, shape=(*b.shape[:at], mul(b.shape[at], b.shape[at + 1]), *b.shape[at + 2 :]))
        for b, at in places.items()
    }

    def access(x: object) -> object:
        if isinstance(x, BufferLoad | BufferStore) and x.buffer in new:
            at = places[x.buffer]
            return dataclasses.replace(x, buffer=new[x.buffer], indices=(*x.indices[:at], own, *x.indices[at + 2 :]))
        if isinstance(x, BufferRegion) and x.buffer in new:
            at = places[x.buffer]
            one = Range(own, IntImm(1, own.dtype))
            return dataclasses.replace(x, buffer=new[x.buffer], region=(*x.region[:at], one, *x.region[at + 2 :]))
        return x

    made = rewrite(block, access)
    variable = IterVar(Range(IntImm(0, own.dtype), extent), own, SPATIAL)
    made = dataclasses.replace(made, iter_vars=(*block.iter_vars[: axis - 1], variable, *block.iter_vars[axis + 1 :]))
    inner = loops[axis]
    joined = dataclasses.replace(loops[axis - 1], loop_var=Var(own.name, inner.loop_var.dtype), extent=extent)
    kept = [*loops[: axis - 1], joined, *loops[axis + 1 :]]
    body: Stmt = BlockRealize(tuple(loop.loop_var for loop in kept), nest.predicate, made)
    for loop in reversed(kept):
        body = dataclasses.replace(loop, body=body)
    root = dataclasses.replace(func.root, body=body)
    return dataclasses.replace(
        func,
        buffer_map=FrozenDict({p: new.get(b, b) for p, b in func.buffer_map.items()}),
        body=dataclasses.replace(func.body, block=root),  # type: ignore[type-var]
    )
