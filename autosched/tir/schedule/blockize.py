"""blockize: a loop nest around a block becomes a block of its own, which computes a whole tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, substitute
from autosched.tir.schedule.check import extents_of
from autosched.tir.schedule.inline import with_regions
from autosched.tir.schedule.iter_map import is_injective
from autosched.tir.schedule.place import where_block, where_loop
from autosched.tir.schedule.region import Interval, clip, hull, interval_of
from autosched.tir.schedule.tree import Tree, bind_loop, realizes_below
from autosched.tir.simplify import Analyzer, Linear, split_conditions
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, For, LoopKind, Stmt, seq


@dataclass(slots=True)
class Division:
    """Each iteration variable of a block as `outer * size + inner`."""

    outer: list[IterVar] = field(default_factory=list)
    outer_values: list[PrimExpr] = field(default_factory=list)
    inner: list[IterVar] = field(default_factory=list)
    inner_values: list[PrimExpr] = field(default_factory=list)
    whole: dict[Var, PrimExpr] = field(default_factory=dict)  # old variable -> outer * size + inner variable


def blockize(tree: Tree, place: Var | str, preserve_unit_iters: bool = True) -> tuple[Tree, str]:
    """Make one block of a loop (or block) and all below it; returns its name.

       for i_0, i_1 in grid(8, 16): B[i_0 * 16 + i_1] = …
    -> for i_0 in range(8):
           block B_o(vi_o = i_0): for i_1 in range(16): B[vi_o * 16 + i_1] = …
    """
    top = tree.realizes[place] if isinstance(place, str) else tree.loops[place]
    where = where_block(tree, place) if isinstance(place, str) else where_loop(tree, place)
    realizes = list(realizes_below(top))
    if len(realizes) != 1:
        raise ScheduleError(f"blockize: there must be one block below, not {len(realizes)}", where=where)
    realize = realizes[0]
    block = realize.block
    inner_loops: list[For] = []
    stmt: Stmt = top
    while isinstance(stmt, For):
        inner_loops.append(stmt)
        stmt = stmt.body
    if stmt is not realize:
        raise ScheduleError(
            f"blockize: between the loop and block '{block.name_hint}' stands more than loops", where=where
        )
    division = _divide(tree, realize, inner_loops, preserve_unit_iters, where)
    inside, outside = _predicates(tree, realize, inner_loops, where)
    analyzer = _analyzer(inner_loops, division)
    body_block = replace(
        block, iter_vars=tuple(division.inner), init=None, body=substitute(block.body, division.whole),
        match_buffers=tuple(substitute(m, division.whole) for m in block.match_buffers),
        reads=_substituted(block.reads, division), writes=_substituted(block.writes, division),
    )  # fmt: skip
    if block.init is not None:
        body_block = replace(body_block, reads=body_block.writes + body_block.reads)
    nest: Stmt = BlockRealize(tuple(division.inner_values), inside, body_block)
    for loop in reversed(inner_loops):
        nest = replace(loop, body=nest)
    init = _init_nest(tree, block, division, inner_loops, inside)
    if init is not None and not any(iv.kind == REDUCE for iv in division.outer):
        nest, init = seq(init, nest), None  # all of the reduction lies inside
    name = tree.unique_block_name(f"{block.name_hint}_o")
    outer = Block(
        iter_vars=tuple(division.outer), alloc_buffers=(), name_hint=name, body=nest,
        reads=regions_over(_substituted(block.reads, division), division, analyzer),
        writes=regions_over(body_block.writes, division, analyzer),
        init=init,
    )  # fmt: skip
    if isinstance(top, BlockRealize) and top is tree.root:
        raise ScheduleError("blockize: the root block is one already", where=where)
    return tree.replace(top, BlockRealize(tuple(division.outer_values), outside, outer)), name


def _divide(tree: Tree, realize: BlockRealize, loops: Sequence[For], keep_units: bool, where: str) -> Division:
    inner_vars = {x.loop_var for x in loops}
    extents = extents_of(loops)
    if extents is None or any(E.const_int(x.start) != 0 for x in loops):
        raise ScheduleError("blockize: the loops inside need constant extents and to start at 0", where=where)
    analyzer = tree.analyzer(realize)
    analyzer.keep_units = False
    found = Division()
    inner_parts: list[PrimExpr] = []
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        linear = analyzer.linear(value)
        outer, inner = Linear(linear.const), Linear()
        for key, (scale, atom) in linear.terms.items():
            used = free_vars(atom) & inner_vars
            if used and not free_vars(atom) <= inner_vars:
                raise ScheduleError(
                    f"blockize: the binding of '{iv.var.name}' mixes loops inside and outside", where=where
                )
            (inner if used else outer).add_term(key, scale, atom)
        _divide_one(found, iv, outer, inner, analyzer, keep_units, where)
        inner_parts.append(inner.build(iv.var.dtype))
    if not is_injective(inner_parts, extents, analyzer):
        raise ScheduleError("blockize: the loops inside are not proven to reach each point of a tile once", where=where)
    return found


def _divide_one(
    found: Division, iv: IterVar, outer: Linear, inner: Linear, analyzer: Analyzer, keep_units: bool, where: str
) -> None:
    """Split one variable: its binding is `outer + inner` with inner from 0 to size - 1 and size dividing outer."""
    dtype, extent = iv.var.dtype, E.const_int(iv.dom.extent)
    low, high = analyzer.bound(inner.build(dtype))
    if low != 0 or high is None:
        raise ScheduleError(f"blockize: the part of '{iv.var.name}' inside does not start at 0", where=where)
    size = high + 1
    if not outer.terms and outer.const == 0 and extent is not None:
        size = extent  # all of the variable lies inside
    if any(c % size for c, _ in outer.terms.values()) or outer.const % size or (extent is None and size != 1):
        raise ScheduleError(
            f"blockize: '{iv.var.name}' moves in steps that are no multiples of the tile's {size}", where=where
        )  # fmt: skip
    base = Linear(outer.const // size, {k: (c // size, a) for k, (c, a) in outer.terms.items()}).build(dtype)
    count: PrimExpr = iv.dom.extent if size == 1 else IntImm(-(-(extent or 0) // size), dtype)
    outer_var, inner_var = Var(f"{iv.var.name}_o", dtype), Var(f"{iv.var.name}_i", dtype)
    whole: PrimExpr = IntImm(0, dtype)
    if keep_units or E.const_int(count) != 1:
        found.outer.append(IterVar(Range(IntImm(0, dtype), count), outer_var, iv.kind))
        found.outer_values.append(base)
        whole = E.mul(outer_var, size) if E.const_int(count) != 1 else whole  # the variable of one value is 0
    if size > 1 or (keep_units and inner.terms):
        found.inner.append(IterVar(Range(IntImm(0, dtype), IntImm(size, dtype)), inner_var, iv.kind))
        found.inner_values.append(inner.build(dtype))
        whole = E.add(whole, inner_var)
    found.whole[iv.var] = whole


def _predicates(tree: Tree, realize: BlockRealize, loops: Sequence[For], where: str) -> tuple[PrimExpr, PrimExpr]:
    """The block's conditions that stay inside, and those that move out."""
    inner_vars = {x.loop_var for x in loops}
    inside, outside = [], []
    for c in split_conditions(realize.predicate):
        used = free_vars(c)
        if not used & inner_vars:
            outside.append(c)
        elif used <= inner_vars:
            inside.append(c)
        else:
            raise ScheduleError(
                "blockize: a condition on the block depends on loops inside and outside", where=where,
                hint="split by factors that divide, or pad_einsum first",
            )  # fmt: skip
    return E.all_of(*inside), E.all_of(*outside)


def _analyzer(loops: Sequence[For], division: Division) -> Analyzer:
    analyzer = Analyzer()
    for iv in (*division.outer, *division.inner):
        analyzer.bind(iv.var, iv.dom)
    for loop in loops:
        bind_loop(analyzer, loop)
    return analyzer


def _substituted(regions: Sequence[BufferRegion], division: Division) -> tuple[BufferRegion, ...]:
    return tuple(
        BufferRegion(r.buffer, tuple(Range(substitute(x.min, division.whole), x.extent) for x in r.region))
        for r in regions
    )


def regions_over(regions: Sequence[BufferRegion], division: Division, analyzer: Analyzer) -> tuple[BufferRegion, ...]:
    """What regions cover while the loops inside run: one region per buffer."""
    inner = frozenset(iv.var for iv in division.inner)
    boxes: dict[Buffer, list[Interval]] = {}
    for r in regions:
        box = []
        for part, extent in zip(r.region, r.buffer.shape, strict=True):
            width = E.const_int(part.extent)
            found = None if width is None else interval_of(part.min, inner, analyzer)
            if found is not None and width is not None:
                found = Interval(found.base, found.width + width - 1)
            clipped = clip(found, extent)
            box.append(clipped or Interval(E.const(0, extent.dtype), -1))
        old = boxes.get(r.buffer)
        if old is not None:
            joined = [
                hull(a, b, analyzer) if a.width >= 0 and b.width >= 0 else None for a, b in zip(old, box, strict=True)
            ]
            box = [clip(j, n) or Interval(E.const(0, n.dtype), -1) for j, n in zip(joined, r.buffer.shape, strict=True)]
        boxes[r.buffer] = box
    return tuple(
        BufferRegion(buffer, tuple(
            Range(E.const(0, n.dtype), n) if i.width < 0
            else Range(analyzer.simplify(i.base), E.const(i.width, n.dtype))
            for i, n in zip(box, buffer.shape, strict=True)
        ))
        for buffer, box in boxes.items()
    )  # fmt: skip


def _init_nest(tree: Tree, block: Block, division: Division, loops: Sequence[For], inside: PrimExpr) -> Stmt | None:
    """The start values of a whole tile: the loops that are not reduced, around a block `X_init` of its own."""
    if block.init is None:
        return None
    spatial = [(iv, v) for iv, v in zip(division.inner, division.inner_values, strict=True) if iv.kind == SPATIAL]
    reduced = {x for iv, v in zip(division.inner, division.inner_values, strict=True) if iv.kind == REDUCE
               for x in free_vars(v)}  # fmt: skip
    conditions = [c for c in split_conditions(inside) if not free_vars(c) & reduced]
    used = {x for _, v in spatial for x in free_vars(v)} | {x for c in conditions for x in free_vars(c)}
    fresh: dict[Var, PrimExpr] = {
        x.loop_var: Var(x.loop_var.name, x.loop_var.dtype) for x in loops if x.loop_var in used
    }
    own = {iv.var: Var(f"{iv.var.name}_init", iv.var.dtype) for iv, _ in spatial}
    init = with_regions(Block(
        iter_vars=tuple(replace(iv, var=own[iv.var]) for iv, _ in spatial), alloc_buffers=(), reads=(), writes=(),
        name_hint=tree.unique_block_name(f"{block.name_hint}_init"),
        body=substitute(substitute(block.init, division.whole), own),
    ))  # fmt: skip
    predicate = substitute(E.all_of(*conditions), fresh)
    stmt: Stmt = BlockRealize(tuple(substitute(v, fresh) for _, v in spatial), predicate, init)
    for loop in reversed(loops):
        new = fresh.get(loop.loop_var)
        if isinstance(new, Var):
            stmt = For(new, loop.start, loop.extent, LoopKind.SERIAL, stmt)
    return stmt
