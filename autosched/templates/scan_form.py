"""How running sums and products are found: the reduction over all elements up to each one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autosched.ir.structural import structural_equal
from autosched.templates.classify import is_reduction, reduced, spatial
from autosched.templates.lines import Lines, lines_of
from autosched.tir import Block, Var
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import Add, Mul, PrimExpr, Select, const_int
from autosched.tir.functor import free_vars
from autosched.tir.stmt import BufferStore

COMBINE: dict[type[PrimExpr], Callable[[PrimExpr, PrimExpr], PrimExpr]] = {Add: E.add, Mul: E.mul}
IDENTITY: dict[type[PrimExpr], int] = {Add: 0, Mul: 1}
LONGEST = 1 << 30  # line whose positions fit 32 bits


@dataclass(frozen=True)
class ScanForm:
    """out[…, i, …] = combine of value[…, k, …] for k < i, or k <= i, or k > i, or k >= i.

    block      the reduction that says so, over `k`
    value      an element, in terms of the block's axes
    combine    Add or Mul
    exclusive  whether k == i is left out
    reverse    whether k runs from the end down to i
    """

    block: Block
    lines: Lines
    value: PrimExpr
    combine: type[PrimExpr]
    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class RunningForm:
    """A scan whatever its sizes are: see `ScanForm`."""

    axis: int
    value: PrimExpr
    combine: type[PrimExpr]
    exclusive: bool
    reverse: bool


def running_form(found: Block) -> RunningForm | None:
    """A reduction over the elements up to each one, along an axis that is as long as the result's."""
    body = found.body
    if not is_reduction(found) or len(reduced(found)) != 1 or not isinstance(body, BufferStore):
        return None
    kind, axes, k = type(body.value), [iv.var for iv in spatial(found)], reduced(found)[0].var
    if kind not in COMBINE or not _are(body.indices, axes) or body.buffer.dtype == "bool":
        return None
    own, term = body.value.a, body.value.b  # type: ignore[attr-defined]
    if not isinstance(own, BufferLoad) or own.buffer is not body.buffer or not _are(own.indices, axes):
        return None
    if not isinstance(term, Select) or not isinstance(term.condition, E.LE | E.LT | E.GE | E.GT):
        return None
    if term.condition.a is not k:
        return None
    axis = next((n for n, v in enumerate(axes) if v is term.condition.b), None)
    if axis is None or _number(term.false_value) != IDENTITY[kind] or axes[axis] in free_vars(term.true_value):
        return None
    along = reduced(found)[0].dom
    if const_int(along.min) != 0 or not structural_equal(spatial(found)[axis].dom.extent, along.extent):
        return None
    exclusive, reverse = (isinstance(term.condition, kinds) for kinds in (E.LT | E.GT, E.GE | E.GT))
    return RunningForm(axis, term.true_value, kind, exclusive, reverse)


def scan_of(found: Block, is_open: bool = False) -> ScanForm | None:
    """A reduction over the elements up to each one; None for any other block.

    is_open  whether sizes may come with the call; if not, None for those
    """
    form = running_form(found)
    if form is None:
        return None
    lines = lines_of([iv.dom.extent for iv in spatial(found)], form.axis)
    if all(const_int(n) is not None for n in lines.sizes):
        lines = Lines(lines.shape, lines.axis)
    if (lines.is_open and not is_open) or 0 in lines.shape or lines.length > LONGEST:
        return None
    return ScanForm(found, lines, form.value, form.combine, form.exclusive, form.reverse)


def _are(indices: Sequence[PrimExpr], axes: Sequence[Var]) -> bool:
    return len(indices) == len(axes) and all(i is v for i, v in zip(indices, axes, strict=True))


def _number(e: PrimExpr) -> float | None:
    return e.value if isinstance(e, E.FloatImm) else const_int(e)
