"""Kernels whose sizes come with the call: schedules of functions over symbols, for which nothing divides anything.

Each block that no other one takes in is a nest of its own: outer axes over the threads, the innermost one in vectors,
of which the last is masked. Sums along the innermost axis are made in lanes.
"""

from __future__ import annotations

import json

from autosched.codegen.lower.flops import symbolic_work
from autosched.ir.node import preorder
from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, contraction, is_injective, is_reduction, reduced, spatial
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.templates.cpu.elementwise import inline_all
from autosched.tir import Block, BlockRealize, BufferStore, PrimFunc, Var
from autosched.tir.expr import const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.size_expr import WORK, to_size, with_named_sizes

VECTORS = 2  # in one step of the innermost axis
PRODUCT_VECTORS = 8  # sums beside each other, but those of windows: one waits for the last
TASK_VECTORS = 128  # steps in a piece of a single axis


def schedule_sized(func: PrimFunc, target: Target) -> Applied:
    """Schedule a function over symbols. Raises ScheduleError, InvalidValueError for what has no such kernel."""
    func = in_two_reductions(func)
    sch = Schedule(func)
    inline_all(sch, func)
    for block in blocks_of(sch.func):
        _schedule_nest(sch, block, VECTORS * target.lanes("float32"))
    return sized(func, sch.func, sch.trace.to_json_text())


def sized(func: PrimFunc, scheduled: PrimFunc, trace: str = "") -> Applied:
    """A scheduled function with what is known of its sizes."""
    work = json.dumps(to_size(symbolic_work(func)))
    return Applied(with_named_sizes(scheduled).with_attr(WORK, work), (None,) * len(func.params), trace)


def _schedule_nest(sch: Schedule, block: Block, width: int) -> None:
    name = block.name_hint
    every = list(sch.get_loops(name))
    loops = [loop for loop in every if not _repeats_several(sch, loop)]
    n_spatial = len(spatial(block)) - (len(every) - len(loops))
    if is_injective(block) and n_spatial == 1:
        loops = sch.split(loops[0], [None, TASK_VECTORS * width])
    outer = loops[:n_spatial] if is_reduction(block) else loops[:-1]
    if is_reduction(block) and n_spatial > 0 and _reads_along(block):
        side_by_side = width if _is_window(block) else PRODUCT_VECTORS // VECTORS * width
        extent = const_int(spatial(block)[-1].dom.extent)
        if n_spatial > 1 or extent is None or extent > side_by_side:
            reduce_beside(sch, block, side_by_side)
            return
    for loop in outer[: max(len(outer) - 1, 1)]:
        sch.parallel(loop)
    if is_injective(block) and n_spatial:
        vectorize(sch, loops[-1], width)
    elif is_reduction(block) and _sums_rows(block):
        sum_in_lanes(sch, name, width)


def _repeats_several(sch: Schedule, loop: LoopRV) -> bool:
    """Whether several blocks stand in a loop: that of a recurrence, whose rows follow on each other."""
    return sum(isinstance(x, BlockRealize) for x in preorder(sch.get(loop).body)) > 1


def sum_in_lanes(sch: Schedule, name: str, width: int) -> None:
    """Make a reduction along a block's last loop in `width` lanes, where it is not shorter than that."""
    loop = sch.get_loops(name)[-1]
    extent = const_int(sch.get(loop).extent)
    if extent is None or extent >= width:
        lanes = sch.split(loop, [None, width])[1]
        partial = sch.rfactor(lanes, 0)
        sch.set_scope(partial, 0, "local")
        sch.vectorize(sch.get_loops(partial)[-1])


def reduce_beside(sch: Schedule, block: Block, width: int) -> None:
    """Make a reduction beside a block's last spatial axis, windows of pixels say, in registers along that axis."""
    name = block.name_hint
    *outer, last = (x for x in sch.get_loops(sch.cache_write(name, 0, "local")) if not _repeats_several(sch, x))
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


def _is_window(block: Block) -> bool:
    """Whether a reduction that is no product reads at places that it computes, as a pool does."""
    if contraction(block) is not None or not isinstance(block.body, BufferStore):
        return False
    return any(not isinstance(i, Var) and const_int(i) is None for x in loads(block.body.value) for i in x.indices)


def _reads_along(block: Block) -> bool:
    """Whether the last spatial axis runs along the last dimension of something that is read."""
    if not isinstance(block.body, BufferStore):
        return False
    last, own = spatial(block)[-1].var, block.body.buffer
    return any(last in free_vars(x.indices[-1]) for x in loads(block.body.value) if x.indices and x.buffer is not own)


def vectorize(sch: Schedule, loop: LoopRV, width: int) -> None:
    extent = const_int(sch.get(loop).extent)
    if extent is None or extent > width:
        loop = sch.split(loop, [None, width])[1]
    sch.vectorize(loop)


def _sums_rows(block: Block) -> bool:
    """Whether a reduction reads along its last axis without gaps."""
    if not reduced(block) or not isinstance(block.body, BufferStore):
        return False
    k = reduced(block)[-1].var
    return any(x.indices and x.indices[-1] is k for x in loads(block.body.value))
