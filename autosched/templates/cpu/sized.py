"""Kernels whose sizes come with the call: schedules of functions over symbols, for which nothing divides anything.

Each block that no other one takes in is a nest of its own: outer axes over the threads, the innermost one in vectors,
of which the last is masked. Sums along the innermost axis are made in lanes.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from autosched.codegen.lower.flops import symbolic_work
from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, is_injective, is_reduction, spatial
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.templates.cpu.elementwise import inline_all, schedule_square
from autosched.templates.cpu.lone_reductions import (
    is_window,
    reads_along,
    reduce_beside,
    repeats_several,
    sum_in_lanes,
    sums_rows,
)
from autosched.templates.cpu.rows_sized import schedule_open_rows
from autosched.tir import Block, PrimFunc
from autosched.tir.expr import const_int
from autosched.tir.merge_axes import merged_axes
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.size_expr import WORK, to_size, with_named_sizes

VECTORS = 2  # in one step of the innermost axis
PRODUCT_VECTORS = 8  # sums beside each other, but those of windows: one waits for the last
TASK_VECTORS = 128  # steps in a piece of a single axis


def schedule_sized(func: PrimFunc, target: Target) -> Applied:
    """Schedule a function over symbols. Raises ScheduleError, InvalidValueError for what has no such kernel."""
    if (found := schedule_open_rows(func, target)) is not None:
        return sized(func, *found)
    func = in_two_reductions(func)
    sch = Schedule(func)
    inline_all(sch, func)
    merged = merged_axes(sch.func)
    is_whole = merged is sch.func  # the trace then begins with the function as it is known
    sch = sch if is_whole else Schedule(merged)
    for block in blocks_of(sch.func):
        schedule_nest(sch, block, VECTORS * target.lanes("float32"))
    return sized(func, sch.func, sch.trace.to_json_text() if is_whole else "")


def sized(func: PrimFunc, scheduled: PrimFunc, trace: str = "", scans: Collection[str] = ()) -> Applied:
    """A scheduled function with what is known of its sizes; scans: see `symbolic_work`."""
    work = json.dumps(to_size(symbolic_work(func, scans)))
    return Applied(with_named_sizes(scheduled).with_attr(WORK, work), (None,) * len(func.params), trace)


def schedule_nest(sch: Schedule, block: Block, width: int) -> None:
    name = block.name_hint
    every = list(sch.get_loops(name))
    loops = [loop for loop in every if not repeats_several(sch, loop)]
    n_spatial = len(spatial(block)) - (len(every) - len(loops))
    if is_injective(block) and n_spatial == 1:
        loops = sch.split(loops[0], [None, TASK_VECTORS * width])
    if is_injective(block) and len(every) == len(loops) and (turned := schedule_square(sch, block, width // VECTORS)):
        for loop in turned:
            sch.parallel(loop)
        return
    outer = loops[:n_spatial] if is_reduction(block) else loops[:-1]
    if is_reduction(block) and n_spatial > 0 and reads_along(block):
        side_by_side = width if is_window(block) else PRODUCT_VECTORS // VECTORS * width
        extent = const_int(spatial(block)[-1].dom.extent)
        if n_spatial > 1 or extent is None or extent > side_by_side:
            reduce_beside(sch, block, side_by_side)
            return
    for loop in outer[: max(len(outer) - 1, 1)]:
        sch.parallel(loop)
    if is_injective(block) and n_spatial:
        vectorize(sch, loops[-1], width)
    elif is_reduction(block) and sums_rows(block):
        sum_in_lanes(sch, name, width)


def vectorize(sch: Schedule, loop: LoopRV, width: int) -> None:
    extent = const_int(sch.get(loop).extent)
    if extent is None or extent > width:
        loop = sch.split(loop, [None, width])[1]
    sch.vectorize(loop)
