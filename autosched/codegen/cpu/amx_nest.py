"""The form of products in tile registers (AMX), and which register each tile has.

    for k in steps:                        any number of loops
        for m in rows: for n in columns:   their innermost ones in tiles of 16
            for j in 16:  # amx
                for g in 4: acc[m, n] += int32(a[m, 64 * k + 4 * j + g]) * int32(b[k, j, n, g])

a holds unsigned bytes and b signed ones, or both pairs of bfloat16, whose products are summed in float32. Where both
hold words of four bytes the innermost loop is a call, and either may be the signed ones:

            for j in 16: acc[m, n] = dot_bytes(acc[m, n], b[k, j, n], a[m, 16 * k + j])  # amx

A tile register has 16 rows of 64 bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.codegen.cpu.narrow_products import added_product, added_words, bfloat_factors, byte_factors
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.functor import loads, uses
from autosched.tir.stmt import BufferStore, Evaluate, For, LoopKind, SeqStmt, Stmt

AMX = "amx"  # the annotation of the loop over the words of 32 bits that lie side by side in a row of a tile
ROWS, WORDS, REGISTERS = 16, 16, 8  # of a tile register: rows, words of 32 bits in a row; registers
WORD_BYTES = 4
PALETTE_BYTES = 64  # of the description of all registers: sizes of rows from byte 16, numbers of rows from byte 48


@dataclass(frozen=True, slots=True)
class TileSizes:
    """The tiles of a sum: rows of each tile of rows, columns of each tile of columns, words of a step.

    The shorter side stays: each of its tiles has a register of its own over a step. The tiles of the longer side are
    streamed: they take turns in the registers that are left.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    words: int

    @property
    def rows_stay(self) -> bool:
        """Whether the rows are the side that stays."""
        return len(self.rows) <= len(self.columns)

    @property
    def fit(self) -> bool:
        """Whether there are registers for the sums and for what a step multiplies."""
        stays, streamed = (self.rows, self.columns) if self.rows_stay else (self.columns, self.rows)
        left = REGISTERS - self._sums - len(stays)
        return left >= min(len(streamed), len(set(streamed)))

    @property
    def _sums(self) -> int:
        return len(self.rows) * len(self.columns)

    def sum_at(self, r: int, c: int) -> int:
        """The register of a tile of sums."""
        return r * len(self.columns) + c

    def row_at(self, r: int) -> int:
        """The register of a tile of rows."""
        if self.rows_stay:
            return self._sums + r
        first = self._sums + len(self.columns)
        return first + _turn(self.rows, r, REGISTERS - first)

    def column_at(self, c: int) -> int:
        """The register of a tile of columns."""
        if not self.rows_stay:
            return self._sums + c
        first = self._sums + len(self.rows)
        return first + _turn(self.columns, c, REGISTERS - first)

    def palette(self) -> bytes:
        """The description of all registers that the instruction ldtilecfg reads."""
        sizes: dict[int, tuple[int, int]] = {}
        for (r, rows), (c, columns) in itertools.product(enumerate(self.rows), enumerate(self.columns)):
            sizes[self.sum_at(r, c)] = rows, WORD_BYTES * columns
            sizes[self.row_at(r)] = rows, WORD_BYTES * self.words
            sizes[self.column_at(c)] = self.words, WORD_BYTES * columns
        text = bytearray(PALETTE_BYTES)
        text[0] = 1
        for register, (rows, row_bytes) in sizes.items():
            text[16 + 2 * register] = row_bytes
            text[48 + register] = rows
        return bytes(text)


def _turn(sizes: tuple[int, ...], i: int, registers: int) -> int:
    """Which of so many registers a tile takes: tiles of one size take turns."""
    if len(sizes) <= registers:
        return i
    kinds = list(dict.fromkeys(sizes))
    each = registers // len(kinds)
    return kinds.index(sizes[i]) * each + sizes[:i].count(sizes[i]) % each


Step = tuple[For, tuple[Evaluate, ...]]  # a loop with the prefetches at its beginning
Tiles = tuple[tuple[Mapping[Var, int], int], ...]  # where each begins, how many rows or columns it has


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Tiles of sums that are in registers at once."""

    rows: Tiles
    columns: Tiles
    words: int

    @property
    def sizes(self) -> TileSizes:
        return TileSizes(tuple(n for _, n in self.rows), tuple(n for _, n in self.columns), self.words)


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """The loops of a sum of products, outer to inner, by what they run over, and what is multiplied.

    product  the instruction
    group    the loop over elements of a word; None where words are multiplied by a call
    """

    product: str

    steps: tuple[Step, ...]
    rows: tuple[For, ...]
    columns: tuple[For, ...]
    words: For
    group: For | None
    store: BufferStore
    a: BufferLoad
    b: BufferLoad

    @property
    def is_of_bytes(self) -> bool:
        return self.store.buffer.dtype == "int32"

    @property
    def groups(self) -> tuple[Group, ...]:
        """The tiles, so many of the rows in turn as there are registers for; () where not even one fits."""
        words = const_int(self.words.extent)
        assert words is not None, "find_nest looked"
        rows, columns = _tiles(self.rows), _tiles(self.columns)
        for most in range(len(rows), 0, -1):
            parts = [rows[i : i + most] for i in range(0, len(rows), most)]
            found = [Group(part, columns, words) for part in parts]
            if all(group.sizes.fit for group in found):
                return tuple(found)
        return ()

    @property
    def count(self) -> int:
        """How many sums there are."""
        return sum(sum(g.sizes.rows) * sum(g.sizes.columns) for g in self.groups)


def _tiles(loops: tuple[For, ...]) -> Tiles:
    """The tiles that loops over rows or columns run over: the innermost loop is cut into them."""
    extents = [const_int(loop.extent) or 1 for loop in loops]
    starts = [range(n) for n in extents[:-1]] + [range(0, n, ROWS) for n in extents[-1:]]
    begins = ({loop.loop_var: i for loop, i in zip(loops, at, strict=True)} for at in itertools.product(*starts))
    return tuple((b, min(ROWS, extents[-1] - b[loops[-1].loop_var]) if loops else 1) for b in begins)


def find_nest(outermost: Stmt) -> Nest | None:
    """The nest of loops that begins here, where the loop over words has the annotation and all is as it should be."""
    loops, store = _loops(outermost)
    of_words = added_words(store)
    n_inner = 1 if of_words else 2
    if not isinstance(store, BufferStore) or len(loops) < n_inner or not loops[-n_inner][0].annotations.get(AMX):
        return None
    outer, inner = loops[:-n_inner], loops[-n_inner:]
    spatial = [loop for loop, _ in outer if _varies(store.indices, loop)]
    found = _word_product(of_words, spatial) if of_words else _product(store, spatial)
    if found is None or any(loads(i) for f in found[1:] for i in f.indices):
        return None
    product, a, b = found
    rows, columns = (tuple(x for x in spatial if _varies(f.indices, x)) for f in (a, b))
    if len(rows) + len(columns) != len(spatial) or set(rows) & set(columns):
        return None
    words, group = inner[0][0], None if of_words else inner[1][0]
    replaced = (*spatial, *(x for x, _ in inner))
    if any(const_int(x.extent) is None or const_int(x.start) != 0 for x in replaced):
        return None
    if not 0 < (const_int(words.extent) or 0) <= WORDS:
        return None
    if group is not None and const_int(group.extent) != WORD_BYTES // item_bytes(a.buffer.dtype):
        return None
    steps = tuple((loop, fetches) for loop, fetches in outer if loop not in spatial)
    if any(fetches for loop, fetches in loops if loop in replaced):
        return None
    if any(loop.kind == LoopKind.THREAD_BINDING for loop, _ in loops):
        return None
    nest = Nest(product, steps, rows, columns, words, group, store, a, b)
    return nest if nest.groups else None


def _loops(stmt: Stmt) -> tuple[list[Step], Stmt]:
    """(the loops from a statement inwards, the statement inside of all)."""
    loops: list[Step] = []
    while isinstance(stmt, For):
        loop, stmt = stmt, stmt.body
        fetches: tuple[Evaluate, ...] = ()
        if isinstance(stmt, SeqStmt):
            first = tuple(s for s in stmt.seq[:-1] if isinstance(s, Evaluate))
            if len(first) == len(stmt.seq) - 1:
                fetches, stmt = first, stmt.seq[-1]
        loops.append((loop, fetches))
    return loops, stmt


def _product(store: BufferStore, spatial: list[For]) -> tuple[str, BufferLoad, BufferLoad] | None:
    """(the instruction, what the rows are read from, what the columns are) of a sum of products."""
    found = added_product(store)
    if found is None:
        return None
    if factors := byte_factors(found[1]):
        return "tdpbusd", *factors
    factors = _rows_first(bfloat_factors(found[1]), spatial)
    return None if factors is None else ("tdpbf16ps", *factors)


def _word_product(
    factors: tuple[BufferLoad, BufferLoad], spatial: list[For]
) -> tuple[str, BufferLoad, BufferLoad] | None:
    """The same of a sum of dot products of four bytes, (unsigned, signed)."""
    ordered = _rows_first(factors, spatial)
    if ordered is None:
        return None
    return "tdpbusd" if ordered[0] is factors[0] else "tdpbsud", *ordered


def _varies(indices: tuple[PrimExpr, ...], loop: For) -> bool:
    return any(uses(i, {loop.loop_var}) for i in indices)


def _rows_first(
    factors: tuple[BufferLoad, BufferLoad] | None, spatial: list[For]
) -> tuple[BufferLoad, BufferLoad] | None:
    """(what the rows are read from, what the columns are): the columns are the vectorised loop's."""
    lane = next((x for x in reversed(spatial) if x.kind == LoopKind.VECTORIZED), None)
    if factors is None or lane is None:
        return None
    first, second = factors
    return (second, first) if _varies(first.indices, lane) else (first, second)


__all__ = [
    "AMX",
    "PALETTE_BYTES",
    "REGISTERS",
    "ROWS",
    "WORDS",
    "WORD_BYTES",
    "Group",
    "Nest",
    "Step",
    "TileSizes",
    "find_nest",
]
