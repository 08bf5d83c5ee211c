"""From a box of a buffer back to the iterations of a block that touch it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.tir import expr as E
from autosched.tir.axis import IterVar, Range
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.schedule.region import Interval, Part
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block


@dataclass(frozen=True, slots=True)
class Index:
    """One index of an access: `var + offset`, `var * scale + offset`, `var // divisor`, `var % divisor`, a constant,
    or something else; and how many elements from there on are accessed."""

    kind: str  # "var", "scaled", "div", "mod", "const", "other"
    var: Var | None = None
    number: int = 0
    scale: int = 1
    width: int = 1

    def same(self, other: Index) -> bool:
        """Whether both have one form, whatever their variables."""
        return (self.kind, self.number, self.scale) == (other.kind, other.number, other.scale)


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
        case E.Add() | E.Sub() | E.Mul():
            linear = Analyzer().linear(x)
            match list(linear.terms.values()):
                case [(scale, Var() as v)] if v in variables:
                    return Index("var" if scale == 1 else "scaled", v, linear.const, scale)
    return Index("other")


def classify_all(region: Sequence[Range], block: Block) -> list[Index]:
    """What kind of index each dimension of an access has; a stretch of unknown length is "other"."""
    variables = {iv.var for iv in block.iter_vars}
    found = []
    for r in region:
        width = E.const_int(r.extent)
        found.append(Index("other") if width is None else replace(classify(r.min, variables), width=width))
    return found


def _scaled(index: Index, interval: Interval, analyzer: Analyzer) -> tuple[Interval, bool]:
    """The values of v with which `v * scale + offset`, and `width - 1` elements more, touch an interval; and
    whether there may be others among them."""
    step = abs(index.scale)
    if index.scale > 0:  # from the first v that ends at or behind the base
        first = E.sub(interval.base, index.number + index.width - 1)
    else:  # v * -step + offset <= base + interval.width - 1
        first = E.sub(index.number - interval.width + 1, interval.base)
    reach = interval.width + index.width - 1
    for back in range(min(index.width, step)):  # where the base is a multiple, fewer values are enough
        aligned = E.add(first, back)
        if E.const_int(analyzer.simplify(E.floormod(aligned, step))) == 0:
            return Interval(analyzer.simplify(E.floordiv(aligned, step)), (reach - back - 1) // step + 1), True
    return Interval(analyzer.simplify(E.floordiv(E.add(first, step - 1), step)), (reach - 1) // step + 1), False


def fits(index: Index, interval: Interval, analyzer: Analyzer) -> bool:
    """Whether what `solve` finds for an index are the values with which all that is accessed lies in the interval."""
    if index.width == 1:
        return True
    start = analyzer.simplify(E.floormod(E.sub(interval.base, index.number), index.width))
    whole = E.const_int(start) == 0 and interval.width % index.width == 0
    return index.kind == "scaled" and index.scale == index.width and whole


def solve(indices: Sequence[Index], box: Part, analyzer: Analyzer) -> tuple[dict[Var, Interval], list[int]]:
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
            start = E.sub(interval.base, index.number + index.width - 1)
            solved = Interval(start, interval.width + index.width - 1)
        elif index.kind == "scaled" and index.var is not None:
            solved, exact = _scaled(index, interval, analyzer)
            if not exact:
                loose.append(d)
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
        elif index.kind == "scaled" and index.var is not None and index.number == 0 < index.scale == index.width:
            dom = domains[index.var]
            start, n, size = E.const_int(dom.min), E.const_int(dom.extent), E.const_int(extent)
            full = start == 0 and n is not None and size is not None and n * index.scale >= size
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
