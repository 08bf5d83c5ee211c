"""Sorting along an axis whose length comes with the call; see `sort`.

Parts of a line are sorted in shared memory, and merged in pairs by a launch that is repeated: its turn says how long
the parts are. What one turn leaves, the next one reads.

    for line in blockIdx: out = the line in order       # where it is one part; else:
    for line, part in blockIdx: left[0, line, part] = the part in order
    for turn in range(rounds):          # annotation "launched_each_time"; rounds = log2 of the number of parts
        for element in blockIdx, threadIdx: left[(turn + 1) % 2, line, place + places before it] = left[turn % 2, …]
    for element in blockIdx, threadIdx: out = left[rounds % 2, …]

Where only a few are wanted, a known number, a part keeps no more of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.codegen.lower.launches import LAUNCHED
from autosched.templates.base import Applied
from autosched.templates.core_nests import load, others_are_elementwise, store, typed
from autosched.templates.cuda.core_nests import Core
from autosched.templates.cuda.either import repeated
from autosched.templates.cuda.nests import block, bound, copy_tile, share_tile
from autosched.templates.cuda.sort_network import PLACE, SortNetwork
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, THREAD_Y
from autosched.templates.lines import INDEX
from autosched.templates.nests import index, loop
from autosched.templates.sort_form import find_open_sort, is_sorted_key
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.stmt import IfThenElse, Stmt, seq
from autosched.topi.sort import precedes

PART_BITS = 10
PART = 1 << PART_BITS  # elements that a block sorts: 12 bytes each at most, which static shared memory holds
PART_THREADS = 256
THREADS = 256  # of a block that merges or writes
MOST_ROUNDS = 20  # of merging 2 ** 30 elements

Element = Callable[[PrimExpr, PrimExpr], PrimExpr]
Write = Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt]  # of (line, rank, key, position)


def schedule_open_sort(func: PrimFunc) -> Applied | None:
    """One sort along an axis of open length, and what is element-wise around it; None for any other function."""
    form = find_open_sort(func, INDEX)
    if form is None or const_int(form.lines.extent) is not None:
        return None
    if not others_are_elementwise(func, [form.ranks, form.order]):
        return None
    order, lines = form.order.writes[0].buffer, form.lines
    core = Core(func, [form.ranks.name_hint, form.order.name_hint], [order], [form.keys])

    def key(line: PrimExpr, position: PrimExpr) -> PrimExpr:
        return core.value(BufferLoad(form.keys, typed(form.keys, lines.at(line, position))))

    def write(line: PrimExpr, rank: PrimExpr, value: PrimExpr, position: PrimExpr) -> Stmt:
        def known(x: BufferLoad, axes: Sequence[Var]) -> PrimExpr | None:
            return value if is_sorted_key(form, x, axes) else None

        return core.result(order, E.cast(order.dtype, position), lines.at(line, rank), known)

    sorter = OpenSorter(form.keys.dtype, form.descending, lines.number, lines.extent, form.count)
    return core.applied(sorter.launches(key, write), sorter.buffers)


def _add(a: PrimExpr, b: PrimExpr | int) -> PrimExpr:
    return E.add(a, index(b) if isinstance(b, int) else b)


def doublings(n: PrimExpr, first: int, most: int) -> PrimExpr:
    """How often 2 ** first is to be doubled for `n`, at most `most` times: a size, which has no logarithm."""
    total: PrimExpr = index(0)
    for k in range(most):
        is_more = E.minimum(E.floordiv(_add(n, -1), index(1 << (first + k))), index(1))
        total = E.add(total, is_more)
    return total


class OpenSorter(SortNetwork):
    """The statements that sort lines of a length, of which the first `count` elements are wanted, or all."""

    def __init__(self, dtype: str, descending: bool, n_lines: PrimExpr, length: PrimExpr, count: int | None):
        super().__init__(dtype, descending, PART_THREADS)
        self.n_lines, self.length = n_lines, length
        self.kept = count if count is not None and count <= PART else None  # elements of a part; None: all
        self.count: PrimExpr = self.length if count is None else index(count)
        self.parts = E.floordiv(_add(self.length, PART - 1), index(PART))
        self.rounds = doublings(self.length, PART_BITS, MOST_ROUNDS)
        self.row = self.length if self.kept is None else E.mul(self.parts, index(self.kept))
        self.is_long = E.minimum(E.floordiv(_add(self.length, -1), index(PART)), index(1))
        left = (E.mul(self.is_long, index(2)), n_lines, self.row)
        self.keys, self.places = (Buffer(f"{n}_left", left, t, scope="global")
                                  for n, t in (("keys", dtype), ("places", PLACE)))  # fmt: skip
        self.buffers += [self.keys, self.places]

    def launches(self, key: Element, write: Write) -> Stmt:
        """All launches. `key(line, position)` is what is sorted; `write(line, rank, key, position)` a result."""
        is_short = E.sub(index(1), self.is_long)
        return seq(
            repeated(is_short, self.sort_parts(key, lambda line, part, *result: write(line, *result))),
            repeated(self.is_long, self.sort_parts(key, self.leave)),
            loop("turn", self.rounds, self.merge, annotations={LAUNCHED: True}),
            repeated(self.is_long, self.write_results(write)),
        )

    def leave(self, line: PrimExpr, part: PrimExpr, rank: PrimExpr, key: PrimExpr, place: PrimExpr) -> Stmt:
        """Leave an element of a part to the first turn of merging."""
        kept = PART if self.kept is None else self.kept
        at = (index(0), line, E.add(E.mul(part, index(kept)), rank))
        return seq(store(self.keys, key, *at), store(self.places, place, *at))

    def sort_parts(self, key: Element, write: Callable[..., Stmt]) -> Stmt:
        """Each part of each line in order: write(line, part, rank, key, position)."""
        keys, places = (self.own(f"{n}_shared", t, 1, PART, scope="shared")
                        for n, t in (("key", self.dtype), ("place", PLACE)))  # fmt: skip
        kept = PART if self.kept is None else self.kept

        def of_block(at: Var, ty: Var, tx: Var) -> Stmt:
            line, part = E.floordiv(at, self.parts), E.floormod(at, self.parts)
            first = E.mul(part, index(PART))
            there = E.minimum(E.sub(self.length, first), index(PART))
            threads = ((ty, 1), (tx, PART_THREADS))

            def read(_: PrimExpr, column: PrimExpr) -> PrimExpr:
                return key(line, E.minimum(E.add(first, column), _add(self.length, -1)))

            def result(row: PrimExpr, rank: PrimExpr) -> Stmt:
                found = write(line, part, rank, load(keys, row, rank), load(places, row, rank))
                return IfThenElse(E.compare(E.LT, rank, there), found)

            return block("sort", seq(
                copy_tile(keys, 1, PART, read, threads),
                copy_tile(places, 1, PART, lambda _, column: E.add(first, column), threads),
                loop("phase", doublings(self.length, 0, PART_BITS), lambda phase: loop("step", _add(phase, 1),
                     lambda step: self.order_pairs(keys, places, E.sub(phase, step), E.compare(E.EQ, step, index(0)),
                                                   there, ty, tx))),
                share_tile(1, kept, result, threads),
            ))  # fmt: skip

        blocks = E.mul(self.n_lines, self.parts)
        return bound(((BLOCK_X, blocks), (THREAD_Y, 1), (THREAD_X, PART_THREADS)), of_block)

    def merge(self, turn: Var) -> Stmt:
        """Merge neighbouring parts, which have 2 ** (PART_BITS + turn) elements."""
        before = self.own("before", PLACE, 1)
        bits = _add(turn, PART_BITS)
        span = E.bitwise("shift_left", index(1), bits)
        width = span if self.kept is None else index(self.kept)
        steps = _add(bits, 1) if self.kept is None else index(self.kept.bit_length())
        parts = E.bitwise("shift_right", _add(_add(self.length, -1), span), bits)
        source, target = E.floormod(turn, index(2)), E.floormod(_add(turn, 1), index(2))

        def there(part: PrimExpr) -> PrimExpr:
            """How many elements of a part are kept: none of those behind the last."""
            left = E.sub(self.length, E.mul(E.minimum(part, parts), span))
            return E.maximum(E.minimum(left, width), index(0))

        def of_element(line: PrimExpr, rest: PrimExpr) -> Stmt:
            part = E.floordiv(rest, width) if self.kept else E.bitwise("shift_right", rest, bits)
            mine = E.sub(rest, E.mul(part, width))
            pair = E.floordiv(part, index(2))
            other = E.sub(_add(E.mul(pair, index(4)), 1), part)
            key, place = load(self.keys, source, line, rest), load(self.places, source, line, rest)

            def search(step: Var) -> Stmt:
                size = E.bitwise("shift_left", index(1), E.sub(_add(steps, -1), step))
                probe = _add(E.add(load(before, 0), size), -1)
                inside = E.minimum(E.add(E.mul(other, width), E.minimum(probe, _add(width, -1))), _add(self.row, -1))
                is_before = precedes(load(self.keys, source, line, inside), key, self.descending,
                                     E.compare(E.LT, load(self.places, source, line, inside), place))  # fmt: skip
                taken = E.all_of(E.compare(E.LT, probe, there(other)), is_before)
                return store(before, E.add(load(before, 0), E.select(taken, size, index(0))), 0)

            rank = E.add(mine, load(before, 0))
            limits = [E.compare(E.LT, mine, there(part))]
            if self.kept is not None:
                limits.append(E.compare(E.LT, rank, width))
            more = E.mul(width, index(2)) if self.kept is None else width
            at = (target, line, E.add(E.mul(pair, more), rank))
            both = seq(store(self.keys, key, *at), store(self.places, place, *at))
            return block("merge", seq(
                store(before, index(0), 0), loop("step", steps, search), IfThenElse(E.all_of(*limits), both)
            ))  # fmt: skip

        return self._for_each(self.row, of_element)

    def write_results(self, write: Write) -> Stmt:
        """The wanted elements from where the last turn left them."""
        source = E.floormod(self.rounds, index(2))

        def of_element(line: PrimExpr, rank: PrimExpr) -> Stmt:
            inside = E.minimum(rank, _add(self.length, -1))
            key, place = (load(b, source, line, inside) for b in (self.keys, self.places))
            return block("results", write(line, rank, key, place))

        return self._for_each(self.count, of_element)

    def _for_each(self, count: PrimExpr, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        """A launch with a thread for each of `count` elements of all lines: (line, element)."""
        total = E.mul(self.n_lines, count)

        def of_thread(bx: Var, tx: Var) -> Stmt:
            at = E.add(E.mul(bx, index(THREADS)), tx)
            return IfThenElse(E.compare(E.LT, at, total), body(E.floordiv(at, count), E.floormod(at, count)))

        blocks = E.floordiv(_add(total, THREADS - 1), index(THREADS))
        return bound(((BLOCK_X, blocks), (THREAD_X, THREADS)), of_thread)
