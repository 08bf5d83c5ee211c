"""The first few of each line in order, kept while the line is read: `width` lines side by side.

    for lines in parallel:
        for i in range(length):
            own[:] = word of x[lines, i]
            for rank, the last first: where own < kept[rank]: kept[rank] = the one before it, or own where that is less
        for rank: out[lines, rank] = places[rank]

Words that are equal stay in the order in which they are read.
"""

from __future__ import annotations

from collections.abc import Callable

from autosched.templates.core_nests import load, one_of, store
from autosched.templates.lines import Lines
from autosched.templates.nests import index, lanes, loop
from autosched.tir import Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr
from autosched.tir.stmt import IfThenElse, LoopKind, Stmt, seq

MOST_KEPT = 16
PLACE = "int32"  # of positions along a line

Word = Callable[[PrimExpr, PrimExpr], PrimExpr]
Write = Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]


def side_by_side(lines: Lines) -> int:
    """How many lines may be: all where they run along the last axis, else those of the last axis."""
    return lines.count if lines.axis == len(lines.shape) - 1 else lines.shape[-1]


def keep_few(lines: Lines, count: int, width: int, dtype: str, word: Word, write: Write) -> tuple[Stmt, list[Buffer]]:
    """The nests, and the buffers between their statements.

    word   the element at (line, position) as a number of type `dtype` in the wanted order
    write  the statement for (line, rank, position)
    """
    inner = side_by_side(lines)
    nests, buffers = [], []
    for first, pieces, size in ((0, inner // width, width), (inner - inner % width, 1, inner % width)):
        if pieces and size:
            keeper = _Keeper(lines.length, count, size, dtype, word, write)
            buffers += keeper.buffers

            def of_task(task: Var, keeper: _Keeper = keeper, first: int = first, pieces: int = pieces) -> Stmt:
                group, piece = E.floordiv(task, index(pieces)), E.floormod(task, index(pieces))
                return keeper.nest(group * inner + piece * keeper.width + first)

            nests.append(loop("task", lines.count // inner * pieces, of_task, LoopKind.PARALLEL))
    return seq(*nests), buffers


class _Keeper:
    """The statements for some lines side by side."""

    def __init__(self, length: int, count: int, width: int, dtype: str, word: Word, write: Write):
        self.length, self.count, self.width, self.word, self.write = length, count, width, word, write
        self.own = one_of("own", dtype, width)
        self.kept, self.places = one_of("kept", dtype, count, width), one_of("places", PLACE, count, width)
        self.buffers = [self.own, self.kept, self.places]

    def nest(self, line: PrimExpr) -> Stmt:
        """All of the lines from that one on."""
        last = self.count - 1

        def step(i: PrimExpr) -> Stmt:
            position = E.add(i, index(self.count))
            insert = self.lanes(lambda lane: self.inserted(position, lane, last, False))
            if self.width == 1:
                insert = IfThenElse(E.compare(E.LT, load(self.own, 0), load(self.kept, last, 0)), insert)
            return seq(self.read(line, position), insert)

        def result(rank: int) -> Stmt:
            return self.lanes(lambda lane: self.write(E.add(line, lane), index(rank), load(self.places, rank, lane)))

        def begin(n: int) -> Stmt:
            insert = self.lanes(lambda lane: self.inserted(index(n), lane, n, True))
            return seq(self.read(line, index(n)), insert)

        rest = [loop("i", self.length - self.count, step)] if self.length > self.count else []
        return seq(*map(begin, range(self.count)), *rest, *map(result, range(self.count)))

    def lanes(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return lanes(self.width, body)

    def read(self, line: PrimExpr, position: PrimExpr) -> Stmt:
        return self.lanes(lambda lane: store(self.own, self.word(E.add(line, lane), position), lane))

    def inserted(self, position: PrimExpr, lane: PrimExpr, last: int, is_free: bool) -> Stmt:
        """Insert a word into the ranks up to `last`, which is still free, or whose word is lost."""
        own = load(self.own, lane)

        def is_before(rank: int) -> PrimExpr:
            return E.compare(E.LT, own, load(self.kept, rank, lane))

        stmts: list[Stmt] = []
        for rank in range(last, -1, -1):
            word: PrimExpr = own
            place = position
            if rank:
                word = E.select(is_before(rank - 1), load(self.kept, rank - 1, lane), own)
                place = E.select(is_before(rank - 1), load(self.places, rank - 1, lane), position)
            if rank < last or not is_free:
                place = E.select(is_before(rank), place, load(self.places, rank, lane))
                word = E.select(is_before(rank), word, load(self.kept, rank, lane))
            stmts += [store(self.places, place, rank, lane), store(self.kept, word, rank, lane)]
        return seq(*stmts)
