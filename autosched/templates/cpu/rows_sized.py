"""Softmax, norms and reductions of rows or columns whose lengths come with the call: see `rows` and `columns`.

A template schedules the function for lengths that nothing divides, and what it did is done again over symbols. Loops
over vectors are split where the whole ones end, so that only the last vector of a row has a mask.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from autosched.codegen.cpu.cut import WHOLE_TILE
from autosched.codegen.lower.partition import FULL_APART
from autosched.ir.node import FrozenDict
from autosched.target import Target
from autosched.templates.classify import blocks_of, reduced
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.templates.cpu.columns import ColumnReduction
from autosched.templates.cpu.powers import bound_powers
from autosched.templates.cpu.rows import RowReduction
from autosched.templates.stand_ins import with_stand_ins
from autosched.tir import PrimFunc
from autosched.tir.expr import const_int
from autosched.tir.function import size_vars
from autosched.tir.functor import rewrite
from autosched.tir.schedule import Schedule
from autosched.tir.schedule.trace import Trace
from autosched.tir.stmt import For, LoopKind

USUAL = (137, 139, 149, 151, 157, 163)  # lengths that templates choose for: primes, and rows longer than a step
LEAST = 32


def schedule_open_rows(func: PrimFunc, target: Target) -> tuple[PrimFunc, str] | None:
    """(a function over symbols in rows or columns, its schedule's trace); None for any other. Raises ScheduleError."""
    if not any(map(reduced, blocks_of(func))):
        return None
    func = bound_powers(in_two_reductions(func))
    if (known := with_stand_ins(func, size_vars(func), USUAL, LEAST)) is None:
        return None
    for template in (_OpenRows(), _OpenColumns()):
        if (anchor := template.match(known, target)) is None:
            continue
        config = template.default(anchor, target)
        trace = template.apply(known, config, target).trace
        sch = Schedule(func)
        Trace.apply_json_to_schedule(trace, sch)
        kinds = {LoopKind.SERIAL} if isinstance(template, RowReduction) else {LoopKind.SERIAL, LoopKind.PARALLEL}
        return with_whole_vectors_apart(sch.func, target.lanes("float32"), kinds), trace
    return None


class _OpenRows(RowReduction):
    fuses_rows = cuts_rows = False


class _OpenColumns(ColumnReduction):
    fuses_tasks = cuts_columns = False


def with_whole_vectors_apart(func: PrimFunc, lanes: int, kinds: Collection[LoopKind]) -> PrimFunc:
    """The function with loops of open extents split behind their whole steps, the rest in single vectors.

    The few rows of a task are one tile, which finds the masks of their last vectors once.
    """

    def step(x: object) -> object:
        if not isinstance(x, For) or x.kind not in kinds:
            return x
        note = {FULL_APART: lanes} if const_int(x.extent) is None else {WHOLE_TILE: True}
        return replace(x, annotations=FrozenDict({**x.annotations, **note}))

    return rewrite(func, step)
