"""Boxes of buffers that blocks touch, seen from a loop: what lies inside of it widens, what lies outside
stays a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer, Linear
from autosched.tir.stmt import BlockRealize, BufferRegion, For, Stmt


@dataclass(frozen=True, slots=True)
class Interval:
    """[base, base + width): the base may name outer loops, the width is a number."""

    base: PrimExpr
    width: int

    @property
    def const_base(self) -> int | None:
        return E.const_int(self.base)


Box = tuple[Interval, ...]
Part = tuple[Interval | None, ...]  # None: all of a dimension whose extent is no number


def interval_of(x: PrimExpr, inner: frozenset[Var], analyzer: Analyzer) -> Interval | None:
    """The values of `x` while the `inner` variables run over their ranges (known to the analyzer); None if
    unbounded."""
    linear = analyzer.linear(x)
    base, width = Linear(linear.const), 1
    for key, (scale, atom) in linear.terms.items():
        variables = free_vars(atom)
        if not variables & inner:
            base.add_term(key, scale, atom)
            continue
        found = _atom_interval(atom, variables <= inner, inner, analyzer)
        if found is None:
            return None
        width += abs(scale) * (found.width - 1)
        start = E.add(found.base, found.width - 1) if scale < 0 else found.base
        base.add(analyzer.linear(start), scale)
    return Interval(base.build(x.dtype), width)


def _atom_interval(atom: PrimExpr, only_inner: bool, inner: frozenset[Var], analyzer: Analyzer) -> Interval | None:
    if isinstance(atom, E.FloorDiv | E.FloorMod) and isinstance(atom.b, IntImm) and not only_inner:
        c = atom.b.value
        whole = interval_of(atom.a, inner, analyzer)
        if whole is not None:
            offset = E.const_int(analyzer.simplify(E.floormod(whole.base, c)))
            if isinstance(atom, E.FloorDiv):
                width = (offset + whole.width - 1) // c + 1 if offset is not None else (whole.width + c - 2) // c + 1
                return Interval(analyzer.simplify(E.floordiv(whole.base, c)), width)
            start = analyzer.simplify(E.floormod(whole.base, c))
            if analyzer.can_prove(E.compare(E.LE, E.add(start, whole.width), c)):
                return Interval(start, whole.width)
        if isinstance(atom, E.FloorMod):
            return Interval(E.const(0, atom.dtype), c)
    low, high = analyzer.bound(atom)
    return None if low is None or high is None else Interval(E.const(low, atom.dtype), high - low + 1)


def clip(interval: Interval | None, extent: PrimExpr) -> Interval | None:
    """The part of an interval inside [0, extent), as far as numbers tell; None where nothing is known."""
    size = E.const_int(extent)
    if interval is None:
        return None if size is None else Interval(E.const(0, extent.dtype), size)
    if size is None:
        return interval
    start = interval.const_base
    if start is not None:
        low, high = max(start, 0), min(start + interval.width, size)
        return Interval(E.const(low, extent.dtype), max(high - low, 1))
    return Interval(E.const(0, extent.dtype), size) if interval.width >= size else interval


def hull(a: Interval, b: Interval, analyzer: Analyzer) -> Interval | None:
    """The smallest interval around two whose distance is a known number."""
    distance = E.const_int(analyzer.simplify(E.sub(b.base, a.base)))
    if distance is None:
        return None
    width = max(a.width, distance + b.width) - min(0, distance)
    return Interval(a.base if distance >= 0 else b.base, width)


def union(a: Part, b: Part, buffer: Buffer, analyzer: Analyzer) -> Part:
    """The smallest box around two; a whole dimension where their distance is not a known number."""
    return tuple(
        clip(None if x is None or y is None else hull(x, y, analyzer), n)
        for x, y, n in zip(a, b, buffer.shape, strict=True)
    )


def inner_loops(tree: Tree, stmt: Stmt, top: Stmt) -> list[For]:
    """The loops around `stmt` that lie below `top` (not `top` itself)."""
    found = []
    for s in tree.ancestors(stmt):
        if s is top:
            break
        if isinstance(s, For):
            found.append(s)
    return found


def _sharing_threads(tree: Tree, realize: BlockRealize, region: BufferRegion) -> frozenset[Var]:
    """The variables of the loops whose threads share the buffer: what one of them touches, all of them do."""
    if region.buffer.scope not in ("shared", "shared.dyn"):
        return frozenset()
    loops = (s for s in tree.ancestors(realize) if isinstance(s, For))
    return frozenset(x.loop_var for x in loops if x.thread.startswith(("threadIdx", "vthread", "cthread")))


def box_at(tree: Tree, realize: BlockRealize, region: BufferRegion, top: Stmt) -> Box | None:
    """What a block touches of a buffer while the loops between `top` and the block run, all threads together."""
    return _box(part_at(tree, realize, region, top))


def _box(part: Part) -> Box | None:
    return None if any(i is None for i in part) else tuple(i for i in part if i is not None)


def part_at(tree: Tree, realize: BlockRealize, region: BufferRegion, top: Stmt) -> Part:
    """The same, dimension by dimension."""
    inner = frozenset(x.loop_var for x in inner_loops(tree, realize, top)) | _sharing_threads(tree, realize, region)
    analyzer = tree.analyzer(realize)
    analyzer.keep_units = False
    values = bindings(realize)
    box = []
    for r, extent in zip(region.region, region.buffer.shape, strict=True):
        width = E.const_int(r.extent)
        found = None if width is None else interval_of(analyzer.simplify(substitute(r.min, values)), inner, analyzer)
        if found is not None and width is not None:
            found = Interval(found.base, found.width + width - 1)
        box.append(clip(found, extent))
    return tuple(box)


def bindings(realize: BlockRealize) -> Mapping[Var, PrimExpr]:
    """Iteration variable -> what it is bound to."""
    return {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}


def touched(
    tree: Tree, names: Sequence[str], buffer: Buffer, top: Stmt, *, written: bool, analyzer: Analyzer
) -> Box | None:
    """The union of what several blocks read (or write) of a buffer below `top`; None where it is no box of numbers."""
    part = touched_part(tree, names, buffer, top, written=written, analyzer=analyzer)
    return None if part is None else _box(part)


def touched_part(
    tree: Tree, names: Sequence[str], buffer: Buffer, top: Stmt, *, written: bool, analyzer: Analyzer
) -> Part | None:
    """The same, dimension by dimension; None where nothing is touched."""
    total: Part | None = None
    for name in names:
        realize = tree.realizes[name]
        for region in realize.block.writes if written else realize.block.reads:
            if region.buffer is not buffer:
                continue
            part = part_at(tree, realize, region, top)
            total = part if total is None else union(total, part, buffer, analyzer)
    return total
