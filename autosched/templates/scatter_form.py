"""How scatters are found: the reduction over all updates of those whose target an element is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.templates.classify import extents, is_reduction, reduced, spatial
from autosched.templates.core_nests import number, uncast
from autosched.tir import Block, IterVar
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import Add, Max, Min, Mul, PrimExpr, Select, const_int
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import BufferStore

NOWHERE = -1  # the number of the last update of an element that has none


@dataclass(frozen=True)
class ScatterForm:
    """out[…] = combination of the values of all updates whose target is its place.

    block    the reduction that says so, over the updates `k`
    target   of an update: a row-major number of the axes `places`; `conditions` say which updates have one
    lines    axes that the targets depend on: each combination has updates of its own
    value    of an update that hits, `start` what is there without
    """

    block: Block
    target: PrimExpr
    conditions: tuple[PrimExpr, ...]
    places: tuple[int, ...]
    lines: tuple[int, ...]
    value: PrimExpr
    start: PrimExpr

    @property
    def takes_last(self) -> bool:
        """Whether the result is the number of the last update."""
        return isinstance(self.step, Max) and uncast(self.value) is self.updates.var

    @property
    def updates(self) -> IterVar:
        """The axis of the updates."""
        return reduced(self.block)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result, where it is known."""
        return extents(spatial(self.block))

    @property
    def sizes(self) -> tuple[int | PrimExpr, ...]:
        """Of the result, and behind them how many updates there are: numbers, or expressions of symbols."""
        return tuple(size_of(iv) for iv in (*spatial(self.block), self.updates))

    def combined(self, so_far: PrimExpr, value: PrimExpr) -> PrimExpr:
        """The result with one more value."""
        return type(self.step)(so_far, value)

    @property
    def step(self) -> Add | Mul | Max | Min:
        """The combination of the result so far and the value of one update."""
        assert isinstance(self.block.body, BufferStore), "a reduction is a store"
        step = self.block.body.value
        assert isinstance(step, Add | Mul | Max | Min), "it is one of these"
        return step


def scatter_of(found: Block) -> ScatterForm | None:
    """A reduction over the updates that hit; None for any other block."""
    body, axes = found.body, [iv.var for iv in spatial(found)]
    if not is_reduction(found) or len(reduced(found)) != 1 or not isinstance(body, BufferStore) or found.annotations:
        return None
    step, k = body.value, reduced(found)[0].var
    if not isinstance(step, Add | Mul | Max | Min) or len(axes) != len(body.indices):
        return None
    own, term = step.a, step.b
    if not isinstance(own, BufferLoad) or own.buffer is not body.buffer or not isinstance(term, Select):
        return None
    conditions = tuple(split_conditions(term.condition))
    for hit in (c for c in conditions if isinstance(c, E.EQ)):
        others = tuple(c for c in conditions if c is not hit)
        for target, place in ((hit.a, hit.b), (hit.b, hit.a)):
            places = _row_major(place, spatial(found))
            used = free_vars(target).union(*map(free_vars, others))
            if not places or k not in free_vars(target) or used & {axes[d] for d in places}:
                continue
            if free_vars(term.true_value) & {axes[d] for d in places} or 0 in map(size_of, found.iter_vars):
                continue
            lines = tuple(d for d, v in enumerate(axes) if v in used)
            form = ScatterForm(found, target, others, places, lines, term.true_value, term.false_value)
            if _starts_alike(form, found):
                return form
    return None


def _row_major(e: PrimExpr, axes: Sequence[IterVar]) -> tuple[int, ...]:
    """The axes whose row-major number an expression is; none where it is no such number."""
    form = Analyzer().linear(e)
    factors: dict[int, int] = {}
    for factor, atom in form.terms.values():
        axis = next((d for d, iv in enumerate(axes) if iv.var is uncast(atom)), None)
        if axis is None:
            return _row_major_over_symbols(e, axes)
        factors[axis] = factor
    places, step = tuple(sorted(factors)), 1
    for d in reversed(places):
        size = size_of(axes[d])
        if factors[d] != step or (not isinstance(size, int) and d != places[0]):
            return ()
        step *= size if isinstance(size, int) else 1
    return places if form.const == 0 else ()


def size_of(axis: IterVar) -> int | PrimExpr:
    """An axis's extent: a number, or an int64 expression of symbols."""
    known = const_int(axis.dom.extent)
    return E.cast("int64", axis.dom.extent) if known is None else known


def _row_major_over_symbols(e: PrimExpr, axes: Sequence[IterVar]) -> tuple[int, ...]:
    """The same of the first axes, whose sizes are open: their number has products of these."""
    number: PrimExpr = E.const(0, "int64")
    for d, axis in enumerate(axes):
        number = E.add(E.mul(number, E.to_expr(size_of(axis), "int64")), E.cast("int64", axis.var))
        if form_key(Analyzer().simplify(e)) == form_key(Analyzer().simplify(number)):
            return tuple(range(d + 1))
    return ()


def _starts_alike(form: ScatterForm, found: Block) -> bool:
    """Whether updates that miss leave a result alone, and no more than the start of the reduction does."""
    if not isinstance(found.init, BufferStore):
        return False
    missed, start = number(form.start), number(found.init.value)
    if missed is None or start is None:
        return False
    if form.takes_last:
        return missed == NOWHERE
    beyond = {Max: -math.inf, Min: math.inf}.get(type(form.step))
    identity = {Add: 0, Mul: 1}.get(type(form.step), start)
    return missed in (identity, beyond) and start in (identity, missed)
