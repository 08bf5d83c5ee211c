"""What the primitives ask of blocks and loops before they change anything."""

from __future__ import annotations

from collections.abc import Iterable

from autosched.errors import ScheduleError
from autosched.ir.node import preorder
from autosched.tir.axis import REDUCE, SPATIAL
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.functor import free_vars
from autosched.tir.schedule.iter_map import is_injective
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree, realizes_below
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt

RING = "rolling_buffer"  # the annotation of blocks that use a ring: their loops keep their order


def require_no_ring(tree: Tree, blocks: Iterable[BlockRealize], action: str) -> None:
    """Refuse what would change the order in which a ring is filled and read."""
    for r in blocks:
        if r.block.annotations.get(RING):
            raise ScheduleError(
                f"{action}: block '{r.block.name_hint}' uses a ring that is filled in the order of its loops",
                where=where_block(tree, r.block.name_hint), hint="rolling_buffer comes last",
            )  # fmt: skip


def reduce_vars(block: Block) -> set[Var]:
    return {iv.var for iv in block.iter_vars if iv.kind == REDUCE}


def written_vars(block: Block) -> set[Var]:
    """The iteration variables in the indices that a block writes."""
    return {v for w in block.writes for r in w.region for v in free_vars(r.min)}


def why_not_dominant(tree: Tree, name: str) -> str | None:
    block = tree.block(name)
    if not block.writes:
        return "it writes nothing"
    if any(iv.kind not in (SPATIAL, REDUCE) for iv in block.iter_vars):
        return "it has iteration variables that are neither spatial nor reducing"
    for w in block.writes:
        others = [n for n in tree.writers[w.buffer] if n != name]
        if others:
            return f"'{others[0]}' writes buffer '{w.buffer.name}' as well"
    return None


def why_not_complete(tree: Tree, name: str) -> str | None:
    """Why a block is not complete: all its variables spatial, the only writer of what it writes, reading none of it."""
    block = tree.block(name)
    if block.init is not None:
        return "it reduces"
    if any(iv.kind == REDUCE for iv in block.iter_vars):
        return "it reduces, and its initialisation is a block of its own"
    written = {w.buffer for w in block.writes}
    for r in block.reads:
        if r.buffer in written:
            return f"it reads and writes buffer '{r.buffer.name}'"
    return why_not_dominant(tree, name)


def why_not_reduction(tree: Tree, name: str) -> str | None:
    """Why a block is not a reduction block: with an init, the only writer, its reducing variables not in
    what it writes."""
    block = tree.block(name)
    if block.init is None:
        return "it has no initialisation"
    if reduce_vars(block) & written_vars(block):
        return "it writes at an index that it reduces over"
    own = {iv.var for iv in block.iter_vars}
    started, updated = _places_written(block.init, own), _places_written(block.body, own)
    if started is not None and updated is not None and started != updated:
        return "its initialisation and its update write different elements"
    return why_not_dominant(tree, name)


def _places_written(stmt: Stmt, own: set[Var]) -> set[tuple[object, ...]] | None:
    """The buffer and the form of the indices of each store; None where a store uses other variables than a block's."""
    stores = [x for x in preorder(stmt) if isinstance(x, BufferStore)]
    if any(free_vars(i) - own for x in stores for i in x.indices):
        return None
    return {(x.buffer, *map(form_key, x.indices)) for x in stores}


def require_no_match(tree: Tree, buffer: Buffer, action: str) -> None:
    """Refuse to move a buffer's accesses where a block knows a region of it under a second name."""
    for name, realize in tree.realizes.items():
        if any(match.source.buffer is buffer for match in realize.block.match_buffers):
            raise ScheduleError(
                f"{action}: block '{name}' accesses '{buffer.name}' through a match_buffer",
                where=where_block(tree, name), hint="schedule the buffer before its accesses are tensorized",
            )  # fmt: skip


def require_complete(tree: Tree, name: str, action: str) -> None:
    reason = why_not_complete(tree, name)
    if reason:
        raise ScheduleError(
            f"{action}: block '{name}' is not a complete block: {reason}", where=where_block(tree, name)
        )


def require_reduction(tree: Tree, name: str, action: str) -> None:
    reason = why_not_reduction(tree, name)
    if reason:
        raise ScheduleError(
            f"{action}: block '{name}' is not a reduction block: {reason}", where=where_block(tree, name)
        )


def require_complete_or_reduction(tree: Tree, name: str, action: str) -> None:
    reduces = tree.block(name).init is not None
    (require_reduction if reduces else require_complete)(tree, name, action)


def require_not_output(tree: Tree, name: str, action: str) -> None:
    for w in tree.block(name).writes:
        if w.buffer in tree.interface:
            raise ScheduleError(
                f"{action}: block '{name}' writes '{w.buffer.name}', an output of the function",
                where=where_block(tree, name),
            )  # fmt: skip


def require_iter_kinds(tree: Tree, blocks: Iterable[BlockRealize], action: str) -> None:
    for r in blocks:
        if any(iv.kind not in (SPATIAL, REDUCE) for iv in r.block.iter_vars):
            raise ScheduleError(
                f"{action}: block '{r.block.name_hint}' has iteration variables that are neither spatial nor reducing",
                where=where_block(tree, r.block.name_hint),
            )  # fmt: skip


MOST = 1 << 48  # no loop has more iterations: what differs in so many differs in fewer


def extents_of(loops: Iterable[For]) -> dict[Var, int] | None:
    """Constant extents of loops, or None where one is not constant."""
    table = {}
    for loop in loops:
        if not isinstance(loop.extent, IntImm):
            return None
        table[loop.loop_var] = loop.extent.value
    return table


def most_of(extent: PrimExpr, analyzer: Analyzer | None = None) -> int:
    """An extent, or the most that it can be as far as an analyzer sees."""
    if isinstance(extent, IntImm):
        return extent.value
    high = analyzer.bound(extent)[1] if analyzer else None
    return MOST if high is None else high


def binds_once(tree: Tree, realize: BlockRealize, top: For) -> bool:
    """Whether the loops from `top` down to a block provably reach each of its points at most once.

    Where more loops do, so do fewer of them: `(i * 4 + j) // 3, (i * 4 + j) % 3` is understood with i and j only.
    """
    loops = tree.loops_of(realize.block.name_hint)
    if top not in loops:
        return False
    analyzer, conditions = tree.analyzer(realize), list(split_conditions(realize.predicate))
    for first in range(loops.index(top), -1, -1):
        variables = {x.loop_var: most_of(x.extent, analyzer) for x in loops[first:]}
        if any(is_injective(realize.iter_values, variables, analyzer, known) for known in ((), conditions)):
            return True
    return False


def require_binds_once(tree: Tree, realize: BlockRealize, top: For, action: str) -> None:
    if not binds_once(tree, realize, top):
        name = realize.block.name_hint
        raise ScheduleError(
            f"{action}: the loops from '{top.loop_var.name}' to block '{name}' are not proven to reach each "
            "of its points once",
            where=where_block(tree, name),
        )  # fmt: skip


def feeds_reduction(realize: BlockRealize, var: Var) -> bool:
    """Whether a loop variable occurs in the binding of a reducing iteration variable."""
    return any(
        iv.kind == REDUCE and var in free_vars(value)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    )


def is_visible_outside(tree: Tree, buffer: Buffer, loop: For) -> bool:
    """Whether a buffer belongs to the interface or is used by a block that is not below the loop."""
    if buffer in tree.interface:
        return True
    users = [*tree.readers.get(buffer, ()), *tree.writers.get(buffer, ())]
    return any(not tree.is_below(tree.realizes[n], loop) for n in users)


def writes_each_point_once(block: Block) -> bool:
    """Whether a block's spatial variables all decide which element it writes."""
    extents: dict[Var, int] = {}
    analyzer = Analyzer()
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
        if iv.kind == SPATIAL:
            extents[iv.var] = most_of(iv.dom.extent)
    return all(is_injective([r.min for r in w.region], extents, analyzer) for w in block.writes)


def require_parallel(tree: Tree, loop: For, action: str, *, private_copies: bool) -> None:
    """Check that the iterations of a loop may run at once: TVM's block classes, and no two writing one element.

    private_copies  each iteration may have its own copy of buffers used only inside of it (threads; not lanes)
    """
    below = list(realizes_below(loop.body))
    if len(below) > 1:
        require_no_ring(tree, below, action)
    for r in below:
        if len(below) > 1 or not writes_alone_below(tree, r.block.name_hint, loop):
            require_complete_or_reduction(tree, r.block.name_hint, action)
        require_block_parallel(tree, loop, r, action, private_copies=private_copies)


def writes_alone_below(tree: Tree, name: str, loop: For) -> bool:
    """Whether a block reads none of what it writes, and who else writes that stands outside of a loop.

    So it is with the initialisation of a decomposed reduction, which TVM lets run in parallel.
    """
    block = tree.block(name)
    written = {w.buffer for w in block.writes}
    if block.init is not None or any(iv.kind != SPATIAL for iv in block.iter_vars):
        return False
    if any(r.buffer in written for r in block.reads):
        return False
    others = {n for b in written for n in tree.writers[b]} - {name}
    return not any(tree.is_below(tree.realizes[n], loop) for n in others)


def require_block_parallel(tree: Tree, loop: For, realize: BlockRealize, action: str, *, private_copies: bool) -> None:
    """Check that no two iterations of a loop write the same element through one block."""
    name = realize.block.name_hint
    if feeds_reduction(realize, loop.loop_var):
        raise ScheduleError(
            f"{action}: loop '{loop.loop_var.name}' runs over a reduction of block '{name}'",
            where=where_block(tree, name), hint="rfactor makes it spatial",
        )  # fmt: skip
    if isinstance(loop.extent, IntImm) and loop.extent.value <= 1:
        return
    if private_copies and not any(is_visible_outside(tree, w.buffer, loop) for w in realize.block.writes):
        return
    require_binds_once(tree, realize, loop, action)
    if not writes_each_point_once(realize.block):
        raise ScheduleError(
            f"{action}: block '{name}' may write one element in several iterations", where=where_block(tree, name)
        )  # fmt: skip


def only_child_chain(top: For, bottom: For) -> list[For] | None:
    """The loops from `top` to `bottom` when each is the only statement of the one before."""
    chain, current = [top], top
    while current is not bottom:
        if not isinstance(current.body, For):
            return None
        current = current.body
        chain.append(current)
    return chain


def starts_at_zero(loop: For) -> bool:
    return isinstance(loop.start, IntImm) and loop.start.value == 0


def body_statements(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)
