"""Prefetches of what a window will read, each line once.

A loop over tiles with the annotation "prefetch_window": {buffer: tiles ahead} reads windows that overlap: most of a
tile's lines are those of the tile before, or of the tile above it, which the loop around has read. Hardware that
prefetches runs along one row at a time. So each iteration asks for the lines that are new a few tiles ahead.

Before:  for y in 8: for x in 14: …data[y + ky, 8 * x + kx]…
After:   for y in 8: for x in 14: prefetch(data[y + 2, 8 * (x + 3)], …); …data[y + ky, 8 * x + kx]…

Past the end of a row, the next row is asked for, which the loop around reads next where rows lie one after the other.

A loop over tiles that each reduce many channels has "prefetch_steps": {buffer: steps ahead} instead. The steps of a
tile ask for what is read a few steps later, in the last ones for the next tile's. A core reads a line that another one
has just written in 8 ns, and computes with it in 5 (Emerald Rapids): all of them have to come while it computes.

Before:  for tile in 7: for c in 12: …data[c, 14 * tile + p]…
After:   for tile in 7: for c in 12: prefetch(data[c + 2, 14 * tile], …); …data[c, 14 * tile + p]…
                                     # where c < 10, else of data[c - 10, 14 * (tile + 1)]

With "prefetch_results": {buffer: rows a step}, they ask for what their tile stores behind its steps, or for what it
reads as it stores. Another core may have read these lines, or written them: a burst of stores then waits 25 ns for each
to become this core's own, where two cores share no cache (Zen 4). One at a time, stores wait beside the sums. So each
step stores what is there already (`TO_OWN`) in a few elements that its tile, and nobody else, will store.

Before:  for tile in 7: {for c in 12: …data[c]…}; {for p in 14: out[14 * tile + p] = …}
After:   for tile in 7: {for c in 12: {if 2 * c < 14: out[14 * tile + 2 * c] = out[14 * tile + 2 * c]; …}; …data[c]…};
                        {for p in 14: out[14 * tile + p] = …}
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from autosched.codegen.lower.prefetch_next import insert_first
from autosched.ir.node import Node, children, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad, BufferStore
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, add, cast, const, const_int, minimum
from autosched.tir.functor import free_vars, substitute
from autosched.tir.prefetch import (
    LINE_BYTES,
    PREFETCH_RESULTS,
    PREFETCH_STEPS,
    PREFETCH_WINDOW,
    PREFETCH_WITHIN,
    TO_OWN,
    TO_READ,
    TO_WRITE,
    request,
    wanted_by,
)
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import For, IfThenElse, LoopKind, Stmt, seq

Access = TypeVar("Access", BufferLoad, BufferStore)
MOST_PLACES = 4096  # of a tile that are looked at
TILES = frozenset({PREFETCH_WINDOW, PREFETCH_STEPS, PREFETCH_WITHIN, PREFETCH_RESULTS})  # annotations
MOST_LINES = 16  # an iteration: with more new lines than that, tiles hardly overlap


def prefetch_windows(stmt: Stmt, scratch: Collection[Buffer] = (), outer: For | None = None) -> Stmt:
    """The statement with the prefetches that loops over tiles ask for.

    scratch  buffers that may still get other sizes
    outer    the serial loop around it, where there is one
    """
    if not isinstance(stmt, For):
        return map_children(stmt, lambda c: prefetch_windows(c, scratch, outer) if isinstance(c, Stmt) else c)
    left = {k: v for k, v in stmt.annotations.items() if k not in TILES}
    if len(left) < len(stmt.annotations):
        made = dataclasses.replace(stmt, annotations=left)
        for name, ahead in wanted_by(stmt, PREFETCH_WINDOW).items():
            made = _with_windows(made, scratch, outer, name, int(ahead))
        for name, ahead in wanted_by(stmt, PREFETCH_STEPS).items():
            made = _with_steps(made, scratch, name, int(ahead))
        for name, ahead in wanted_by(stmt, PREFETCH_WITHIN).items():
            made = _with_steps(made, scratch, name, int(ahead), within=True)
        for name, rows in reversed(wanted_by(stmt, PREFETCH_RESULTS).items()):  # the first one's come first
            made = _with_results(made, scratch, name, int(rows))
        return made
    around = stmt if stmt.kind == LoopKind.SERIAL else None
    return map_children(stmt, lambda c: prefetch_windows(c, scratch, around) if isinstance(c, Stmt) else c)


def _with_windows(tiles: For, scratch: Collection[Buffer], outer: For | None, name: str, ahead: int) -> For:
    """The loop with requests for the lines of the buffer that are new so many tiles ahead, if tiles move evenly."""
    found = next(accesses(tiles.body, BufferLoad, name), None)
    if found is None:
        return tiles
    load, inner = found
    around = (tiles.loop_var,) if outer is None else (tiles.loop_var, outer.loop_var)
    later = {tiles.loop_var: tiles.loop_var + const(ahead, tiles.loop_var.dtype)}
    return insert_first(tiles, tiles, _prefetches(load, scratch, inner, around, later))


def _with_steps(tiles: For, scratch: Collection[Buffer], name: str, ahead: int, within: bool = False) -> For:
    """The loop whose tiles ask for the lines of the buffer that are read so many steps later.

    Where a tile has no steps that read other lines each, it asks for those of the next one.
    within  no tile asks for what the next one reads
    """
    found = next(accesses(tiles.body, BufferLoad, name), None)
    if found is None:
        return tiles
    load, inner = found
    at = next((n for n, loop in enumerate(inner) if _is_long(loop)), None)
    distance = None if at is None else steps_of(load, [inner[at].loop_var])
    if at is None or distance is None or distance[inner[at].loop_var] < LINE_BYTES // item_bytes(load.buffer.dtype):
        later = {tiles.loop_var: tiles.loop_var + const(1, tiles.loop_var.dtype)}
        return tiles if within else insert_first(tiles, tiles, _prefetches(load, scratch, inner, (), later))
    step = inner[at]
    then = step.loop_var - step.start + const(ahead, step.loop_var.dtype)
    is_here = then < step.extent
    start: dict[Var, PrimExpr] = {n.loop_var: n.start for n in inner[:at]}
    if within:
        start[step.loop_var] = step.start + minimum(then, step.extent - 1)
        return insert_first(tiles, step, _prefetches(load, scratch, inner[at + 1 :], (), start))
    start[step.loop_var] = step.start + E.Select(is_here, then, then - step.extent)
    start[tiles.loop_var] = tiles.loop_var + E.Select(is_here, const(0, then.dtype), const(1, then.dtype))
    return insert_first(tiles, step, _prefetches(load, scratch, inner[at + 1 :], (), start))


def _with_results(tiles: For, scratch: Collection[Buffer], name: str, rows: int) -> For:
    """The loop whose tiles ask for the lines of the buffer that they store, or read there, so many rows in each step.

    Rows are the iterations of the longest loop around the access whose elements share no vector. A step asks for lines
    to write to those that the next step owns, the last one that does for the next tile's.
    """
    store = next(accesses(tiles.body, BufferStore, name), None)
    found = store or next(accesses(tiles.body, BufferLoad, name), None)
    if found is None:
        return tiles
    access, inner = found
    step = next((n for n in preorder(tiles.body) if isinstance(n, For) and n not in inner and _is_long(n)), None)
    counted = [n for n in inner if n.kind != LoopKind.VECTORIZED and const_int(n.extent) is not None]
    if step is None or not counted:
        return tiles
    along = max(counted, key=lambda n: const_int(n.extent) or 0)
    row, dtype, rows = along.loop_var, along.loop_var.dtype, min(rows, const_int(along.extent) or 0)
    done = cast(dtype, step.loop_var - step.start) * rows
    load = BufferLoad(access.buffer, access.indices)

    def ask(first: PrimExpr, count: int, purpose: int) -> list[Stmt]:
        part = [dataclasses.replace(n, extent=const(count, dtype)) if n is along else n for n in inner]
        return _prefetches(load, scratch, part, (), {row: along.start + first}, purpose)

    requests = ask(done, rows, TO_READ) if store is None else ask(done + rows, rows, TO_WRITE)
    last = None if store is None else _last(tiles.body, access, along, inner)
    if last is not None:
        requests += [own for n in range(rows) for own in ask(minimum(done + n, last), 1, TO_OWN)]
    return insert_first(tiles, step, [IfThenElse(done < along.extent, seq(*requests))] if requests else [])


def _last(body: Stmt, store: BufferLoad | BufferStore, along: For, inner: Sequence[For]) -> PrimExpr | None:
    """The last iteration of one of the loops around a store in which that is done, whatever those of others are.

    None where it is not known, or differs. It is the whole loop's, or what a condition as `8 * tile + i < 49` leaves.
    """
    last, variables = along.extent - 1, {n.loop_var for n in inner}
    for condition in (part for whole in _conditions(body, store) for part in split_conditions(whole)):
        if not isinstance(condition, E.LT) or free_vars(condition) & variables != {along.loop_var}:
            return None
        terms = Analyzer().linear(condition.a - condition.b).terms.values()
        if [factor for factor, atom in terms if along.loop_var in free_vars(atom)] != [1]:
            return None
        rest = substitute(condition.a, {along.loop_var: along.start})
        last = minimum(last, condition.b - 1 - rest)
    return last


def _conditions(node: Node, store: Node, around: tuple[PrimExpr, ...] = ()) -> tuple[PrimExpr, ...]:
    """The conditions around a statement."""
    if node is store:
        return around
    if isinstance(node, IfThenElse):
        around = (*around, node.condition)
    return next((found for child in children(node) if (found := _conditions(child, store, around))), ())


def _is_long(loop: For) -> bool:
    return loop.kind == LoopKind.SERIAL and const_int(loop.extent) != 1


def _prefetches(
    load: BufferLoad,
    scratch: Collection[Buffer],
    inner: Sequence[For],
    around: Sequence[Var],
    later: Mapping[Var, PrimExpr],
    purpose: int = TO_READ,
) -> list[Stmt]:
    """Requests for the lines that a load reads in some inner loops; none where they are too many or uneven.

    around  variables of which the iteration before has read some of the lines
    later   where variables are then
    purpose  as `request` takes it
    """
    counts = {n.loop_var: const_int(n.extent) for n in inner}
    steps = steps_of(load, (*counts, *around))
    if steps is None or any(count is None for count in counts.values()):
        return []
    moving = [v for v in counts if steps[v]]
    if math.prod(counts[v] or 1 for v in moving) > MOST_PLACES:
        return []
    combinations = itertools.product(*(range(counts[v] or 1) for v in moving))
    places = {sum(steps[v] * i for v, i in zip(moving, values, strict=True)): values for values in combinations}
    new = [place for place in sorted(places) if not any(steps[v] and place + steps[v] in places for v in around)]
    line = LINE_BYTES // item_bytes(load.buffer.dtype)
    lines = {place // line: place for place in reversed(new)}  # the first place of each
    if not lines or len(lines) > MOST_LINES:
        return []
    start = {n.loop_var: n.start for n in inner} | dict(later)
    first = BufferLoad(load.buffer, tuple(substitute(i, start) for i in load.indices))
    asked = [places[place] for place in reversed(lines.values())]
    factors = [f for i in load.indices if (f := _factors(i, moving)) is not None]
    if len(factors) == len(load.indices):
        while len(factors) > 1 and not any(factors[0]):
            del factors[0]
        return [request(first, [[sum(map(operator.mul, f, values)) for f in factors] for values in asked], purpose)]
    if load.buffer not in scratch and not load.buffer.strides:  # its rows stay as long as they are
        return [request(first, [(place,) for place in reversed(lines.values())], purpose)]
    at = (start | {v: start[v] + const(i, v.dtype) for v, i in zip(moving, values, strict=True)} for values in asked)
    found = (BufferLoad(load.buffer, tuple(substitute(i, there) for i in load.indices)) for there in at)
    return [request(load, purpose=purpose) for load in found]


def _factors(index: PrimExpr, moving: Sequence[Var]) -> list[int] | None:
    """How far an index goes with each of some variables; None where it is not even."""
    terms = Analyzer().linear(index).terms.values()
    if any(not isinstance(atom, Var) and free_vars(atom) & set(moving) for _, atom in terms):
        return None
    return [sum(factor for factor, atom in terms if atom is v) for v in moving]


def accesses(
    node: Node, kind: type[Access], name: str, inner: tuple[For, ...] = ()
) -> Iterator[tuple[Access, tuple[For, ...]]]:
    """Loads of a buffer, or stores to it, each with the loops around it."""
    if isinstance(node, kind) and node.buffer.name == name:
        yield node, inner
    if isinstance(node, For):
        inner = (*inner, node)
    for child in children(node):
        yield from accesses(child, kind, name, inner)


def steps_of(access: BufferLoad | BufferStore, moving: Sequence[Var]) -> dict[Var, int] | None:
    """How far an access moves in its buffer with each of some variables, in elements; None where it is not known."""
    steps, stride = dict.fromkeys(moving, 0), 1
    parts: list[PrimExpr] = []
    for index, extent in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
        if free_vars(index) & steps.keys():
            if not stride:
                return None
            parts.append(cast(access.indices[-1].dtype, index) * stride)
        stride *= const_int(extent) or 0  # 0: not known
    if not parts:
        return steps
    analyzer = Analyzer()
    flat = analyzer.simplify(functools.reduce(add, reversed(parts)))  # i // 7 * 7 + i % 7 is i
    for factor, atom in analyzer.linear(flat).terms.values():
        if not free_vars(atom) & steps.keys():
            continue
        if not isinstance(atom, Var):
            return None
        steps[atom] += factor
    return steps


__all__ = ["accesses", "prefetch_windows", "steps_of"]
