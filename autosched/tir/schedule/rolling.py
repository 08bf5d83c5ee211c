"""rolling_buffer: a producer keeps what it computed in the iteration before, and computes only what is new."""

from __future__ import annotations

from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.schedule.cache import replace_everywhere
from autosched.tir.schedule.check import RING, require_complete_or_reduction, require_not_output
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.region import bindings, box_at
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BufferRegion, BufferStore, For, LoopKind


def rolling_buffer(tree: Tree, name: str, buffer: Buffer) -> Tree:
    """Store a buffer as a ring along the outermost loop whose iterations need overlapping parts of it.

    The block stands under loops of its consumers, as compute_at puts it:

       for i: for j in 6: B[i * 4 + j] = …       # of 6 rows, 2 are those of the iteration before
              C[…] uses B[i * 4 …]
    -> for i: for j in 6: if i < 1 or j >= 2: B[(i * 4 + j) % 6] = …
    """
    require_complete_or_reduction(tree, name, "rolling_buffer")
    require_not_output(tree, name, "rolling_buffer")
    realize, where = tree.realizes[name], where_block(tree, name)
    consumers = tree.consumers(name)
    loops = tree.loops_of(name)
    shared = [x for x in loops if all(x in tree.loops_of(c) for c in consumers)]
    if not consumers or not shared:
        raise ScheduleError(
            f"rolling_buffer: block '{name}' shares no loop with a consumer", where=where, hint="compute_at first"
        )
    (write,) = [w for w in realize.block.writes if w.buffer is buffer]
    loop, dim, stride, width, base = _rolling(tree, name, write, shared, where)
    size = E.const(width, buffer.shape[dim].dtype)
    new = replace(buffer, shape=(*buffer.shape[:dim], size, *buffer.shape[dim + 1 :]))
    index = write.region[dim].min
    values = bindings(realize)
    first = E.compare(E.LT, loop.loop_var, E.add(loop.start, 1))
    analyzer = tree.analyzer(realize)
    at = analyzer.simplify(E.sub(substitute(index, values), E.add(base, width - stride)))
    fresh = E.compare(E.GE, at, 0)
    predicate = E.all_of(realize.predicate, E.any_of(first, fresh))
    tree = tree.replace(realize, replace(realize, predicate=predicate))
    for user in dict.fromkeys([*tree.writers[buffer], *tree.readers.get(buffer, ())]):
        current = tree.realizes[user]
        notes = FrozenDict({**current.block.annotations, RING: True})
        block = replace(_ring(current.block, buffer, dim, width), annotations=notes)
        tree = tree.replace(current, replace(current, block=block))
    return replace_everywhere(tree, buffer, new)


def _rolling(
    tree: Tree, name: str, write: BufferRegion, shared: list[For], where: str
) -> tuple[For, int, int, int, PrimExpr]:
    """(loop, dimension, step per iteration, rows in use, first row) of the outermost loop with an overlap."""
    realize, inner = tree.realizes[name], shared[-1]
    box = box_at(tree, realize, write, inner)
    if box is None:
        raise ScheduleError(f"rolling_buffer: what block '{name}' writes is not of constant size", where=where)
    analyzer = tree.analyzer(inner)
    for loop in shared:
        for dim, interval in enumerate(box):
            linear = analyzer.linear(interval.base)
            scales = {id(atom): c for c, atom in linear.terms.values() if atom is loop.loop_var}
            others = [atom for _, atom in linear.terms.values() if atom is not loop.loop_var]
            stride = next(iter(scales.values()), 0)
            if not 0 < stride < interval.width or loop.kind is not LoopKind.SERIAL:
                continue
            below = shared[shared.index(loop) + 1 :]
            if any(free_vars(atom) & {x.loop_var for x in below} for atom in others):
                continue  # a loop inside moves along the same dimension
            return loop, dim, stride, interval.width, interval.base
    raise ScheduleError(
        f"rolling_buffer: no loop around block '{name}' needs rows of '{write.buffer.name}' of the iteration before",
        where=where,
    )


def _ring(block: Block, buffer: Buffer, dim: int, width: int) -> Block:
    """A block with the buffer's indices in one dimension taken modulo its rows."""
    analyzer = Analyzer()
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)

    def moved(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (*indices[:dim], E.floormod(indices[dim], width), *indices[dim + 1 :])

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is buffer:
            return BufferLoad(buffer, moved(x.indices))
        if isinstance(x, BufferStore) and x.buffer is buffer:
            return BufferStore(buffer, x.value, moved(x.indices))
        return x

    def region(r: BufferRegion) -> BufferRegion:
        if r.buffer is not buffer:
            return r
        part = r.region[dim]
        dtype = part.min.dtype
        if E.const_int(part.extent) == 1:
            ring = Range(E.floormod(part.min, width), part.extent)
        else:
            ring = Range(E.const(0, dtype), E.const(width, dtype))
        return BufferRegion(buffer, (*r.region[:dim], ring, *r.region[dim + 1 :]))

    return replace(
        block, body=rewrite(block.body, step), init=None if block.init is None else rewrite(block.init, step),
        reads=tuple(map(region, block.reads)), writes=tuple(map(region, block.writes)),
    )  # fmt: skip
