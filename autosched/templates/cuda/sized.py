"""Kernels whose outer sizes come with the call: one for all batches, its grid an expression of the sizes.

A template schedules the function for sizes that nothing divides. What it did is done again on the function over
symbols: the tiles are those of known sizes, the number of blocks is an expression, and what the last tile has beyond
the end is guarded. A template that writes its loops itself, as attention's does, schedules one part of the batch, whose
blocks all parts have (`parts.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial

from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.flops import symbolic_work
from autosched.errors import CodegenError, InvalidValueError, ScheduleError
from autosched.ir.node import preorder
from autosched.ir.structural import structural_equal
from autosched.space import Config
from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.classify import blocks_of, reduced
from autosched.templates.cuda.attention import AttentionPass
from autosched.templates.cuda.contraction import TensorContraction
from autosched.templates.cuda.either import either
from autosched.templates.cuda.last_wave import KNOB as WAVE_PARTS
from autosched.templates.cuda.parts import over_parts
from autosched.templates.cuda.query_attention import QueryAttention
from autosched.templates.cuda.recurrence import is_recurrence, schedule_known, schedule_recurrence
from autosched.templates.cuda.rows import RowReduction
from autosched.templates.cuda.scan import Scan
from autosched.templates.cuda.scatter import schedule_open_scatter
from autosched.templates.cuda.sort_sized import schedule_open_sort
from autosched.templates.cuda.sum_parts import KNOB as SUM_PARTS
from autosched.templates.cuda.tensor_attention import TensorAttention
from autosched.templates.cuda.tensor_window import TensorWindow
from autosched.templates.row_blocks import match_rows
from autosched.templates.stand_ins import with_stand_ins
from autosched.tir import PrimFunc
from autosched.tir.expr import Cast, PrimExpr, Var, const_int
from autosched.tir.function import shape_vars, size_vars, specialize
from autosched.tir.functor import replace_buffers
from autosched.tir.schedule import Schedule
from autosched.tir.schedule.trace import Trace
from autosched.tir.size_expr import SIZES, WORK, to_size, with_named_sizes
from autosched.tir.stmt import BlockRealize, For

STAND_INS = ((127, 61, 31, 17), (1031, 521, 257, 67))  # primes: a template that wants divisors finds none
LONG = (1031, 1033, 1039, 1049)  # where sums go over an open size: longer than a block has threads
MOST_SYMBOLS = 4
OPEN_ROWS = {"block_size": 128, "together": 1, "keep": False, "held": False}  # of any length: nothing of one is kept


def schedule_sizes(func: PrimFunc, target: Target) -> Applied:
    """Schedule a function over symbols. Raises ScheduleError, InvalidValueError for what has no such kernel."""
    if len(size_vars(func)) > MOST_SYMBOLS:
        raise ScheduleError(f"a kernel has {MOST_SYMBOLS} sizes that come with the call at most")
    if is_recurrence(func):
        applied = schedule_recurrence(func, target, _nest)
        return _checked(func, applied.func, applied, target)
    loops = (loop for loop in preorder(func.body) if isinstance(loop, For))
    if any(sum(isinstance(x, BlockRealize) for x in preorder(loop)) > 1 for loop in loops):
        raise ScheduleError("it repeats several nests, one row after the other")
    if (made := _open_attention(func, target)) is not None:
        return made
    for schedule in (_open_scan, _open_sort, _open_scatter, _open_images):
        if (made := schedule(func, target)) is not None:
            return made
    problems: list[str] = []
    for known, config in _choices(func, target):
        for again in (partial(_scheduled, known), _by_parts):
            try:
                return again(func, config, target)
            except (ScheduleError, CodegenError, InvalidValueError) as error:
                problems.append(error.message)
    problem = "; by parts: ".join(problems[:2])  # of what is scheduled for known sizes
    raise ScheduleError(f"no template has a kernel for sizes that come with the call: {problem}")


def _nest(func: PrimFunc, target: Target) -> PrimFunc:
    """One nest of a recurrence."""
    return schedule_sizes(func, target).func if size_vars(func) else schedule_known(func, target)


def _open_attention(func: PrimFunc, target: Target) -> Applied | None:
    """Attention over sequences whose lengths come with the call; None for any other function.

    Where the number of queries is one of these sizes, a call with one query makes the launches of such a function.
    """
    for template in (QueryAttention(), TensorAttention(), AttentionPass()):
        anchor = template.of_open_sizes(func, target)
        if anchor is None or all(const_int(anchor.details.extents[n]) is not None for n in "MT"):
            continue
        applied = template.apply(func, template.default(anchor, target), target)
        made = applied.func
        if (single := _of_one_query(func, anchor.details.extents["M"], target)) is not None:
            made = either(*single, made)
        return _checked(func, made, applied, target)
    return None


def _open_scan(func: PrimFunc, target: Target) -> Applied | None:
    """Running sums along lines whose length comes with the call; None for any other function."""
    template = Scan()
    if (anchor := template.of_open_sizes(func, target)) is None or const_int(anchor.details.lines.extent) is not None:
        return None
    with contextlib.suppress(ScheduleError, CodegenError, InvalidValueError):  # what is around it needs known sizes
        applied = template.apply(func, template.default(anchor, target), target)
        return _checked(func, applied.func, applied, target)
    return None


def _open_sort(func: PrimFunc, target: Target) -> Applied | None:
    """Sorts along lines whose length comes with the call; None for any other function."""
    with contextlib.suppress(ScheduleError, CodegenError, InvalidValueError):  # what is around it needs known sizes
        if (applied := schedule_open_sort(func)) is not None:
            return _checked(func, applied.func, applied, target)
    return None


def _open_scatter(func: PrimFunc, target: Target) -> Applied | None:
    """Values joined at places, an open number of them; None for any other function."""
    applied = schedule_open_scatter(func)
    return None if applied is None else _checked(func, applied.func, applied, target)


def _open_images(func: PrimFunc, target: Target) -> Applied | None:
    """A convolution on tensor cores whose number of images or pixels comes with the call; None for any other."""
    template, window = TensorContraction(), TensorWindow()
    if (anchor := template.of_open_sizes(func, target)) is None or not anchor.details.opened:
        return None
    known = specialize(func, dict(zip(size_vars(func), STAND_INS[0])))
    with contextlib.suppress(ScheduleError, CodegenError, InvalidValueError):  # it takes images of known sizes
        if (of_window := window.match(known, target)) is not None:
            return _by_parts(func, window.default(of_window, target), target)
    with contextlib.suppress(ScheduleError, CodegenError, InvalidValueError):
        applied = template.apply(func, template.default(anchor, target), target)
        return _checked(func, applied.func, applied, target)
    return None


def _of_one_query(func: PrimFunc, queries: PrimExpr, target: Target) -> tuple[PrimExpr, PrimFunc] | None:
    """(the number of queries, the function scheduled for one) where that is a size of its own."""
    symbol = queries.value if isinstance(queries, Cast) else queries
    if not isinstance(symbol, Var) or symbol not in shape_vars(func):
        return None
    one, template = specialize(func, {symbol: 1}), QueryAttention()
    if (anchor := template.of_open_sizes(one, target)) is None:
        return None
    made = template.apply(one, template.default(anchor, target), target).func
    whole = dict(zip(made.buffers, func.buffers, strict=True))
    return symbol, func.with_body(replace_buffers(made.body, whole))


def _choices(func: PrimFunc, target: Target) -> Iterator[tuple[PrimFunc, Config]]:
    """The function for sizes that stand for all, and what schedules it, the best first."""
    from autosched.templates.registry import all_templates, default_config, template_named

    if any(const_int(axis.dom.extent) is None for block in blocks_of(func) for axis in reduced(block)):
        if (known := with_stand_ins(func, size_vars(func), LONG, 2)) is None:
            return
        if (anchor := match_rows(known, squares=True)) is not None:
            default = template_named(RowReduction.name, target).default(anchor, target)
            yield known, default.with_knobs(**OPEN_ROWS)
        yield known, _of_any_size(default_config(known, target))
    for numbers in STAND_INS:
        if (known := with_stand_ins(func, size_vars(func), numbers, 2)) is None:
            return
        first = default_config(known, target)
        yield known, _of_any_size(first)
        for template in all_templates(target.backend):
            if template.name != first.template and (anchor := template.match(known, target)) is not None:
                yield known, _of_any_size(template.default(anchor, target))


def _of_any_size(config: Config) -> Config:
    """The configuration without what is chosen for one number of tiles or terms."""
    chosen = {knob: 1 for knob in (WAVE_PARTS, SUM_PARTS) if config.get(knob, 1) != 1}
    return config.with_knobs(**chosen) if chosen else config


def _scheduled(known: PrimFunc, func: PrimFunc, config: Config, target: Target) -> Applied:
    """The function scheduled by the steps that schedule it for known sizes."""
    from autosched.templates.registry import apply_config

    applied = apply_config(known, config, target)
    if any(applied.packs):
        raise ScheduleError(f"template '{config.template}' packs weights for known sizes")
    if not structural_equal(_again(known, applied.trace).body, applied.func.body):
        raise ScheduleError(f"template '{config.template}' writes its loops for known sizes")
    return _checked(func, _again(func, applied.trace), applied, target)


def _by_parts(func: PrimFunc, config: Config, target: Target) -> Applied:
    """The function with the blocks of one part of its batch for each."""
    from autosched.templates.registry import apply_config, template_named

    if set(size_vars(func)) - set(shape_vars(func)):
        raise ScheduleError("it computes with a size that counts no parts")
    one = specialize(func, dict.fromkeys(shape_vars(func), 1))
    if template_named(config.template, target).match(one, target) is None:
        raise ScheduleError(f"template '{config.template}' does not take one part")
    applied = apply_config(one, config, target)
    return _checked(func, over_parts(func, applied.func), applied, target)


def _checked(func: PrimFunc, made: PrimFunc, applied: Applied, target: Target) -> Applied:
    """What is known of its sizes beside a scheduled function. Raises CodegenError where there is no code for it."""
    attrs = {name: value for name, value in applied.func.attrs.items() if name not in made.attrs}
    sizes = with_named_sizes(func).attrs[SIZES]  # the work has all of them, what is scheduled perhaps not
    made = made.with_attr({**attrs, SIZES: sizes, WORK: json.dumps(to_size(symbolic_work(func)))})
    for launch in lower_device(made).launches:
        if launch.shared_bytes > target.gpu.max_shared_memory_per_block:  # also what grows with a size
            raise ScheduleError("a block's shared memory would not hold what it keeps of a size that is open")
    return Applied(made, applied.packs, applied.trace)


def _again(func: PrimFunc, trace: str) -> PrimFunc:
    sch = Schedule(func)
    Trace.apply_json_to_schedule(trace or "[[], []]", sch)
    return sch.func
