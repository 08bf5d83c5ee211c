"""From a box of a buffer back to the iterations of a block that touch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.schedule.region import Interval, Part
from autosched.tir.stmt import Block


@dataclass(frozen=True, slots=True)
class Index:
    """One index of an access: `var + offset`, `var // divisor`, `var % divisor`, a constant, or something else."""

    kind: str  # "var", "div", "mod", "const", "other"
    var: Var | None = None
    number: int = 0

    def same(self, other: Index) -> bool:
        """Whether both have one form, whatever their variables."""
        return self.kind == other.kind and self.number == other.number


def classify(x: PrimExpr, variables: frozenset[Var] | set[Var]) -> Index:
    """What kind of index `x` is in the block's variables."""
    match x:
        case IntImm(value=value):
            return Index("const", None, value)
        case Var() if x in variables:
            return Index("var", x)
        case E.Add(a=Var() as v, b=IntImm(value=offset)) if v in variables:
            return Index("var", v, offset)
        case E.Sub(a=Var() as v, b=IntImm(value=offset)) if v in variables:
            return Index("var", v, -offset)
        case E.FloorDiv(a=Var() as v, b=IntImm(value=c)) if v in variables:
            return Index("div", v, c)
        case E.FloorMod(a=Var() as v, b=IntImm(value=c)) if v in variables:
            return Index("mod", v, c)
        case _:
            return Index("other")


def classify_all(indices: Sequence[PrimExpr], block: Block) -> list[Index]:
    variables = {iv.var for iv in block.iter_vars}
    return [classify(x, variables) for x in indices]


def solve(indices: Sequence[Index], box: Part) -> tuple[dict[Var, Interval], list[int]]:
    """Intervals of variables that cover a box, and the dimensions that they do not follow exactly."""
    found: dict[Var, Interval] = {}
    loose: list[int] = []
    mods = {(i.var, i.number): d for d, i in enumerate(indices) if i.kind == "mod"}
    for d, index in enumerate(indices):
        interval = box[d]
        if interval is None:  # all of the dimension, however long it is
            loose.append(d)
            continue
        if index.kind == "var" and index.var is not None:
            solved = Interval(E.sub(interval.base, index.number), interval.width)
        elif index.kind == "div" and index.var is not None:
            c, partner = index.number, mods.get((index.var, index.number))
            start = E.mul(interval.base, c)
            solved = Interval(start, interval.width * c)
            inside = None if partner is None else box[partner]
            if inside is not None and partner is not None and not (inside.const_base == 0 and inside.width == c):
                if interval.width == 1:
                    solved = Interval(E.add(start, inside.base), inside.width)
                else:
                    loose.append(partner)
        elif index.kind == "mod" and any(i.kind == "div" and i.var is index.var for i in indices):
            continue
        else:
            loose.append(d)
            continue
        assert index.var is not None, "the other kinds have none"
        if index.var in found:
            loose.append(d)
        else:
            found[index.var] = solved
    return found, loose


def is_full(interval: Interval, extent: PrimExpr) -> bool:
    size = E.const_int(extent)
    return size is not None and interval.const_base == 0 and interval.width >= size


def covers_buffer(block: Block, buffer: Buffer, indices: Sequence[Index]) -> list[bool]:
    """For each dimension, whether the block's writes reach all of it, each value by a variable of its own."""
    domains = {iv.var: iv.dom for iv in block.iter_vars}
    result = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        full = False
        if index.kind == "var" and index.var is not None and index.number == 0:
            dom = domains[index.var]
            start, n, size = E.const_int(dom.min), E.const_int(dom.extent), E.const_int(extent)
            full = start == 0 and (dom.extent is extent or (n is not None and size is not None and n >= size))
        elif index.kind == "const":
            full = E.const_int(extent) == 1
        result.append(full)
    return result


def clip_domain(interval: Interval, iter_var: IterVar) -> Interval:
    """The part of an interval inside an iteration variable's domain, as far as numbers tell."""
    start, size = E.const_int(iter_var.dom.min), E.const_int(iter_var.dom.extent)
    base = interval.const_base
    if start is None or size is None:
        return interval
    if base is not None:
        low, high = max(base, start), min(base + interval.width, start + size)
        return Interval(E.const(low, iter_var.var.dtype), max(high - low, 1))
    return Interval(iter_var.dom.min, size) if interval.width >= size else interval


def whole_domain(iter_var: IterVar) -> Interval | None:
    size = E.const_int(iter_var.dom.extent)
    return None if size is None else Interval(iter_var.dom.min, size)
