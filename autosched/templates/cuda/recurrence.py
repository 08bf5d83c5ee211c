"""Recurrences: rows that follow on each other, each computed by launches of its own.

    for t in range(steps):              # annotation "launched_each_time": every iteration launches both nests
        for … in blockIdx, threadIdx: product[…] = sum(h[t, …] * w[…])
        for … in blockIdx, threadIdx: h[t + 1, …] = f(product[…], x[t, …])

A nest is scheduled as a function of its own, whose arguments are the rows that it reads and writes. What no other row
needs has memory for one row.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.launches import LAUNCHED
from autosched.errors import CodegenError, ScheduleError
from autosched.ir.node import FrozenDict, preorder
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, is_injective
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import free_vars, loads, rewrite, stores, substitute, uses
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import BlockRealize, BufferRegion, BufferStore, For, LoopKind, SeqStmt, Stmt, seq

Scheduler = Callable[[PrimFunc, Target], PrimFunc]  # of one nest


class Recurrence:
    """Rows of known number; of an open one see `schedule_recurrence`."""

    name = "recurrence"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        del target
        return Anchor("", "recurrence") if is_recurrence(func) else None

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return ConfigSpace(self.name, ()).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        del anchor, target
        return Config(self.name, {})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        del config
        return schedule_recurrence(func, target, schedule_known)


def is_recurrence(func: PrimFunc) -> bool:
    """Whether loops at the top of a function repeat several nests."""
    return any(isinstance(part, For) and _repeats_several(part) for part in _parts(func.root.body))


def _repeats_several(loop: For) -> bool:
    return sum(isinstance(x, BlockRealize) for x in preorder(loop.body)) > 1


def _parts(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def schedule_recurrence(func: PrimFunc, target: Target, schedule: Scheduler) -> Applied:
    """Schedule nest by nest. Raises ScheduleError for nests that need more of their row's number than places."""
    made, buffers = list[Stmt](), list[Buffer](func.root.alloc_buffers)
    for part in _parts(func.root.body):
        if not isinstance(part, For) or not _repeats_several(part):
            made.append(_scheduled(part, func, target, schedule, buffers))
            continue
        rows = _Rows(part.loop_var)
        inside = _inlined(_body_of_rows(rows, part, func))
        buffers += inside.root.alloc_buffers
        nests = [_scheduled(nest, inside, target, schedule, buffers) for nest in _parts(inside.root.body)]
        notes = FrozenDict({**part.annotations, LAUNCHED: True})
        body = rows.whole(seq(*nests), keep=inside.root.alloc_buffers)
        made.append(dataclasses.replace(part, kind=LoopKind.SERIAL, body=body, annotations=notes))
    used = {x.buffer for s in made for x in preorder(s) if isinstance(x, BufferLoad | BufferStore)}
    root = make_root(seq(*made), tuple(b for b in dict.fromkeys(buffers) if b in used), func.root.annotations)
    return Applied(func.with_body(root), (None,) * len(func.params), "")


def _body_of_rows(rows: _Rows, loop: For, func: PrimFunc) -> PrimFunc:
    """What a loop repeats as a function of rows. What is left for no other row, and no other nest, is its own."""
    one = rows.of_one(loop.body)
    if uses(one, {rows.loop_var}):
        raise ScheduleError(f"a recurrence computes with the number of its row, '{rows.loop_var.name}'")
    elsewhere = {*func.buffers}
    for part in _parts(func.root.body):
        if part is not loop:
            elsewhere |= {x.buffer for x in preorder(part) if isinstance(x, BufferLoad | BufferStore)}
    numbers = Counter(buffer for _, buffer, _ in rows.rows.values())
    own = tuple(row for row, buffer, _ in rows.rows.values() if numbers[buffer] == 1 and buffer not in elsewhere)
    made = _function(one, own, func)
    rows.check(made)
    return made


def _function(stmt: Stmt, own: tuple[Buffer, ...], func: PrimFunc) -> PrimFunc:
    """A statement as a function of the buffers that it reads, then those that it writes, except for its own."""
    written = dict.fromkeys(x.buffer for x in stores(stmt) if x.buffer not in own)
    read = dict.fromkeys(x.buffer for x in loads(stmt) if x.buffer not in written and x.buffer not in own)
    arguments = [*read, *written]
    handles = [Var(f"var_{b.name}_{n}", "handle") for n, b in enumerate(arguments)]
    buffers = FrozenDict(zip(handles, arguments, strict=True))
    return PrimFunc(params=tuple(handles), buffer_map=buffers, body=make_root(stmt, own), attrs=func.attrs)


def _inlined(func: PrimFunc) -> PrimFunc:
    """The function without blocks that one element-wise block reads once: a launch less for each row."""
    sch, own = Schedule(func), {*func.root.alloc_buffers}
    for block in reversed(blocks_of(func)):
        out = block.writes[0].buffer
        readers = [b for b in blocks_of(sch.func) if any(r.buffer is out for r in b.reads)]
        if out in own and is_injective(block) and len(readers) == 1 and is_injective(readers[0]):
            if sum(x.buffer is out for x in loads(readers[0].body)) == 1:
                sch.compute_inline(block.name_hint)
    return sch.func


def schedule_known(func: PrimFunc, target: Target) -> PrimFunc:
    """A nest of known sizes by the first template that needs nothing packed and copies no boxes."""
    from autosched.templates.registry import all_templates, default_config, template_named

    first = template_named(default_config(func, target).template, target)
    problems = ["no template takes it"]
    for template in (first, *(t for t in all_templates(target.backend) if t is not first)):
        if (anchor := template.match(func, target)) is None:
            continue
        try:
            applied = template.apply(func, template.default(anchor, target), target)
            lowered = lower_device(applied.func)
        except (ScheduleError, CodegenError) as error:
            problems.append(error.message)
            continue
        if not any(applied.packs) and not any(launch.tensor_maps for launch in lowered.launches):
            return applied.func
    raise ScheduleError(f"a nest of a recurrence: {problems[-1]}")


@dataclass
class _Rows:
    """The rows that the nests of a loop read and write, as buffers without that dimension.

    loop_var  that of the loop
    rows      by buffer and number of the row: (the row, the buffer, the row's number)
    """

    loop_var: Var
    rows: dict[object, tuple[Buffer, Buffer, PrimExpr]] = field(default_factory=dict)

    def check(self, func: PrimFunc) -> None:
        """Raises ScheduleError where a buffer is read under another number than it is written, and may be the same."""
        written = {x.buffer for x in stores(func.body)}
        for row, buffer, number in self.rows.values():
            for other, same, its in self.rows.values():
                if row in written and other is not row and same is buffer:
                    if not const_int(Analyzer().simplify(E.sub(number, its))):
                        raise ScheduleError(f"rows of '{buffer.name}' that are read and written may be the same")
            if row in written and buffer in func.buffers:
                raise ScheduleError(f"'{buffer.name}' is read as a whole where a row of it is written")

    def row(self, buffer: Buffer, number: PrimExpr) -> Buffer:
        number = Analyzer().simplify(number)
        key = (buffer, form_key(number))
        if key not in self.rows:
            made = dataclasses.replace(buffer, shape=buffer.shape[1:], strides=())
            self.rows[key] = made, buffer, number
        return self.rows[key][0]

    def is_row(self, indices: Sequence[PrimExpr]) -> bool:
        """Whether an access is to one of the rows. Raises ScheduleError for the loop's variable in other indices."""
        if not any(self.loop_var in free_vars(i) for i in indices):
            return False
        if any(self.loop_var in free_vars(i) for i in indices[1:]):
            raise ScheduleError("a recurrence reads more than whole rows of what comes before")
        return True

    def of_one(self, stmt: Stmt) -> Stmt:
        """A nest as it computes one row."""
        return rewrite(rewrite(stmt, self._in_blocks), self._in_accesses)

    def _in_blocks(self, x: object) -> object:
        """Leave out the axes of blocks that are the row's number."""
        if not isinstance(x, BlockRealize):
            return x
        pairs = tuple(zip(x.block.iter_vars, x.iter_values, strict=True))
        fixed = {iv.var: e for iv, e in pairs if self.loop_var in free_vars(e)}
        rest = [(iv, e) for iv, e in pairs if iv.var not in fixed]
        axes = tuple(iv for iv, _ in rest)
        block = substitute(dataclasses.replace(x.block, iter_vars=axes), fixed)
        return dataclasses.replace(x, block=block, iter_values=tuple(e for _, e in rest))

    def _in_accesses(self, x: object) -> object:
        match x:
            case BufferData():
                raise ScheduleError(f"the address of '{x.buffer.name}' is used")
            case BufferLoad() if self.is_row(x.indices):
                return BufferLoad(self.row(x.buffer, x.indices[0]), x.indices[1:])
            case BufferStore() if self.is_row(x.indices):
                return BufferStore(self.row(x.buffer, x.indices[0]), x.value, x.indices[1:])
            case BufferRegion() if self.is_row([r.min for r in x.region]):
                if const_int(x.region[0].extent) != 1:
                    raise ScheduleError("a recurrence reads several rows at once")
                return BufferRegion(self.row(x.buffer, x.region[0].min), x.region[1:])
        return x

    def whole(self, stmt: Stmt, keep: Collection[Buffer]) -> Stmt:
        """A scheduled statement with whole buffers in place of their rows, but for those in `keep`."""
        back = {row: (buffer, number) for row, buffer, number in self.rows.values() if row not in keep}

        def step(x: object) -> object:
            if not isinstance(x, BufferData | BufferLoad | BufferStore | BufferRegion) or x.buffer not in back:
                return x
            buffer, number = back[x.buffer]
            match x:
                case BufferLoad():
                    return BufferLoad(buffer, (number, *x.indices))
                case BufferStore():
                    return BufferStore(buffer, x.value, (number, *x.indices))
                case BufferRegion():
                    return BufferRegion(buffer, (Range(number, E.const(1, number.dtype)), *x.region))
            raise ScheduleError(f"the address of '{x.buffer.name}' is used, which is a row")

        return rewrite(stmt, step)


def _scheduled(nest: Stmt, func: PrimFunc, target: Target, schedule: Scheduler, buffers: list[Buffer]) -> Stmt:
    """A nest, scheduled as a function of its own; adds what it keeps between launches to `buffers`."""
    alone = _function(nest, (), func)
    made = schedule(alone, target)
    if made.buffers != alone.buffers:
        raise ScheduleError("a nest of a recurrence was scheduled for other arguments")
    buffers += made.root.alloc_buffers
    return made.root.body
