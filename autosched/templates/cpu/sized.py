"""Kernels whose sizes come with the call: schedules of functions over symbols, for which nothing divides anything.

Each block that no other one takes in is a nest of its own: outer axes over the threads, the innermost one in vectors,
of which the last is masked. Sums along the innermost axis are made in lanes.
"""

from __future__ import annotations

import json

from autosched.codegen.lower.flops import symbolic_work
from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, is_injective, is_reduction, reduced, spatial
from autosched.templates.cpu.elementwise import inline_all
from autosched.tir import Block, BufferStore, PrimFunc
from autosched.tir.expr import const_int
from autosched.tir.functor import loads
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.size_expr import WORK, to_size, with_named_sizes

VECTORS = 2  # in one step of the innermost axis
TASK_VECTORS = 128  # steps in a piece of a single axis


def schedule_sized(func: PrimFunc, target: Target) -> Applied:
    """Schedule a function over symbols. Raises ScheduleError, InvalidValueError for what has no such kernel."""
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
    loops = list(sch.get_loops(name))
    n_spatial = len(spatial(block))
    if is_injective(block) and n_spatial == 1:
        loops = sch.split(loops[0], [None, TASK_VECTORS * width])
    outer = loops[:n_spatial] if is_reduction(block) else loops[:-1]
    for loop in outer[: max(len(outer) - 1, 1)]:
        sch.parallel(loop)
    if is_injective(block) and n_spatial:
        vectorize(sch, loops[-1], width)
    elif is_reduction(block) and _sums_rows(block):
        sum_in_lanes(sch, name, width)


def sum_in_lanes(sch: Schedule, name: str, width: int) -> None:
    """Make a reduction along a block's last loop in `width` lanes, where it is not shorter than that."""
    loop = sch.get_loops(name)[-1]
    extent = const_int(sch.get(loop).extent)
    if extent is None or extent >= width:
        lanes = sch.split(loop, [None, width])[1]
        partial = sch.rfactor(lanes, 0)
        sch.set_scope(partial, 0, "local")
        sch.vectorize(sch.get_loops(partial)[-1])


def vectorize(sch: Schedule, loop: LoopRV, width: int) -> None:
    extent = const_int(sch.get(loop).extent)
    if extent is None or extent > width:
        loop = sch.split(loop, [None, width])[1]
    sch.vectorize(loop)


def _sums_rows(block: Block) -> bool:
    """Whether a reduction has one axis, along which it reads without gaps."""
    if len(reduced(block)) != 1 or not isinstance(block.body, BufferStore):
        return False
    k = reduced(block)[0].var
    return any(x.indices and x.indices[-1] is k for x in loads(block.body.value))
