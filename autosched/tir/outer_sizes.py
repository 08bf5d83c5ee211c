"""Forms of scheduled functions: the numbers of their outer loops become symbols, whose values come with the call.

Functions that differ in such numbers alone, as in the channels that a convolution reads, have one form, which is
compiled once. With the symbols at their numbers a form is the very function that it was made of.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from autosched.ir.node import FrozenDict, Node, preorder
from autosched.tir import expr as E
from autosched.tir.axis import IterVar, Range
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var, const_int, mul
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, rewrite
from autosched.tir.prefetch import PANEL, PREFETCH_NEXT, PREFETCHES, loops_to, wanted_by
from autosched.tir.size_expr import SIZES
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, LoopKind

INDEX = "int64"  # the type of symbols: numbers of another one stay
LEAST = 4  # a smaller number stays: the loop over it may be unrolled


@dataclass(frozen=True)
class Form:
    """func: the function over symbols, with their names; numbers: their values in the function that was opened."""

    func: PrimFunc
    numbers: tuple[int, ...]


def open_outer_sizes(func: PrimFunc) -> Form | None:
    """The form of a scheduled function of numbers; None where no number of it can be left open.

    Left open are the extents of parallel loops, and of serial ones around others, that reach each place of a dimension
    in order, together with all axes of blocks and dimensions of buffers that these are bound to. Strides of what a
    piece of work goes along stay numbers, and so does everything where a loop is annotated, but for lines that are
    fetched ahead: those of windows, and those of panels where each step has so many of them whatever the symbols are.
    """
    found = _Classes(func)
    symbols: dict[Hashable, tuple[Var, int]] = {}
    for root, extents in found.open_ones():
        number = math.gcd(*extents)
        if number >= LEAST:
            symbols[root] = Var(f"n{len(symbols)}", INDEX), number
    if not symbols:
        return None
    names = tuple(v.name for v, _ in symbols.values())
    opened = _opened(func, found, symbols).with_attr(SIZES, names)
    return Form(opened, tuple(number for _, number in symbols.values()))


class _Classes:
    """Which loops, axes of blocks and dimensions of buffers have extents that go together.

    A member is the variable of a loop or of an axis, or a buffer and the number of its dimension.
    """

    def __init__(self, func: PrimFunc):
        self._parents: dict[Hashable, Hashable] = {}
        self._extents: dict[Hashable, int] = {}
        self._fixed: set[Hashable] = set()
        self._moving: dict[Var, bool] = {}  # by loop: whether it runs within a piece of work
        self._meant: dict[Var, PrimExpr] = {}  # by axis: its value
        self._values: dict[Var, int] = {}  # the extents of loops, without those of axes
        self._panels: list[tuple[For, str]] = []  # loops that ask for a buffer's next panel
        self._is_closed = False  # whether all numbers stay: of what is annotated, or used in ways not seen
        for buffer in func.buffers:
            self._declare(buffer)
        self._visit(func.body)
        for passes, name in self._panels:
            self._spread(passes, name)

    def root(self, member: Hashable) -> Hashable:
        """What stands for a member's class."""
        while (parent := self._parents.get(member, member)) is not member:
            member = parent
        return member

    def open_ones(self) -> Iterator[tuple[Hashable, list[int]]]:
        """The classes that can be left open, by what stands for them, with their members' extents."""
        if self._is_closed:
            return
        members: dict[Hashable, list[Hashable]] = {}
        for member in self._extents:
            members.setdefault(self.root(member), []).append(member)
        for root, some in members.items():
            if self._fixed.isdisjoint(some) and not self._values.keys().isdisjoint(some):
                yield root, [self._extents[x] for x in some]

    def _add(self, member: Hashable, extent: PrimExpr) -> None:
        number = const_int(extent)
        self._extents[member] = 1 if number is None else number
        if number is None or number < 1 or extent.dtype != INDEX:
            self._fix([member])

    def _declare(self, buffer: Buffer) -> None:
        for dimension, extent in enumerate(buffer.shape):
            self._add((buffer, dimension), extent)
            if buffer.strides or buffer.elem_offset is not None:
                self._fix([(buffer, dimension)])

    def _join(self, a: Hashable, b: Hashable) -> None:
        self._parents[self.root(a)] = self.root(b)

    def _fix(self, members: Iterable[Hashable]) -> None:
        self._fixed.update(members)

    def _visit(self, node: Node) -> None:
        for x in preorder(node):
            match x:
                case For():
                    self._add(x.loop_var, x.extent)
                    self._values[x.loop_var] = self._extents[x.loop_var]
                    self._moving[x.loop_var] = x.kind != LoopKind.PARALLEL
                    is_outer = x.kind == LoopKind.PARALLEL or _holds_loops(x)
                    self._is_closed |= bool(x.annotations.keys() - PREFETCHES)
                    for name, elements in wanted_by(x, PREFETCH_NEXT).items():
                        self._is_closed |= elements != PANEL
                        self._panels.append((x, name))
                    if const_int(x.start) != 0 or not is_outer:
                        self._fix([x.loop_var])
                case BufferData():
                    self._is_closed = True
                case BlockRealize():
                    self._is_closed |= bool(x.block.match_buffers)
                    for buffer in x.block.alloc_buffers:
                        self._declare(buffer)
                    self._fix(free_vars(x.predicate))
                    for axis, value in zip(x.block.iter_vars, x.iter_values, strict=True):
                        self._bind(axis, value)
                case BufferLoad() | BufferStore():
                    is_stepped = False
                    for dimension, index in enumerate(x.indices):
                        self._access((x.buffer, dimension), index)
                        if is_stepped:
                            self._fix([(x.buffer, dimension)])
                        is_stepped |= self._moves(index)
                case BufferRegion():
                    for dimension, r in enumerate(x.region):
                        if const_int(r.extent) == 1:
                            self._access((x.buffer, dimension), r.min)
                        elif not (
                            const_int(r.min) == 0 and const_int(r.extent) == const_int(x.buffer.shape[dimension])
                        ):
                            self._fix([(x.buffer, dimension), *free_vars(r.min), *free_vars(r.extent)])

    def _spread(self, passes: For, name: str) -> None:
        """What a panel and the steps that ask for it do not have in common stays: else lines a step were no number."""
        path, load = loops_to(passes, name)
        if load is None:
            return
        buffer = load.buffer
        of_panel = Counter(self.root((buffer, d)) for d in range(1, len(buffer.shape)))
        of_steps = Counter(self.root(loop.loop_var) for loop in path)
        self._fix(of_panel - of_steps)
        self._fix(of_steps - of_panel)

    def _access(self, dimension: Hashable, index: PrimExpr) -> None:
        """An index along a dimension: one that is a variable goes with it, another one fixes what it is made of."""
        if isinstance(index, Var) and self._extents.get(index) == self._extents[dimension]:
            self._join(index, dimension)
        elif self._extents[dimension] > 1 or const_int(index) is None:
            self._fix([dimension, *free_vars(index)])

    def _bind(self, axis: IterVar, value: PrimExpr) -> None:
        """An axis goes with the one loop whose extent decides its own in proportion; others are fixed."""
        self._add(axis.var, axis.dom.extent)
        self._meant[axis.var] = value
        if const_int(axis.dom.min) != 0:
            self._fix([axis.var, *free_vars(value)])
            return
        extent, used = self._extents[axis.var], free_vars(value)
        leading = [v for v in used if self._is_in_proportion(value, v, extent)][:1]
        for v in used:
            if v in leading:
                self._join(v, axis.var)
            elif self._reach(value, v, 2) is None or self._reach(value, v, 2) != self._reach(value, v, 1):
                self._fix([v])
        if not leading and extent > 1:
            self._fix([axis.var])

    def _moves(self, index: PrimExpr) -> bool:
        """Whether an index changes within a piece of work: the stride of its dimension is better a number."""
        moving = {v: 1 for v, moves in self._moving.items() if moves}
        top = _largest(index, self._values, self._meant)
        return top is None or top != _largest(index, {**self._values, **moving}, self._meant)

    def _is_in_proportion(self, value: PrimExpr, v: Var, extent: int) -> bool:
        return v in self._values and all(self._reach(value, v, times) == times * extent for times in (1, 2, 3))

    def _reach(self, value: PrimExpr, v: Var, times: int) -> int | None:
        """How many places a value has if a loop comes so many times as often."""
        top = _largest(value, {**self._values, v: self._values.get(v, 1) * times}, {})
        return None if top is None else top + 1


def _holds_loops(loop: For) -> bool:
    """Whether a serial loop holds others: the number of an innermost one decides how it is unrolled."""
    return loop.kind == LoopKind.SERIAL and any(
        isinstance(x, For)
        and x is not loop
        and x.kind in (LoopKind.SERIAL, LoopKind.UNROLLED)
        and const_int(x.extent) != 1
        for x in preorder(loop, scalars=False)
    )


def _largest(value: PrimExpr, extents: Mapping[Var, int], meant: Mapping[Var, PrimExpr]) -> int | None:
    """The largest value of a sum of loops' variables, their products, quotients and remainders by numbers.

    meant  what variables without an extent stand for
    """
    match value:
        case IntImm():
            return value.value if value.value >= 0 else None
        case Var():
            if value in meant:
                return _largest(meant[value], extents, meant)
            return extents[value] - 1 if value in extents else None
        case E.Add() | E.Mul():
            a, b = _largest(value.a, extents, meant), _largest(value.b, extents, meant)
            if a is None or b is None:
                return None
            return a + b if isinstance(value, E.Add) else a * b
        case E.FloorDiv() | E.FloorMod():
            a, by = _largest(value.a, extents, meant), const_int(value.b)
            if a is None or by is None or by < 1:
                return None
            return a // by if isinstance(value, E.FloorDiv) else min(a, by - 1)
    return None


def _opened(func: PrimFunc, found: _Classes, symbols: Mapping[Hashable, tuple[Var, int]]) -> PrimFunc:
    """The function with symbols for the numbers of classes, by what stands for these."""

    def extent(member: Hashable, old: PrimExpr) -> PrimExpr:
        known, number = symbols.get(found.root(member)), const_int(old)
        return old if known is None or number is None else mul(known[0], number // known[1])

    buffers: dict[Buffer, Buffer] = {}

    def of(buffer: Buffer) -> Buffer:
        if buffer not in buffers:
            shape = tuple(extent((buffer, d), old) for d, old in enumerate(buffer.shape))
            buffers[buffer] = buffer if shape == buffer.shape else replace(buffer, shape=shape)
        return buffers[buffer]

    def step(x: object) -> object:
        match x:
            case For():
                return replace(x, extent=extent(x.loop_var, x.extent))
            case IterVar():
                return replace(x, dom=Range(x.dom.min, extent(x.var, x.dom.extent)))
            case BufferRegion():
                region = tuple(
                    r if const_int(r.extent) == 1 else Range(r.min, extent((x.buffer, d), r.extent))
                    for d, r in enumerate(x.region)
                )
                return BufferRegion(of(x.buffer), region)
            case BufferLoad() | BufferStore():
                return replace(x, buffer=of(x.buffer))
            case Block():
                return replace(x, alloc_buffers=tuple(map(of, x.alloc_buffers)))
        return x

    buffer_map = {p: of(b) for p, b in func.buffer_map.items()}
    return replace(func, buffer_map=FrozenDict(buffer_map), body=rewrite(func.body, step))
