"""Reductions as nests of their own: along the last axis in lanes, beside it in registers."""

from __future__ import annotations

from autosched.ir.node import preorder
from autosched.templates.classify import contraction, reduced, spatial
from autosched.tir import Block, BlockRealize, BufferStore, Var
from autosched.tir.expr import const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import LoopRV, Schedule


def sum_in_lanes(sch: Schedule, name: str, width: int) -> None:
    """Make a reduction along a block's last loop in `width` lanes, where it is not shorter than that."""
    loop = sch.get_loops(name)[-1]
    extent = const_int(sch.get(loop).extent)
    if extent is None or extent >= width:
        lanes = sch.split(loop, [None, width])[1]
        partial = sch.rfactor_inside(lanes, 0)
        sch.set_scope(partial, 0, "local")
        sch.vectorize(sch.get_loops(partial)[-1])


def reduce_beside(sch: Schedule, block: Block, width: int) -> None:
    """Make a reduction beside a block's last spatial axis, windows of pixels say, in registers along that axis."""
    name = block.name_hint
    *outer, last = (x for x in sch.get_loops(sch.cache_write(name, 0, "local")) if not repeats_several(sch, x))
    extent = const_int(sch.get(last).extent)
    if extent is None or extent > width:
        tile, lane = sch.split(last, [None, width])
        tasks = outer or [tile]
    else:
        tile, lane = outer[-1], last
        tasks = outer[:-1]
    for loop in tasks:
        sch.parallel(loop)
    sch.vectorize(lane)
    sch.compute_at(name, tile, True)
    n_steps = len(reduced(block))
    *_, lane = sch.get_loops(name)[:-n_steps]
    steps = sch.get_loops(name)[-n_steps:]
    sch.reorder(*steps, lane)
    sch.vectorize(lane)
    sch.decompose_reduction(name, steps[0])


def is_window(block: Block) -> bool:
    """Whether a reduction that is no product reads at places that it computes, as a pool does."""
    if contraction(block) is not None or not isinstance(block.body, BufferStore):
        return False
    return any(not isinstance(i, Var) and const_int(i) is None for x in loads(block.body.value) for i in x.indices)


def reads_along(block: Block) -> bool:
    """Whether the last spatial axis runs along the last dimension of something that is read.

    Something that each step reads anew counts first. The maximum of a row, which its sum of exponentials reads in all
    steps, does not make rows run along the axis of their numbers; a value that is compared with all others does.
    """
    if not isinstance(block.body, BufferStore):
        return False
    last, own, steps = spatial(block)[-1].var, block.body.buffer, {iv.var for iv in reduced(block)}
    read = [x for x in loads(block.body.value) if x.indices and x.buffer is not own]
    stepped = [x for x in read if any(steps & free_vars(i) for i in x.indices)]
    if any(last in free_vars(x.indices[-1]) for x in stepped):
        return True
    is_across = any(last in free_vars(i) for x in stepped for i in x.indices)
    return not is_across and any(last in free_vars(x.indices[-1]) for x in read)


def sums_rows(block: Block) -> bool:
    """Whether a reduction reads along its last axis without gaps."""
    if not reduced(block) or not isinstance(block.body, BufferStore):
        return False
    k = reduced(block)[-1].var
    return any(x.indices and x.indices[-1] is k for x in loads(block.body.value))


def repeats_several(sch: Schedule, loop: LoopRV) -> bool:
    """Whether several blocks stand in a loop: that of a recurrence, whose rows follow on each other."""
    return sum(isinstance(x, BlockRealize) for x in preorder(sch.get(loop).body)) > 1
