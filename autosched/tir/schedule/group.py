"""blockize of several blocks: neighbouring loop nests become one block around all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import OPAQUE, REDUCE, SPATIAL, IterVar, Range
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars, loads, substitute
from autosched.tir.schedule.blockize import Division, regions_over
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree, bind_loop, child_stmts, realizes_below
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, For, IfThenElse, SeqStmt, Stmt, seq


def blockize_together(tree: Tree, names: Sequence[str]) -> tuple[Tree, str]:
    """Make one block of neighbouring nests that hold the named blocks and no others; returns its name.

       for m in range(6):
           for i in range(3): B[m, i] = …
           for j in range(8): C[m, j] = …
    -> for m in range(6):
           block outer_B_C_(vm = m): for i in range(3): B[vm, i] = … ; for j in range(8): C[vm, j] = …

    The loops around become iteration variables. Raises ScheduleError where the blocks are not neighbours, where one
    stands inside another, and where a loop around is reduced over.
    """
    around, members = _neighbours(tree, names)
    blocks = [r for m in members for r in realizes_below(m)]
    loops = tree.loops_above(around)
    outer = [_outer_variable(tree, loop, blocks) for loop in loops]
    inside: dict[Var, PrimExpr] = {loop.loop_var: iv.var for loop, iv in zip(loops, outer, strict=True)}
    nests = [substitute(m, inside) for m in members]
    reads, writes = _regions(nests, outer)
    variables = tuple(replace(iv, kind=OPAQUE) if _overlaps(writes, iv.var) else iv for iv in outer)
    name = tree.unique_block_name("outer_" + "".join(f"{r.block.name_hint}_" for r in blocks))
    block = Block(variables, (), reads, writes, name, seq(*nests))
    made = BlockRealize(tuple(loop.loop_var for loop in loops), IntImm(1, "bool"), block)
    first = around.seq.index(members[0])
    rest = (*around.seq[:first], made, *around.seq[first + len(members) :])
    return tree.replace(around, seq(*rest)), name


def _neighbours(tree: Tree, names: Sequence[str]) -> tuple[SeqStmt, list[Stmt]]:
    """The statements, one after the other, that hold exactly these blocks, and the sequence that they stand in."""
    where = where_block(tree, names[0])
    wanted = [tree.realizes[n] for n in dict.fromkeys(names)]
    around = next(
        (s for s in tree.ancestors(wanted[0]) if isinstance(s, SeqStmt) and all(tree.is_below(w, s) for w in wanted)),
        None,
    )
    scopes = {id(tree.scope_of(w)) for w in wanted}
    if around is None or len(scopes) != 1:
        raise ScheduleError("blockize: the blocks do not stand beside each other in one block", where=where)
    holding = [i for i, s in enumerate(around.seq) if any(tree.is_below(w, s) for w in wanted)]
    members = list(around.seq[holding[0] : holding[-1] + 1])
    others = [r.block.name_hint for m in members for r in realizes_below(m) if r not in wanted]
    if others or len(holding) != len(members):
        other = f"'{others[0]}' stands" if others else "other statements stand"
        raise ScheduleError(f"blockize: {other} among the blocks", where=where, hint="the blocks must be consecutive")
    for m in members:
        _require_plain(m, where)
    return around, members


def _require_plain(stmt: Stmt, where: str) -> None:
    """Refuse what reads or writes memory outside of blocks: the new block could not say so."""
    if isinstance(stmt, BlockRealize):
        return
    reads = isinstance(stmt, IfThenElse) and bool(loads(stmt.condition))
    if reads or not isinstance(stmt, For | SeqStmt | IfThenElse):
        raise ScheduleError("blockize: between the loops and the blocks stands more than loops", where=where)
    for s in child_stmts(stmt):
        _require_plain(s, where)


def _outer_variable(tree: Tree, loop: For, blocks: Sequence[BlockRealize]) -> IterVar:
    """The variable that stands for a loop around: spatial where it is that to every block, opaque elsewhere."""
    spatial = True
    for r in blocks:
        kinds = [
            iv.kind
            for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True)
            if loop.loop_var in free_vars(value)
        ]
        if REDUCE in kinds:
            raise ScheduleError(
                f"blockize: block '{r.block.name_hint}' reduces over loop '{loop.loop_var.name}' around it",
                where=where_block(tree, r.block.name_hint), hint="blockize the nests one by one",
            )  # fmt: skip
        spatial &= bool(kinds) and set(kinds) == {SPATIAL}
    var = Var(f"v{loop.loop_var.name}", loop.loop_var.dtype)
    domain = Range(E.const(0, var.dtype), E.add(loop.start, loop.extent))
    return IterVar(domain, var, SPATIAL if spatial else OPAQUE)


def _regions(
    nests: Sequence[Stmt], outer: Sequence[IterVar]
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """What the nests read and write altogether, in terms of the outer variables."""
    loops = [x for nest in nests for x in _loops_in(nest)]
    analyzer = Analyzer()
    for iv in outer:
        analyzer.bind(iv.var, iv.dom)
    for loop in loops:
        bind_loop(analyzer, loop)
    division = Division(inner=[IterVar(Range(x.start, x.extent), x.loop_var) for x in loops])
    reads: list[BufferRegion] = []
    writes: list[BufferRegion] = []
    for realize in (r for nest in nests for r in realizes_below(nest)):
        values = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
        reads += [substitute(r, values) for r in realize.block.reads]
        writes += [substitute(w, values) for w in realize.block.writes]
    return regions_over(reads, division, analyzer), regions_over(writes, division, analyzer)


def _loops_in(stmt: Stmt) -> list[For]:
    if isinstance(stmt, BlockRealize):
        return []
    found = [stmt] if isinstance(stmt, For) else []
    return [*found, *(x for s in child_stmts(stmt) for x in _loops_in(s))]


def _overlaps(writes: Sequence[BufferRegion], var: Var) -> bool:
    """Whether a region may share elements with that of the variable's next value."""
    for w in writes:
        for part in w.region:
            if var not in free_vars(part.min):
                continue
            width = E.const_int(part.extent)
            steps = [c for c, atom in Analyzer().linear(part.min).terms.values() if atom is var]
            if width is None or not steps or abs(steps[0]) < width:
                return True
    return False
