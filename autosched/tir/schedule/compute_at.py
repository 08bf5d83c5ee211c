"""compute_at and reverse_compute_at: a block moves under a loop of its consumers or producers, over the needed part."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.errors import ScheduleError
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, IterVar, Range
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import substitute
from autosched.tir.schedule.check import (
    binds_once,
    body_statements,
    feeds_reduction,
    require_block_parallel,
    require_complete_or_reduction,
    require_no_ring,
    require_not_output,
)  # fmt: skip
from autosched.tir.schedule.domain import (
    Index,
    classify_all,
    clip_domain,
    covers_buffer,
    fits,
    is_full,
    solve,
    whole_domain,
)  # fmt: skip
from autosched.tir.schedule.loops import join_conditions
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.region import Box, Interval, bindings, hull, touched, touched_part
from autosched.tir.schedule.tree import Tree
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, For, LoopKind, Stmt, seq


def compute_at(tree: Tree, name: str, var: Var, preserve_unit_loops: bool = False, index: int = -1) -> Tree:
    """Move a producer under a loop of its consumers: per iteration, it computes what they read there.

       for i in range(64): B[i] = A[i] * 2
       for i_0 in range(16):
           for i_1 in range(4): C[i_0 * 4 + i_1] = B[i_0 * 4 + i_1] + 1
    -> for i_0 in range(16):
           for ax0 in range(4): B[i_0 * 4 + ax0] = A[i_0 * 4 + ax0] * 2
           for i_1 in range(4): C[i_0 * 4 + i_1] = B[i_0 * 4 + i_1] + 1
    """
    tree = tree.seen_from(tree.scope_of(tree.realizes[name]))
    loop, realize = _check_move(tree, name, var, "compute_at")
    require_not_output(tree, name, "compute_at")
    consumers = tree.consumers(name)
    outside = [c for c in consumers if not tree.is_below(tree.realizes[c], loop)]
    if not consumers or outside:
        what = (
            f"its consumer '{outside[0]}' is not below loop '{var.name}'" if outside else "nothing reads what it writes"
        )
        raise ScheduleError(f"compute_at of block '{name}': {what}", where=where_block(tree, name))
    analyzer = tree.analyzer(loop)
    block = realize.block
    needed: dict[Var, Interval] | None = None
    for w in block.writes:
        if w.buffer not in tree.readers:
            continue
        box = touched_part(tree, consumers, w.buffer, loop, written=False, analyzer=analyzer)
        solved = {} if box is None else solve(classify_all(w.region, block), box, analyzer)[0]
        needed = solved if needed is None else _join(needed, solved, analyzer)
    assert needed is not None
    nest = _nest(tree, block, needed, analyzer, preserve_unit_loops)
    earlier = [p for p in tree.producers(name) if tree.position(p) < tree.position(name)]
    later = [p for p in tree.producers(name) if p not in earlier]  # of the iteration before, in a recurrence
    for writer in later:
        _require_apart(tree, name, writer)
    first = _position(tree, loop, earlier, last=True) + 1
    end = _position(tree, loop, [*consumers, *later], last=False)
    return _move(tree, realize, loop, nest, first, end, index, "compute_at")


def _require_apart(tree: Tree, name: str, writer: str) -> None:
    """What a block reads, a block behind it does not write in the same iteration of the loops around both."""
    realize, other = tree.realizes[name], tree.realizes[writer]
    analyzer = tree.analyzer(realize)
    for r in realize.block.reads:
        for w in other.block.writes:
            if r.buffer is not w.buffer:
                continue
            pairs = zip(r.region, w.region, strict=True)
            distances = (
                E.const_int(analyzer.simplify(E.sub(
                    substitute(a.min, bindings(realize)), substitute(b.min, bindings(other))
                )))
                for a, b in pairs if E.const_int(a.extent) == E.const_int(b.extent) == 1
            )  # fmt: skip
            if not any(distances):  # none is a number other than 0
                raise ScheduleError(
                    f"compute_at of block '{name}': '{writer}' writes '{r.buffer.name}' after the block has read it",
                    where=where_block(tree, name),
                )  # fmt: skip


def _join(a: Mapping[Var, Interval], b: Mapping[Var, Interval], analyzer: Analyzer) -> dict[Var, Interval]:
    """What two outputs need together; a variable without a known common interval is left out: all of it is needed."""
    joined = {}
    for v in a.keys() & b.keys():
        found = hull(a[v], b[v], analyzer)
        if found is not None:
            joined[v] = found
    return joined


def reverse_compute_at(tree: Tree, name: str, var: Var, preserve_unit_loops: bool = False, index: int = -1) -> Tree:
    """Move a consumer under a loop of its producers: per iteration, it works on what they have just finished.

       for i_0 in range(16):
           for i_1 in range(4): B[i_0 * 4 + i_1] = A[i_0 * 4 + i_1] * 2
       for i in range(64): C[i] = B[i] + 1
    -> for i_0 in range(16):
           for i_1 in range(4): B[i_0 * 4 + i_1] = A[i_0 * 4 + i_1] * 2
           for ax0 in range(4): C[i_0 * 4 + ax0] = B[i_0 * 4 + ax0] + 1
    """
    tree = tree.seen_from(tree.scope_of(tree.realizes[name]))
    loop, realize = _check_move(tree, name, var, "reverse_compute_at")
    inside = _producers_below(tree, name, loop)
    analyzer = tree.analyzer(loop)
    domain: dict[Var, Interval] | None = None
    for buffer in dict.fromkeys(r.buffer for r in realize.block.reads):
        writers = [p for p in inside if p in tree.writers.get(buffer, ())]
        elsewhere = [w for w in tree.writers.get(buffer, ()) if w not in inside]
        if writers and elsewhere:
            raise ScheduleError(
                f"reverse_compute_at of block '{name}': '{elsewhere[0]}' writes a part of '{buffer.name}' outside of "
                f"loop '{var.name}'",
                where=where_block(tree, name),
            )  # fmt: skip
        if writers:
            found = _finished_part(tree, name, writers, buffer, loop, analyzer)
            if domain is not None and not _same_domain(domain, found, analyzer):
                raise ScheduleError(
                    f"reverse_compute_at of block '{name}': its producers finish different parts per "
                    f"iteration of '{var.name}'",
                    where=where_block(tree, name),
                )  # fmt: skip
            domain = found
    assert domain is not None
    in_parts = [iv for iv in realize.block.iter_vars if iv.kind == REDUCE and iv.var in domain
                and not is_full(domain[iv.var], iv.dom.extent)]  # fmt: skip
    nest = _nest(tree, realize.block, domain, analyzer, preserve_unit_loops, reduces_in_parts=True)
    first = _position(tree, loop, inside, last=True) + 1
    end = _position(tree, loop, tree.consumers(name), last=False)
    moved = _move(tree, realize, loop, nest, first, end, index, "reverse_compute_at")
    new = moved.realizes[name]
    for iv in in_parts:
        _require_parts_in_order(moved, new, iv, loop)
    for s in moved.ancestors(new):
        if isinstance(s, For) and s.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.THREAD_BINDING):
            if s.thread.startswith("threadIdx") and feeds_reduction(new, s.loop_var):
                continue  # threads reduce together
            require_block_parallel(
                moved, s, new, "reverse_compute_at", private_copies=s.kind is not LoopKind.VECTORIZED
            )
    return moved


def _require_parts_in_order(tree: Tree, realize: BlockRealize, iv: IterVar, loop: For) -> None:
    """A reduction that is done in parts, one per iteration of a producer's loops, does each of them once, and the one
    that initialises first."""
    name = realize.block.name_hint
    loops = tree.loops_of(name)
    value = bindings(realize)[iv.var]
    steps = tree.analyzer(realize).linear(E.sub(value, iv.dom.min))
    upwards = not steps.const and all(isinstance(x, Var) and scale > 0 for scale, x in steps.terms.values())
    if not upwards or not binds_once(tree, realize, loops[0]):
        raise ScheduleError(
            f"reverse_compute_at of block '{name}': only a part of its reduction over '{iv.var.name}' is ready "
            f"below '{loop.loop_var.name}', and the loops around do not take its parts once each and in order",
            where=where_block(tree, name),
        )  # fmt: skip


def _check_move(tree: Tree, name: str, var: Var, action: str) -> tuple[For, BlockRealize]:
    loop, realize = tree.loops[var], tree.realizes[name]
    where = where_block(tree, name)
    require_no_ring(tree, [realize], action)
    require_complete_or_reduction(tree, name, action)
    if tree.is_below(realize, loop):
        raise ScheduleError(f"{action}: block '{name}' is already below loop '{var.name}'", where=where)
    if tree.scope_of(loop) is not tree.scope_of(realize):
        raise ScheduleError(f"{action}: block '{name}' and loop '{var.name}' are in different blocks", where=where)
    if any(isinstance(s, For) and s.kind is LoopKind.VECTORIZED for s in (loop, *tree.ancestors(loop))):
        raise ScheduleError(f"{action}: loop '{var.name}' is vectorized", where=where, hint="vectorize afterwards")
    return loop, realize


def _producers_below(tree: Tree, name: str, loop: For) -> list[str]:
    """The producers under the loop. Raises where one is neither there nor complete before the loop's nest begins."""
    where = where_block(tree, name)
    inside, around = [], [*tree.loops_above(loop), loop]
    for p in tree.producers(name):
        realize = tree.realizes[p]
        if tree.is_below(realize, loop):
            inside.append(p)
            culprit = next((x for x in around if feeds_reduction(realize, x.loop_var)), None)
            if culprit is not None:
                raise ScheduleError(
                    f"reverse_compute_at of block '{name}': its producer '{p}' still reduces over loop "
                    f"'{culprit.loop_var.name}'",
                    where=where,
                )  # fmt: skip
        elif tree.is_below(realize, around[0]) or not _precedes(tree, p, around[0]):
            raise ScheduleError(
                f"reverse_compute_at of block '{name}': its producer '{p}' is not below loop '{loop.loop_var.name}'",
                where=where,
            )  # fmt: skip
    if not inside:
        raise ScheduleError(
            f"reverse_compute_at of block '{name}': none of its producers is below loop '{loop.loop_var.name}'",
            where=where,
        )  # fmt: skip
    return inside


def _precedes(tree: Tree, name: str, top: For) -> bool:
    first_inside = min(tree.position(n) for n in tree.leaf_names if tree.is_below(tree.realizes[n], top))
    return tree.position(name) < first_inside


def _finished_part(
    tree: Tree, name: str, writers: list[str], buffer: Buffer, loop: For, analyzer: Analyzer
) -> dict[Var, Interval]:
    """The iterations of a consumer whose reads of `buffer` are complete after one iteration of the loop."""
    block, where = tree.block(name), where_block(tree, name)
    box = touched(tree, writers, buffer, loop, written=True, analyzer=analyzer)
    result: dict[Var, Interval] | None = None
    for region in block.reads:
        if region.buffer is not buffer:
            continue
        indices = classify_all(region.region, block)
        found, loose = solve(indices, box, analyzer) if box is not None else ({}, list(range(len(indices))))
        exact = [d not in loose and box is not None and fits(i, box[d], analyzer) for d, i in enumerate(indices)]
        # a dimension that is whole does not limit the iterations
        limited = {v: i for v, i in found.items() if not _follows_whole(indices, v, box, buffer)}
        for d, extent in enumerate(buffer.shape):
            whole = box is not None and is_full(box[d], extent)
            inside = _stays_inside(block, region.region[d], extent)
            follows = whole or (exact[d] and _covered(tree, writers, buffer, indices, d))
            if not follows or not (inside or (whole and indices[d].var not in limited)):
                raise ScheduleError(
                    f"reverse_compute_at of block '{name}': dimension {d} of '{buffer.name}' is read in a way "
                    f"that reaches beyond what one iteration of '{loop.loop_var.name}' has written", where=where,
                )  # fmt: skip
        if result is not None and not _same_domain(result, limited, analyzer):
            raise ScheduleError(
                f"reverse_compute_at of block '{name}': it reads '{buffer.name}' in two places that do not fit",
                where=where,
            )  # fmt: skip
        result = limited
    assert result is not None
    return result


def _stays_inside(block: Block, part: Range, extent: PrimExpr) -> bool:
    """Whether what is read of a dimension stays in [0, extent) over all of a block's domain: an iteration that reads
    elsewhere (guarded by its body) would belong to no part of the buffer, and never run."""
    analyzer = Analyzer({iv.var: iv.dom for iv in block.iter_vars})
    (low, high), size, width = analyzer.bound(part.min), E.const_int(extent), E.const_int(part.extent)
    if low is None or high is None or size is None or width is None:
        return False
    return low >= 0 and high + width <= size


def _follows_whole(indices: list[Index], v: Var, box: Box | None, buffer: Buffer) -> bool:
    dims = [d for d, i in enumerate(indices) if i.var is v]
    return box is None or all(is_full(box[d], buffer.shape[d]) for d in dims)


def _covered(tree: Tree, writers: list[str], buffer: Buffer, indices: list[Index], d: int) -> bool:
    """Whether all iterations together write dimension `d` wholly, by a variable of its own or by the
    reader's own form."""
    for w in writers:
        block = tree.block(w)
        for region in block.writes:
            if region.buffer is not buffer:
                continue
            theirs = classify_all(region.region, block)
            if covers_buffer(block, buffer, theirs)[d]:
                continue
            if indices[d].kind not in ("div", "mod") or not theirs[d].same(indices[d]):
                return False
    return True


def _same_domain(a: Mapping[Var, Interval], b: Mapping[Var, Interval], analyzer: Analyzer) -> bool:
    return a.keys() == b.keys() and all(
        a[v].width == b[v].width and analyzer.can_prove_equal(a[v].base, b[v].base) for v in a
    )


def _nest(
    tree: Tree,
    block: Block,
    domain: Mapping[Var, Interval],
    analyzer: Analyzer,
    preserve_unit_loops: bool,
    reduces_in_parts: bool = False,
) -> Stmt:
    """Loops ax0, ax1 … over the given part of the block's iterations, the ragged rest kept out by the predicate."""
    loops: list[tuple[Var, PrimExpr]] = []
    values: list[PrimExpr] = []
    guards: list[PrimExpr] = []
    analyzer = analyzer.copy()
    for iv in block.iter_vars:
        whole = whole_domain(iv)
        known = iv.var in domain and (iv.kind != REDUCE or reduces_in_parts)
        interval = clip_domain(domain[iv.var], iv) if known else whole
        value, width = (
            (iv.dom.min, iv.dom.extent) if interval is None else (interval.base, E.const(interval.width, iv.var.dtype))
        )
        if E.const_int(width) != 1 or preserve_unit_loops:
            var = Var(f"ax{len(loops)}", iv.var.dtype)
            loops.append((var, width))
            analyzer.bind(var, Range(E.const(0, var.dtype), width))
            value = E.add(analyzer.simplify(value), var)
        else:
            value = analyzer.simplify(value)
        values.append(value)
        if interval is not whole:
            guards += _inside(value, iv, analyzer)
    body: Stmt = BlockRealize(tuple(values), join_conditions(analyzer, guards), block)
    for var, n in reversed(loops):
        body = For(var, E.const(0, var.dtype), n, LoopKind.SERIAL, body)
    return body


def _inside(value: PrimExpr, iv: IterVar, analyzer: Analyzer) -> list[PrimExpr]:
    """The conditions that a value is in an iteration variable's domain, with its constant on the side of the bounds."""
    linear = analyzer.linear(value)
    start, end = E.sub(iv.dom.min, linear.const), E.sub(E.add(iv.dom.min, iv.dom.extent), linear.const)
    linear.const, rest = 0, linear
    x = rest.build(value.dtype)
    return [c for c in (E.compare(E.LE, start, x), E.compare(E.LT, x, end)) if not analyzer.can_prove(c)]


def _position(tree: Tree, loop: For, names: list[str], *, last: bool) -> int:
    """The place in the loop's body of the last (first) of some blocks; -1 (the length) where none is there."""
    statements = body_statements(loop.body)
    places = [i for i, s in enumerate(statements) if any(tree.is_below(tree.realizes[n], s) for n in names)]
    if last:
        return max(places, default=-1)
    return min(places, default=len(statements))


def _move(
    tree: Tree, realize: BlockRealize, loop: For, nest: Stmt, first: int, end: int, index: int, action: str
) -> Tree:
    """Take a block out and put its new nest into the loop's body, at place `index` of [first, end] (-1:
    end, -2: first)."""
    place = end if index == -1 else first if index == -2 else index
    if not first <= place <= end:
        raise ScheduleError(
            f"{action} of block '{realize.block.name}': place {place} in loop '{loop.loop_var.name}' is not "
            "between its "
            f"producers and consumers ({first} to {end})", where=where_block(tree, realize.block.name),
        )  # fmt: skip
    statements = body_statements(loop.body)
    body = seq(*statements[:place], nest, *statements[place:])
    new_loop = For(loop.loop_var, loop.start, loop.extent, loop.kind, body, loop.thread, loop.annotations, loop.span)
    without = tree.replace(realize, None)
    return without.replace(without.loops[loop.loop_var], new_loop)
